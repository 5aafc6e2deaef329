"""The victim of test_kill: an engine on three generators that runs one epoch for every line it reads.

    python -m tests.runtime.kill_target DIRECTORY

It says "open" before it opens its state directory, and the number of every epoch it has committed. Queries come and the
plan changes at fixed epochs; after a restart it does what is still to be done.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ajoin.sql import parse_query
from optimizer.errors import AJoinError
from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.api import Control, CreateQuery, ForceOrder, ScaleTo
from runtime.connectors.base import ConnectorSpec
from runtime.engine.config import EngineConfig
from runtime.engine.engine import Engine
from runtime.execution.executor import LocalExecutor

TUPLES = 600
BATCH = 20
HOP = "WINDOW HOPPING (SIZE 400 MILLISECONDS, ADVANCE BY 150 MILLISECONDS)"
SQL = {
    "q1": "SELECT A.n AS a, B.n AS b FROM A JOIN B ON A.k = B.k WINDOW TUMBLING (SIZE 300 MILLISECONDS)",
    "q2": f"SELECT A.n AS a, B.n AS b, C.n AS c FROM A JOIN B ON A.k = B.k JOIN C ON B.s = C.s {HOP}",
    "q3": f"SELECT B.n AS b, C.n AS c FROM B JOIN C ON B.s = C.s AND B.k = C.k {HOP}",
}
CREATED = {"q1": 0, "q2": 0, "q3": 7}
"""Before which epoch each query is created, counted in committed epochs."""


class TwoCores(LocalExecutor):
    """Lets the source stage of the next epoch run ahead, in a thread."""

    cores = 2


def schema(name: str) -> StreamSchema:
    columns = (("k", "BIGINT"), ("s", "STRING"), ("n", "BIGINT"), ("ts", "TIMESTAMP"))
    typed = tuple(Column(c, ColumnType(t)) for c, t in columns)
    return StreamSchema(name, typed, "ts", watermark_delay_ms=100)


def generator(name: str) -> ConnectorSpec:
    """Disorder within the watermark's delay, so that no tuple is late, whatever the epochs' ends are."""
    options = {
        "rate": "max", "batch": str(BATCH), "limit": str(TUPLES), "seed": str(ord(name)), "event_rate": "200",
        "start_ms": "0", "disorder_ms": "100", "partitions": "2",
        "column.k": "uniform(0,5)", "column.n": "seq",
    }  # fmt: skip
    return ConnectorSpec("generator", tuple(options.items()))


def open_engine(directory: Path) -> Engine:
    config = EngineConfig(partitions=2, snapshot_every=9)
    engine = Engine.open(directory, TwoCores(), config, lambda: 0)
    for name in "ABC":
        if name not in engine.schemas():
            engine.create_stream(schema(name), generator(name))
    return engine


def changes(engine: Engine) -> list[Control]:
    """What is due before the next epoch and has not happened yet."""
    there = {q.id for q in engine.queries()}
    due: list[Control] = [
        CreateQuery(id, parse_query(sql, engine.schemas()))
        for id, sql in SQL.items()
        if id not in there and CREATED[id] <= engine.epoch
    ]
    if engine.epoch % 5 == 4:
        due.append(ForceOrder("q2", ("A", ("B", "C")) if engine.epoch % 10 == 4 else (("A", "B"), "C")))
    if engine.epoch % 8 == 6:
        due.append(ScaleTo(1 + engine.epoch % 3))
    return due


def step(engine: Engine) -> bool:
    """What is due, and one epoch; False when the generators have nothing more to give."""
    for outcome in engine.apply(changes(engine)):
        if isinstance(outcome, AJoinError):
            raise outcome
    if not engine.has_input():
        return False
    engine.run_epoch()
    return True


if __name__ == "__main__":
    print("open", flush=True)
    victim = open_engine(Path(sys.argv[1]))
    print(victim.epoch, flush=True)
    for _ in sys.stdin:
        step(victim)
        print(victim.epoch, flush=True)
