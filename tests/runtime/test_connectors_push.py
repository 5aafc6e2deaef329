"""The push source: what was accepted is there after a restart, once, in order."""

from __future__ import annotations

import pickle
from datetime import datetime
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from optimizer.errors import InternalError, InvalidRequest, NotFound
from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.connectors.base import ConnectorSpec
from runtime.connectors.push import PushSource, batches_in
from runtime.connectors.registry import make_source

SCHEMA = StreamSchema("S", (Column("ts", ColumnType.TIMESTAMP), Column("n", ColumnType.BIGINT)), time="ts")


def numbers(source: PushSource, start: int, end: int) -> list[int]:
    reads = pickle.loads(pickle.dumps(source.reads(start, end)))
    return [n for r in reads for n in r.load(SCHEMA).table["n"].to_pylist()]


def test_segments_in_order_over_restarts(tmp_path):
    source = PushSource(tmp_path)
    assert source.latest(source.initial(), 0) == 0
    assert source.append_rows([{"ts": 1, "n": 1}, {"ts": 1, "n": 2}]) == 1
    assert source.append_table(pa.table({"n": pa.array([3], pa.int32()), "ts": [5]})) == 2
    assert source.append_rows([]) == 2
    again = PushSource(tmp_path)
    assert again.latest(0, 0) == 2
    assert again.append_rows([{"n": 4}]) == 3
    assert len(again.reads(0, 3)) == 3
    assert numbers(again, 0, 3) == [1, 2, 3, 4]
    assert numbers(again, 1, 2) == [3]


def test_broken_rows_survive_until_they_are_read(tmp_path):
    source = PushSource(tmp_path)
    cycle: list[object] = []
    cycle.append(cycle)
    source.append_rows([{"n": 1}, 5, {"n": "x"}, {"n": datetime(2024, 1, 1)}, {"n": cycle}, None, {"n": np.int64(2)}])
    [read] = source.reads(0, 1)
    loaded = read.load(SCHEMA)
    assert loaded.table["n"].to_pylist() == [1, 2]
    assert [d.place for d in loaded.dead] == [f"pushed batch 0 line {n}" for n in (2, 3, 4, 5, 6)]
    assert "datetime" in loaded.dead[2].text


def test_trim_deletes_and_never_reuses_a_number(tmp_path):
    source = PushSource(tmp_path)
    for n in range(4):
        source.append_rows([{"n": n}])
    source.trim([5, 3])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["0000000003.jsonl", "trimmed"]
    assert numbers(PushSource(tmp_path), 3, 4) == [3]
    source.trim([4])
    again = PushSource(tmp_path)
    assert again.latest(4, 0) == 4
    assert again.append_rows([{"n": 4}]) == 5
    assert numbers(again, 4, 5) == [4]
    with pytest.raises(InternalError, match="segment 3"):
        again.reads(3, 5)


@pytest.mark.parametrize("mark", [b"", b"4", b"no number", b"deadbeef 4\n"])
def test_a_damaged_mark_is_said_and_no_number_is_used_twice(tmp_path, mark, caplog):
    source = PushSource(tmp_path)
    for n in range(4):
        source.append_rows([{"n": n}])
    source.trim([4])
    (tmp_path / "trimmed").write_bytes(mark)
    again = PushSource(tmp_path)
    assert str(tmp_path / "trimmed") in caplog.text and "damaged" in caplog.text
    again.begin(4)  # the log knows
    assert again.append_rows([{"n": 4}]) == 5


def test_names_that_are_no_batches_are_left_alone(tmp_path):
    PushSource(tmp_path).append_rows([{"n": 1}])
    for name in ("0000000000.jsonl~", "2024 notes.txt", "1.jsonl", "0000000007.bak"):
        (tmp_path / name).write_text("?")
    assert PushSource(tmp_path).latest(0, 0) == 1


def test_an_unfinished_segment_is_none(tmp_path):
    (tmp_path / ".0000000000.jsonl.tmp").write_bytes(b'{"n": 1')
    source = PushSource(tmp_path)
    assert source.latest(0, 0) == 0
    source.append_rows([{"n": 7}])
    assert numbers(source, 0, 1) == [7]


def test_files_are_kept_as_they_are(tmp_path):
    pq.write_table(pa.table({"n": [1, 2]}), tmp_path / "a.parquet")
    (tmp_path / "b.jsonl").write_bytes(b'{"n": 3}\nbroken\n')
    (tmp_path / "c.csv").write_bytes(b"n\n4\n")
    source = PushSource(tmp_path / "push")
    for name in ("a.parquet", "b.jsonl", "c.csv"):
        source.append_file(tmp_path / name)
        (tmp_path / name).unlink()
    assert numbers(source, 0, 3) == [1, 2, 3, 4]
    assert [d.place for d in source.reads(1, 2)[0].load(SCHEMA).dead] == ["pushed batch 1 line 2"]
    with pytest.raises(NotFound):
        source.append_file(tmp_path / "a.parquet")
    with pytest.raises(InvalidRequest, match="format"):
        source.append_file(tmp_path / "a.xyz")


def test_from_the_registry(tmp_path):
    source = make_source(ConnectorSpec("push"), SCHEMA, tmp_path)
    assert isinstance(source, PushSource)
    source.append_rows([{"n": 1}])
    assert make_source(ConnectorSpec("push"), SCHEMA, tmp_path).latest(0, 0) == 1


@pytest.mark.parametrize("seed", range(30))
def test_a_damaged_table_is_a_dead_letter_and_kills_nobody(tmp_path, seed):
    """Arrow does not look whether a table points outside of its own buffers; reading on would end the process."""
    source = PushSource(tmp_path)
    source.append_table(pa.table({"n": pa.array(range(50), pa.int32()), "ts": list(range(50))}))
    (path,) = batches_in(tmp_path).values()
    rng, data = Random(seed), bytearray(path.read_bytes())
    for _ in range(8):
        data[rng.randrange(len(data))] = rng.randrange(256)
    path.write_bytes(data)
    (read,) = source.reads(0, 1)
    loaded = read.load(SCHEMA)
    assert loaded.table.num_rows + len(loaded.dead) >= 1
    assert all(letter.place.startswith("pushed batch 0") for letter in loaded.dead)
