"""Queries without SQL: what tests of the lower layers build their cases from.

`join_query("V", "W", on=["V.vID = W.vID"])` is a bound query over the paper's four streams; `q1()`, `q2()`
and `q3()` are the queries of Figure 1. The strategies at the end draw random queries over the same streams.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from optimizer.model.expressions import ColumnRef, Compare, Expr, Literal, Value
from optimizer.model.plan import RunningQuery
from optimizer.model.query import EquiPredicate, Output, Query, Source
from optimizer.model.types import Column, ColumnType, StreamSchema, common_type
from optimizer.model.windows import PeriodicWindow

_TYPES = {
    bool: ColumnType.BOOLEAN,
    int: ColumnType.BIGINT,
    float: ColumnType.DOUBLE,
    str: ColumnType.STRING,
}


def stream(name: str, time: str = "time", **columns: str) -> StreamSchema:
    """`stream("V", vID="BIGINT")`; the event-time column is added at the end."""
    typed = [Column(c, ColumnType(t)) for c, t in columns.items()]
    return StreamSchema(name, (*typed, Column(time, ColumnType.TIMESTAMP)), time)


PAPER: Mapping[str, StreamSchema] = {
    s.name: s
    for s in (
        stream("V", vID="BIGINT", length="INT", geo="STRING", lang="STRING"),
        stream("W", usrID="BIGINT", vID="BIGINT", duration="INT", geo="STRING"),
        stream("C", usrID="BIGINT", comment="STRING", length="INT", photo="BOOLEAN", emojis="INT"),
        stream("R", usrID="BIGINT", reaction="STRING"),
    )
}


def literal(value: Value, type: ColumnType | None = None) -> Literal:
    return Literal(value, type or _TYPES[value.__class__])


def compare(left: ColumnRef, op: str, value: Value) -> Compare:
    kind = left.type if left.type == ColumnType.TIMESTAMP else None
    return Compare(op, left, literal(value, kind))


def join_query(
    *sources: str,
    on: Sequence[str],
    where: Sequence[tuple[str, str, Value]] = (),
    residual: Sequence[Expr] = (),
    select: Sequence[str] = (),
    window: PeriodicWindow | tuple[int, int] | int = 1000,
    schemas: Mapping[str, StreamSchema] = PAPER,
    sql: str = "",
) -> Query:
    """Sources are "V" or "V a" (stream, alias); `on` holds "a.x = b.y"; `where` holds ("a.x", "<", 10), at
    most one each.

    Without `select` every column is an output, named `alias.column`.
    """
    named = tuple(Source(words[-1], words[0]) for words in (s.split() for s in sources))
    streams = {s.alias: schemas[s.stream] for s in named}

    def column(text: str) -> ColumnRef:
        alias, name = text.strip().split(".")
        found = streams[alias].column(name)
        assert found is not None, f"{streams[alias].name} has no column {name}"
        return ColumnRef(alias, name, found.type)

    def equality(text: str) -> EquiPredicate:
        left, right = (column(side) for side in text.split("="))
        kind = common_type(left.type, right.type)
        assert kind is not None, f"{text}: {left.type} and {right.type}"
        return EquiPredicate(left, right, kind)

    if isinstance(window, int):
        window = (window, window)
    every = [f"{a}.{c.name}" for a, schema in streams.items() for c in schema.columns]
    return Query(
        sql=sql,
        sources=named,
        window=window if isinstance(window, PeriodicWindow) else PeriodicWindow(*window),
        selections=tuple((text.split(".")[0], compare(column(text), op, v)) for text, op, v in where),
        equi=tuple(equality(text) for text in on),
        residual=tuple(residual),
        outputs=tuple(Output(text, column(text)) for text in (select or every)),
    )


def running(id: str, query: Query, *, uid: str | None = None, active_from: int | None = None) -> RunningQuery:
    return RunningQuery(uid or id, id, query, active_from)


# -- Figure 1 ------------------------------------------------------------


def q1(id: str = "q1") -> RunningQuery:
    """Machine learning: English videos watched in Germany."""
    where = [("V.lang", "=", "ENG"), ("W.geo", "=", "GER")]
    return running(id, join_query("V", "W", on=["V.vID = W.vID"], where=where, window=1000))


def q2(id: str = "q2") -> RunningQuery:
    """Editorial team: comments a few seconds after watching a US video. FROM order as in the figure."""
    where = [("V.geo", "=", "US"), ("W.duration", "<", 10), ("C.length", ">", 5)]
    on = ["V.vID = W.vID", "W.usrID = C.usrID"]
    return running(id, join_query("V", "W", "C", on=on, where=where, window=2000))


def q3(id: str = "q3") -> RunningQuery:
    """Quality assurance: angry reactions and emojis in comments to videos watched in Europe."""
    where = [("W.geo", "=", "EU"), ("C.emojis", ">", 0), ("R.reaction", "=", "angry")]
    on = ["W.usrID = C.usrID", "C.usrID = R.usrID"]
    return running(id, join_query("W", "C", "R", on=on, where=where, window=3000))


# -- random queries ------------------------------------------------------------


def _joinable(a: StreamSchema, b: StreamSchema) -> list[tuple[str, str]]:
    return [(x.name, y.name) for x in a.columns for y in b.columns if common_type(x.type, y.type)]


@st.composite
def join_queries(draw: st.DrawFn, *, max_sources: int = 5) -> Query:
    """Connected by construction: a random spanning tree of equalities and up to two more; self-joins too."""
    streams = draw(st.lists(st.sampled_from(sorted(PAPER)), min_size=2, max_size=max_sources))
    aliases = [f"a{i}" for i in range(len(streams))]

    def equality(i: int, j: int) -> str:
        pairs = _joinable(PAPER[streams[i]], PAPER[streams[j]])
        # few different equalities, so that queries have something in common
        x, y = draw(st.sampled_from(pairs[:3]))
        return f"{aliases[i]}.{x} = {aliases[j]}.{y}"

    on = [equality(draw(st.integers(0, j - 1)), j) for j in range(1, len(streams))]
    for _ in range(draw(st.integers(0, 2))):
        i, j = draw(st.lists(st.integers(0, len(streams) - 1), min_size=2, max_size=2, unique=True))
        on.append(equality(i, j))
    where = [
        (f"{a}.time", draw(st.sampled_from(["<", ">="])), draw(st.integers(0, 9)))
        for a in draw(st.lists(st.sampled_from(aliases), unique=True, max_size=2))
    ]
    advance = draw(st.integers(1, 4))
    window = PeriodicWindow(advance * draw(st.integers(1, 3)), advance)
    return join_query(*(f"{s} {a}" for s, a in zip(streams, aliases, strict=True)), on=on, where=where, window=window)


@st.composite
def running_queries(draw: st.DrawFn, *, max_queries: int = 8, max_sources: int = 5) -> list[RunningQuery]:
    queries = draw(st.lists(join_queries(max_sources=max_sources), min_size=1, max_size=max_queries))
    return [running(f"q{i}", q, uid=f"u{i:02}") for i, q in enumerate(queries)]
