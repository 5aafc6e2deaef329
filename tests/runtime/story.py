"""A fixed story with every kind of stage in it, told step by step to an engine that may die at any moment.

A step that was cut off is taken again after the restart only if it left no trace: that is what a client would do that
asks the platform before it repeats itself. What was delivered is compared with the oracle, which knows nothing of
crashes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from random import Random
from typing import Any

from ajoin.sql import parse_query
from optimizer.errors import AJoinError
from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.api import Control, CreateQuery, DeleteQuery, ForceGroups, ForceOrder, ScaleTo
from runtime.connectors.base import ConnectorSpec
from runtime.engine.engine import Engine
from tests.oracle import Expected, check, run_oracle
from tests.runtime.rig import plain

Line = dict[str, Any]
COLUMNS = {"k": "BIGINT", "j": "BIGINT", "n": "INT", "ts": "TIMESTAMP"}
HOP = "WINDOW HOPPING (SIZE 3 SECONDS, ADVANCE BY 1 SECOND)"
SQL = {
    "q1": "SELECT A.n AS a, B.n AS b FROM A JOIN B ON A.k = B.k WINDOW TUMBLING (SIZE 2 SECONDS)",
    "q2": f"SELECT A.n AS a, B.n AS b, C.n AS c FROM A JOIN B ON A.k = B.k JOIN C ON B.j = C.j WHERE A.n > 2 {HOP}",
    "q3": f"SELECT A.n AS a, B.n AS b FROM A JOIN B ON A.k = B.k WHERE B.j = 1 {HOP}",
}


def story() -> list[Line]:
    rng = Random(5)
    lines: list[Line] = [{"stream": s, "schema": COLUMNS, "time": "ts", "watermark_delay_ms": 700} for s in "ABC"]
    changes: dict[int, list[Line]] = {
        0: [{"create": "q1", "sql": SQL["q1"]}, {"create": "q2", "sql": SQL["q2"]}],
        2: [{"force": {"query": "q2", "order": ["A", ["B", "C"]]}}, {"create": "q3", "sql": SQL["q3"]}],
        3: [{"force": {"groups": {"q1": 0, "q2": 1, "q3": 0}}}, {"scale": {"partitions": 3}}],
        4: [{"delete": "q1"}, {"force": {"query": "q2", "order": [["A", "B"], "C"]}}],
    }
    for epoch in range(5):
        lines += changes.get(epoch, [])
        for n in range(6):
            for stream in "ABC":
                ts = 1000 * epoch + rng.randrange(1000)
                row = {"k": rng.randrange(3), "j": rng.randrange(2), "n": 6 * epoch + n, "ts": ts}
                lines.append({"event": stream, "row": row})
        lines.append({"epoch": True})
    return lines


@cache
def expected() -> Expected:
    return run_oracle(story())


class Crash(BaseException):
    """The process is gone. Not an Exception: nothing may catch it."""


def tell(opener: Callable[[], Engine], crashes: tuple[type[BaseException], ...] = (Crash,)) -> Engine:
    """The whole story; whenever the engine dies, it is opened again and the story goes on where it was."""
    engine, pending, epochs = None, dict[str, list[Any]](), 0

    def survive(done: Callable[[Engine], bool], act: Callable[[Engine], Any]) -> None:
        nonlocal engine
        while True:
            try:
                if engine is None:
                    engine = opener()
                if not done(engine):
                    act(engine)
                return
            except crashes:
                if engine is not None:
                    engine.abandon()
                engine = None

    for line in story():
        if "event" in line:
            pending.setdefault(line["event"], []).append(line["row"])
        elif "epoch" in line:
            epochs += 1
            for stream, rows in pending.items():
                survive(partial(_pushed, stream, epochs), lambda e, s=stream, r=rows: e.push(s, r))
            pending.clear()
            survive(lambda e, n=epochs: e.epoch >= n, lambda e: e.run_epoch())
        elif "stream" in line:
            columns = tuple(Column(c, ColumnType(t)) for c, t in line["schema"].items())
            schema = StreamSchema(line["stream"], columns, line["time"], line["watermark_delay_ms"])
            survive(
                lambda e, s=schema: s.name in e.schemas(),
                lambda e, s=schema: e.create_stream(s, ConnectorSpec("push", ())),
            )
        else:
            survive(lambda e, x=line: _seen(e, x), lambda e, x=line: _apply(e, x))
    assert engine is not None
    return engine


def wrong(engine: Engine) -> list[str]:
    """Differences between what the engine's result log holds and what the oracle says."""
    rows = {
        q.id: [
            {"window_start": r[0], "window_end": r[1], "row": dict(zip(q.outputs, r[2:], strict=True))}
            for batch in engine.read_results(q.id, None, 1 << 30)
            for r in plain(batch.rows)
        ]
        for q in engine.queries()
    }
    told = {
        q.id: {"state": q.state, "active_from": q.active_from, "active_until": q.active_until, "rows": q.rows}
        for q in engine.queries()
    }
    return check(expected(), rows, told)


def _pushed(stream: str, batches: int, engine: Engine) -> bool:
    """Were so many batches pushed already? The source's own offset tells."""
    return int(engine._sources[stream].latest(0, 0)) >= batches


def _seen(engine: Engine, line: Line) -> bool:
    """Did this change take effect already? Forcing and scaling may simply be repeated."""
    states = {q.id: q.state for q in engine.queries()}
    if "create" in line:
        return line["create"] in states
    return "delete" in line and states[line["delete"]] == "DELETED"


def _apply(engine: Engine, line: Line) -> None:
    (outcome,) = engine.apply([_control(engine, line)])
    if isinstance(outcome, AJoinError):
        raise outcome


def _control(engine: Engine, line: Line) -> Control:
    if "create" in line:
        return CreateQuery(line["create"], parse_query(line["sql"], engine.schemas()))
    if "delete" in line:
        return DeleteQuery(line["delete"])
    if "scale" in line:
        return ScaleTo(line["scale"]["partitions"])
    if "groups" in line["force"]:
        return ForceGroups(tuple(line["force"]["groups"].items()))
    return ForceOrder(line["force"]["query"], line["force"]["order"])
