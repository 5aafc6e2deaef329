"""One hot key streams out in chunks: memory follows the chunk, not the number of its combinations."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ajoin.sql import parse_query
from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.api import CreateQuery
from runtime.connectors.base import ConnectorSpec
from runtime.engine.config import EngineConfig
from runtime.engine.engine import Engine
from runtime.execution.executor import LocalExecutor
from runtime.operators import matches, opening, sink


def run(directory: Path, sql: str, tuples: int, streams: str = "AB") -> tuple[int, int]:
    """(rows, distinct values) that one epoch with a single key delivers."""
    engine = Engine.open(directory, LocalExecutor(), EngineConfig(partitions=2), lambda: 0)
    for name in streams:
        columns = (Column("ts", ColumnType.TIMESTAMP), Column("k", ColumnType.BIGINT), Column("n", ColumnType.BIGINT))
        engine.create_stream(StreamSchema(name, columns, "ts"), ConnectorSpec("push"))
    engine.apply([CreateQuery("q", parse_query(sql, engine.schemas()))])
    for name in streams:
        engine.push(name, [{"ts": 1, "k": 7, "n": i} for i in range(tuples)])
    rows = engine.run_epoch().rows
    seen = set()
    for batch in engine.delivered(1):
        seen |= set(zip(*(batch.rows.column(c).to_pylist() for c in batch.rows.schema.names[2:]), strict=True))
    engine.close()
    return rows, len(seen)


TWO = "SELECT A.n AS a, B.n AS b FROM A JOIN B ON A.k = B.k WINDOW TUMBLING (SIZE 1 SECOND)"
THREE = (
    "SELECT A.n AS a, B.n AS b, C.n AS c FROM A JOIN B ON A.k = B.k JOIN C ON B.n = C.n WINDOW TUMBLING (SIZE 1 SECOND)"
)


@pytest.mark.parametrize("chunk", [1, 7, 64, 1 << 18])
def test_rows_do_not_depend_on_the_size_of_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(matches, "CHUNK", chunk)
    monkeypatch.setattr(sink, "FLUSH", chunk)
    monkeypatch.setattr(opening, "LARGEST", chunk)
    assert run(tmp_path / "two", TWO, 30) == (900, 900)
    assert run(tmp_path / "three", THREE, 12, "ABC") == (144, 144)


PROGRAM = """
import resource, sys
from pathlib import Path
from tests.runtime.test_hot_key import TWO, run
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
import runtime.machine.warm; runtime.machine.warm.warm_up()
base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
from runtime.engine.reads import EngineReads
EngineReads.delivered = lambda self, epoch: iter(())
rows, _ = run(Path(sys.argv[1]), TWO, int(sys.argv[2]))
print(rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base)
"""


def test_a_million_matches_of_one_key_fit_into_a_chunk_of_memory(tmp_path: Path) -> None:
    grown = {}
    for tuples in (1000, 3000):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(tmp_path / str(tuples)), str(tuples)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        rows, kilobytes = map(int, done.stdout.split())
        assert rows == tuples**2
        grown[tuples] = kilobytes
    # nine times as many rows, but not nine times the memory: chunks are of one size
    assert grown[3000] < 3 * max(grown[1000], 30_000), grown
