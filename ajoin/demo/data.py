"""The AJoin paper's running example as data: four streams of a video platform, and the queries of some teams.

Videos V are shown on users' walls; users watch them (W), comment (C) and react (R). Figure 1 of the paper has
the joins; keys and rates are chosen so that every query finds some rows in every window. The two aggregations
group alike and differ in everything else, so they share a fold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.connectors.base import ConnectorSpec

SEED = 7


@dataclass(frozen=True, slots=True)
class DemoStream:
    """`values` says what the generator puts into each column; the event time follows the rate."""

    name: str
    about: str
    columns: Mapping[str, str]
    values: Mapping[str, str]
    rate: int
    time: str = "time"

    @property
    def options(self) -> dict[str, str]:
        made = {f"column.{column}": spec for column, spec in self.values.items()}
        return {"rate": str(self.rate), "seed": str(SEED), "start_ms": "now", **made}

    @property
    def schema(self) -> StreamSchema:
        columns = tuple(Column(name, ColumnType(kind)) for name, kind in self.columns.items())
        return StreamSchema(self.name, columns, self.time)

    @property
    def source(self) -> ConnectorSpec:
        return ConnectorSpec("generator", tuple(sorted(self.options.items())))


@dataclass(frozen=True, slots=True)
class DemoQuery:
    """`folds`: it delivers one row per place (`PLACES`) when a window closes."""

    id: str
    team: str
    sql: str
    folds: bool = False


VIDEOS, USERS = 2_000, 3_000
PLACES = "weights(US:4|EU:3|GER:3)"

STREAMS = (
    DemoStream(
        "V",
        "videos shown on users' walls",
        {"vID": "BIGINT", "length": "INT", "geo": "STRING", "lang": "STRING", "time": "TIMESTAMP"},
        {
            "vID": f"uniform(1,{VIDEOS})",
            "length": "uniform(5,600)",
            "geo": PLACES,
            "lang": "weights(ENG:5|GER:3|TUR:2)",
        },
        rate=1_000,
    ),
    DemoStream(
        "W",
        "views of videos by users",
        {"usrID": "BIGINT", "vID": "BIGINT", "duration": "INT", "geo": "STRING", "time": "TIMESTAMP"},
        {
            "usrID": f"uniform(1,{USERS})",
            "vID": f"uniform(1,{VIDEOS})",
            "duration": "uniform(0,59)",
            "geo": PLACES,
        },
        rate=2_000,
    ),
    DemoStream(
        "C",
        "comments of users",
        {
            "usrID": "BIGINT",
            "comment": "STRING",
            "length": "INT",
            "photo": "BOOLEAN",
            "emojis": "INT",
            "time": "TIMESTAMP",
        },
        {
            "usrID": f"uniform(1,{USERS})",
            "comment": "choice(first!|so good|again please|not for me|why?|sent by my robot)",
            "length": "uniform(1,40)",
            "photo": "bool(0.1)",
            "emojis": "weights(0:6|1:3|2:1)",
        },
        rate=1_000,
    ),
    DemoStream(
        "R",
        "reactions of users",
        {"usrID": "BIGINT", "reaction": "STRING", "time": "TIMESTAMP"},
        {"usrID": f"uniform(1,{USERS})", "reaction": "weights(like:5|love:3|angry:2)"},
        rate=1_000,
    ),
)

QUERIES = (
    DemoQuery(
        "Q1",
        "Machine learning wants to know which English videos people in Germany watch.",
        """\
SELECT V.vID, V.lang, W.usrID, W.geo
FROM V JOIN W ON V.vID = W.vID
WHERE V.lang = 'ENG' AND W.geo = 'GER'
WINDOW TUMBLING (SIZE 1 SECOND)""",
    ),
    DemoQuery(
        "Q2",
        "The editors look for troll armies: comments a few seconds into a video from the US.",
        """\
SELECT V.vID, W.usrID, W.duration, C.comment
FROM V, W, C
WHERE V.vID = W.vID AND W.usrID = C.usrID
  AND V.geo = 'US' AND W.duration < 10 AND C.length > 5
WINDOW TUMBLING (SIZE 2 SECONDS)""",
    ),
    DemoQuery(
        "Q3",
        "Quality assurance asks who in Europe comments with emojis and reacts angrily.",
        """\
SELECT W.usrID, W.vID, C.emojis, R.reaction
FROM W JOIN C ON W.usrID = C.usrID JOIN R ON C.usrID = R.usrID
WHERE W.geo = 'EU' AND C.emojis > 0 AND R.reaction = 'angry'
WINDOW TUMBLING (SIZE 3 SECONDS)""",
    ),
    DemoQuery(
        "Q4",
        "Operations counts the views of each place and asks how long they last.",
        """\
SELECT geo, COUNT(*) AS views, ROUND(AVG(duration), 1) AS mean
FROM W
GROUP BY geo
WINDOW TUMBLING (SIZE 2 SECONDS)""",
        folds=True,
    ),
    DemoQuery(
        "Q5",
        "The designers ask where people leave early, and how many different people they are.",
        """\
SELECT geo, COUNT(*) AS exits, COUNT(DISTINCT usrID) AS users
FROM W
WHERE duration < 10
GROUP BY geo
HAVING COUNT(*) > 10
WINDOW HOPPING (SIZE 3 SECONDS, ADVANCE BY 1 SECOND)""",
        folds=True,
    ),
)
