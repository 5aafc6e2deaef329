"""Damaged result segments cannot be made again: they are named and never shown."""

from __future__ import annotations

import re
import shutil
from random import Random

import pyarrow.parquet as pq
import pytest

from ajoin.sql import parse_query
from optimizer.errors import InternalError
from runtime.api import CreateQuery, Cursor
from runtime.connectors.base import ConnectorSpec
from runtime.state_tools.verify import verify
from tests.runtime.damage_world import HOP, joining
from tests.runtime.rig import Rig, plain


@pytest.mark.parametrize("seed", range(12))
def test_damaged_results_are_named_and_never_shown(tmp_path, seed):
    rig, rng = joining(tmp_path), Random(seed)
    epoch, segments = next(iter(rig.engine.state.segments.items()))
    entry = rig.engine.parts.results.index(epoch, segments[0]).entries[0]
    path = tmp_path / "results" / segments[0].file
    raw = bytearray(path.read_bytes())
    if seed == 0:
        path.unlink()
    elif seed < 4:
        path.write_bytes(raw[: entry.offset + rng.randrange(entry.length)])
    else:
        raw[entry.offset + rng.randrange(entry.length)] ^= 1 << rng.randrange(8)
        path.write_bytes(raw)
    id = entry.uid.rpartition("#")[0]
    for look in (lambda: rig.rows(id), lambda: list(rig.engine.delivered(epoch))):
        with pytest.raises(InternalError) as caught:
            look()
        assert caught.value.reason == "RESULTS_DAMAGED"
        assert segments[0].file in str(caught.value) and repr(id) in str(caught.value)


def world(path, **config):
    """Three epochs, each with rows of `all` in every one of four segments, of `first` in epoch 1 only."""
    rig = Rig(path, partitions=4, **config)
    for name in "AB":
        rig.stream(name, k="BIGINT", n="INT")
    sql = "SELECT A.k AS k, B.n AS n FROM A JOIN B ON A.k = B.k {} WINDOW TUMBLING (SIZE 100 SECONDS)"
    rig.create("all", sql.format(""))
    rig.create("first", sql.format("WHERE A.n = 1"))
    for epoch in (1, 2, 3):
        rig.epoch({s: [(k, epoch, epoch) for k in range(40 * epoch, 40 * epoch + 40)] for s in "AB"})
    return rig


def read_on(rig, id):
    """Everything that can be read, going on after each damaged place; and what was said."""
    rows, said, after = [], [], None
    while True:
        try:
            batches = rig.engine.read_results(id, after, 2)
        except InternalError as e:
            assert e.reason == "RESULTS_DAMAGED"
            said.append(e)
            after = Cursor(*map(int, re.search(r"the cursor (\d+):(\d+)", e.hint).groups()))
            continue
        if not batches:
            return sorted(rows), said
        rows += [r for b in batches for r in plain(b.rows)]
        after = batches[-1].cursor


def spoil_index(path, segment):
    raw = bytearray(path.read_bytes())
    raw[segment.bytes - segment.index // 2] ^= 1
    path.write_bytes(raw)


@pytest.mark.parametrize("number", [0, 1, 3])
@pytest.mark.parametrize("epoch", [1, 2, 3])
def test_a_damaged_index_stops_only_those_who_read_what_is_damaged(tmp_path, epoch, number):
    rig = world(tmp_path)
    whole, first = rig.rows("all"), rig.rows("first")
    segments = rig.engine.state.segments[epoch]
    assert len(segments) == 4
    spoil_index(tmp_path / "results" / segments[number].file, segments[number])
    rig.reopen()
    rows, (said,) = read_on(rig, "all")
    assert segments[number].file in said.message and f"epoch {epoch}" in said.message
    assert len(rows) < len(whole) and set(rows) < set(whole)
    lost = segments[number].rows - (len(first) - len(read_on(rig, "first")[0]))
    assert len(rows) == len(whole) - lost, "all other segments are read, each row once"
    if epoch > 1:
        assert rig.rows("first") == first, "it had its last rows before"
    rig.epoch({"A": [(7, 9, 9)], "B": [(7, 9, 9)]})
    assert (0, 100_000, 7, 9) in read_on(rig, "all")[0], "the query goes on"


def test_a_cursor_behind_damage_means_the_same_when_the_file_is_back(tmp_path):
    rig = world(tmp_path)
    whole, segments = rig.rows("all"), rig.engine.state.segments[2]
    path = tmp_path / "results" / segments[1].file
    saved = path.read_bytes()
    path.unlink()
    rig.reopen()
    with pytest.raises(InternalError) as caught:
        rig.rows("all")
    after = Cursor(*map(int, re.search(r"the cursor (\d+):(\d+)", caught.value.hint).groups()))
    (one,) = rig.engine.read_results("all", after, 1)
    path.write_bytes(saved)
    rest = rig.engine.read_results("all", one.cursor, 1 << 30)
    assert [b.cursor for b in rest] == sorted(b.cursor for b in rest)
    again = rig.engine.read_results("all", after, 1 << 30)
    assert [b.cursor for b in again] == [one.cursor, *(b.cursor for b in rest)]
    assert rig.rows("all") == whole


def test_losing_the_results_folder_is_told_per_query_and_the_queries_go_on(tmp_path, caplog):
    rig = world(tmp_path)
    rig.engine.close()
    shutil.rmtree(tmp_path / "results")
    notes = verify(tmp_path).notes
    rig.engine = rig._open()
    for id, last in (("all", 3), ("first", 1)):
        said = f"query {id!r} has lost results of epochs 1 to {last}"
        assert said in notes and said in caplog.text
    rig.epoch({"A": [(7, 9, 9)], "B": [(7, 9, 9)]})
    rows, (told,) = read_on(rig, "all")
    assert rows and all(9 in r for r in rows)
    assert "query 'all' of epochs 1 to 3 are lost" in told.message
    rows, (told,) = read_on(rig, "first")
    assert rows == [] and "query 'first' of epochs 1 to 1 are lost" in told.message


def test_rows_that_a_sink_still_waits_for_are_not_forgotten(tmp_path):
    rig = Rig(tmp_path / "state", allowed_roots=(tmp_path,))
    for name in "AB":
        rig.stream(name, k="BIGINT", n="INT")
    out = tmp_path / "out"
    out.write_text("not a folder")
    sql = f"SELECT A.n AS a, B.n AS b FROM A JOIN B ON A.k = B.k {HOP}"
    sink = ConnectorSpec("parquet", (("path", str(out)),))
    rig.control(CreateQuery("q", parse_query(sql, rig.engine.schemas()), (sink,)))
    rig.epoch({"A": [(1, 1, 100)], "B": [(1, 1, 200)]})
    (segment,) = rig.engine.state.segments[1]
    file = rig.directory / "results" / segment.file
    rig.engine.close()
    out.unlink()
    saved = file.read_bytes()
    file.unlink()
    rig.engine = rig._open()
    (waiting,) = rig.engine.query("q").deliveries
    assert segment.file in waiting.error and waiting.rows_behind == rig.engine.query("q").rows > 0
    rig.epoch({"A": [(2, 2, 300)], "B": [(2, 2, 400)]})
    assert not out.exists(), "what comes later does not overtake what is missing"
    file.write_bytes(saved)
    rig.epoch()
    assert rig.engine.query("q").deliveries[0].error == ""
    assert len(pq.read_table(out / "q")) == rig.engine.query("q").rows > 0
