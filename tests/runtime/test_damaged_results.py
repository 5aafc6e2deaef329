"""Damaged result segments cannot be made again: they are named and never shown."""

from __future__ import annotations

from random import Random

import pyarrow.parquet as pq
import pytest

from ajoin.sql import parse_query
from optimizer.errors import InternalError
from runtime.api import CreateQuery
from runtime.connectors.base import ConnectorSpec
from tests.runtime.damage_world import HOP, joining
from tests.runtime.rig import Rig


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
