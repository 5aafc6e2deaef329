"""One fixed story that comes along every crash point: all kinds of queries, changes, late tuples, sinks, retention.

Three streams and a fourth that is deleted and declared anew under the same name; a pair, a chain, a COUNT(*), a
factorized query, aggregates over one stream and over a join, and sessions; creation and deletion, forced orders and
groups, scaling and splitting, re-optimisation, explicit watermarks, tuples that are too late. Results are kept for two
epochs only, and a snapshot is due every few records.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from ajoin.replay.scenario import Scenario, parse
from runtime.control.budgets import Pacing
from runtime.delivery.schedule import InStep
from runtime.engine.config import EngineConfig
from runtime.engine.engine import Engine
from runtime.execution.executor import LocalExecutor
from runtime.plugins import load
from tests.faults.survivor import Death, Survivor
from tests.lives import describe
from tests.oracle import Expected, run_oracle

Line = dict[str, Any]
COLUMNS = {"k": "BIGINT", "j": "BIGINT", "n": "INT", "ts": "TIMESTAMP"}
HOP = "WINDOW HOPPING (SIZE 3 SECONDS, ADVANCE BY 1 SECOND)"
TWO = "WINDOW TUMBLING (SIZE 2 SECONDS)"
PAIR = f"SELECT A.n AS a, B.n AS b FROM A JOIN B ON A.k = B.k {TWO}"
CHAIN = f"SELECT A.n AS a, B.n AS b, C.n AS c FROM A JOIN B ON A.k = B.k JOIN C ON B.j = C.j WHERE A.n > 2 {HOP}"
COUNT = f"SELECT COUNT(*) AS many FROM A JOIN B ON A.k = B.k {TWO}"
FACTORIZED = f"SELECT A.n AS a, C.n AS c FROM A JOIN C ON A.j = C.j {TWO} EMIT FACTORIZED"
SUMS = f"SELECT A.k, COUNT(*) AS many, SUM(A.n) AS total FROM A GROUP BY A.k {HOP}"
SESSION = "SELECT C.k, COUNT(*) AS many, MAX(C.n) AS most FROM C GROUP BY C.k WINDOW SESSION (1 SECOND)"
GROUPED = f"SELECT B.j, SUM(A.n) AS total FROM A JOIN B ON A.k = B.k GROUP BY B.j HAVING COUNT(*) > 1 {TWO}"
LATER = f"SELECT A.n AS a, B.n AS b FROM A JOIN B ON A.k = B.k WHERE B.j = 1 {HOP}"
CHANGES: dict[int, list[Line]] = {
    0: [
        {"create": "pair", "sql": PAIR},
        {"create": "chain", "sql": CHAIN},
        {"create": "count", "sql": COUNT},
        {"create": "sums", "sql": SUMS},
        {"create": "session", "sql": SESSION},
    ],
    1: [{"create": "grouped", "sql": GROUPED}],
    2: [{"force": {"query": "chain", "order": ["A", ["B", "C"]]}}, {"create": "later", "sql": LATER}],
    3: [
        {"force": {"groups": {"pair": 0, "chain": 1, "count": 0, "later": 0, "sums": 1, "session": 0, "grouped": 1}}},
        {"scale": {"partitions": 3}},
    ],
    4: [{"delete": "pair"}, {"create": "factorized", "sql": FACTORIZED}, {"optimize": "full"}],
    5: [
        {"force": {"query": "chain", "order": [["A", "B"], "C"]}},
        {"scale": {"split": {"partition": 1, "ways": 2}}},
        {"delete": "nobody", "expect_error": True},
    ],
}
EPOCHS = 7


def lines() -> list[Line]:
    rng = Random(5)
    timing = {"watermark_delay_ms": 700, "allowed_lateness_ms": 300, "max_ahead_ms": 1 << 58}
    told: list[Line] = [{"stream": s, "schema": COLUMNS, "time": "ts", **timing} for s in "ABC"]
    for epoch in range(EPOCHS):
        told += CHANGES.get(epoch, [])
        for n in range(5):
            for stream in "ABC":
                late = 4_000 if epoch > 3 and n == 4 else 0
                ts = 1000 * epoch + rng.randrange(1000) - late
                row = {"k": rng.randrange(4), "j": rng.randrange(3), "n": 6 * epoch + n, "ts": ts}
                told.append({"event": stream, "row": row})
        told.append({"event": "ABC"[epoch % 3], "row": {"k": 1, "j": 1, "n": 0, "ts": 1 << 59}})  # too far ahead
        if epoch == 5:
            told.append({"watermark": "C", "ts": 5_500})
        told.append({"epoch": True})
    return told


@cache
def expected() -> Expected:
    return run_oracle(lines())


def scenario(told: list[Line]) -> Scenario:
    """As `ajoin replay` reads it, without a file."""
    return Scenario(Path("story"), tuple(parse(io.BytesIO(describe(told).encode()), Path())))


PACE = 400
"""Rows a query may make in an epoch: some epochs postpone work."""

PASSING = {"stream": "X", "schema": {"n": "INT", "ts": "TIMESTAMP"}, "time": "ts"}


def tell(
    folder: Path, deaths: Iterable[Death] = (), *, store: str | None = None, **config: Any
) -> tuple[Survivor, list[str]]:
    """The story, and what differs from the oracle in the end. `store`: a kind of store (path or opaque); with every
    death the local directory is lost."""
    state = folder / "state"
    if store is not None:
        load(("tests.tools.opaque_store",))
        config["store"] = f"{'opaque://' if store == 'opaque' else ''}{folder / 'store'}"
    settings = EngineConfig(
        **{
            "partitions": 2,
            "snapshot_every": 7,
            "retention_epochs": 2,
            "delivery": InStep,
            "pacing": Pacing(PACE, max_behind=1 << 30),
        }
        | config
    )
    executor = LocalExecutor()
    survivor = Survivor(
        lambda: Engine.open(state, executor, settings, lambda: 0),
        deaths,
        folder / "sink",
        (lambda: shutil.rmtree(state)) if store else lambda: None,
    )
    (declare,) = scenario([PASSING]).steps
    batch = scenario([PASSING, {"event": "X", "row": {"n": 1, "ts": 5}}, {"epoch": True}]).steps[1:]
    try:
        for step in (declare, *batch):
            survivor.take(step)
        survivor.delete_stream("X")
        survivor.take(declare)  # the same name, another stream: what the first one was told is not its business
        survivor.play(scenario(lines()))
        wrong = survivor.differences(expected())
        if (seen := survivor.engine.stream("X").tuples) != 0:
            wrong.append(f"stream X has {seen} tuples of the stream that had its name before")
        return survivor, wrong
    finally:
        survivor.stop()
