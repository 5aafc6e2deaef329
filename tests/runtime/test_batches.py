"""Rows that are made together for many queries are the rows each would have got alone."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest

from runtime.operators import batches
from runtime.results.log import ResultLog
from runtime.results.segment import SegmentFolder, SegmentWriter
from tests.runtime.rig import Rig

SELECTED = ("A.n AS a, B.n AS b", "A.n + B.n AS sum, A.s AS s", "B.s AS s, window_start")
WINDOWS = ("TUMBLING (SIZE 1 SECOND)", "HOPPING (SIZE 3 SECONDS, ADVANCE BY 1 SECOND)")
WHERE = ("A.n % {0} = 0", "A.n % {0} = 0 AND A.n < B.n", "A.n % {0} = 0 AND B.s IS NULL")


def sql(number):
    selected, window, where = SELECTED[number % 3], WINDOWS[number % 2], WHERE[number // 3 % 3]
    on = "A.s = B.s" if number % 4 == 3 else "A.k = B.k"
    return f"SELECT {selected} FROM A JOIN B ON {on} WHERE {where.format(1 + number % 5)} WINDOW {window}"


def lived(path, numbers):
    rig = Rig(path, partitions=2)
    for name in "AB":
        rig.stream(name, k="BIGINT", n="INT", s="STRING")
    for number in numbers:
        rig.create(f"q{number}", sql(number))
    rng = Random(5)
    for epoch in range(4):
        rows = [(rng.randrange(4), n, rng.choice(("x", "yy", None)), 1000 * epoch + 100 * n) for n in range(9)]
        rig.epoch({"A": rows, "B": rows[::-1]})
    return {n: [row for b in rig.engine.read_results(f"q{n}", None, 1 << 20) for row in plain(b)] for n in numbers}


def plain(batch):
    return [tuple(row.values()) for row in batch.rows.to_pylist()]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return {n: lived(tmp_path_factory.mktemp("alone"), [n])[n] for n in range(36)}


@pytest.mark.parametrize("together", [1, 7, batches.TOGETHER])
def test_together_as_alone(tmp_path, monkeypatch, alone, together):
    monkeypatch.setattr(batches, "TOGETHER", together)
    found = lived(tmp_path, range(36))
    assert sum(map(len, alone.values())) > 1000 and sum(1 for rows in alone.values() if rows) > 30
    assert {n: sorted(map(repr, rows)) for n, rows in found.items()} == {
        n: sorted(map(repr, rows)) for n, rows in alone.items()
    }


def test_small_and_large_batches_are_written_as_the_same_kind_of_stream(tmp_path):
    """Small ones are put together here, large ones by Arrow; slices do not bring their neighbours along."""
    writer = SegmentWriter(SegmentFolder(str(tmp_path), "p"), "s")
    big = pa.record_batch({"x": pa.array(range(100_000)), "s": pa.array([str(i) for i in range(100_000)])})
    other = pa.record_batch({"y": pa.array([1.5, None])}).replace_schema_metadata({"about": "it"})
    batches = [big.slice(10, 3), big, other, big.slice(99_999, 1), other.slice(1, 1)]
    for i, batch in enumerate(batches):
        writer.append(f"q{i}#1", batch)
    done = writer.finish()
    assert done is not None and done.segment.rows == 100_007
    log = ResultLog(tmp_path)
    for i, (entry, batch) in enumerate(zip(log.index(1, done.segment), batches, strict=True)):
        found = log._load(1, done.segment, entry)
        assert found.equals(batch) and found.schema.equals(batch.schema, check_metadata=True), i
        assert entry.rows == batch.num_rows and (batch.num_rows > 10 or entry.length < 1500)
