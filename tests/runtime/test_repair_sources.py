"""Buckets are made again from what their source still has; when it has it no more, the platform stops."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from optimizer.errors import InternalError, Unavailable
from runtime.connectors.base import ConnectorSpec
from runtime.connectors.push import PushRead
from runtime.engine.engine import Engine
from runtime.execution.executor import LocalExecutor
from tests.runtime.damage_world import TWO, finish, joining, kinds, remove, repairs, tuples
from tests.runtime.rig import Rig


def write_files(folder, epoch):
    folder.mkdir(exist_ok=True)
    for stream, rows in tuples(epoch).items():
        if stream != "C":
            k, _, n, ts = zip(*rows, strict=True)
            table = pa.table({"k": k, "n": pa.array(n, pa.int32()), "ts": pa.array(ts, pa.timestamp("ms"))})
            pq.write_table(table, folder / f"{stream}-{epoch}.parquet")


def reading_files(path, spoil=lambda rig: None):
    rig = Rig(path / "state", allowed_roots=(path,))
    write_files(path / "in", 0)
    for name in "AB":
        spec = ConnectorSpec("files", (("path", str(path / "in")), ("pattern", f"{name}-*.parquet")))
        rig.stream(name, spec, k="BIGINT", n="INT", delay=500)
    rig.create("q", TWO)
    for epoch in range(1, 5):
        rig.clock.now += 10_000
        rig.engine.run_epoch()
        if epoch == 3:
            spoil(rig)
        write_files(path / "in", epoch)
    rig.epoch(watermark=1 << 40)
    return rig


class Wide(LocalExecutor):
    """Says that it has two cores, so the next epoch is read while this one joins."""

    cores = 2


def generating(path, spoil=lambda rig: None):
    rig = Rig(path / "state", Wide())
    for seed, name in enumerate("AB"):
        spec = ConnectorSpec("generator", (("rate", "20"), ("seed", str(seed)), ("column.k", "uniform(0,5)")))
        rig.stream(name, spec, k="BIGINT", n="INT", delay=500)
    rig.create("q", TWO)
    for epoch in range(1, 5):
        rig.clock.now += 1_000
        rig.engine.run_epoch()
        if epoch == 3:
            spoil(rig)
    rig.epoch(watermark=1 << 50)
    return rig


@pytest.mark.parametrize("life", [reading_files, generating])
def test_files_and_generators_bring_their_tuples_again(tmp_path, life):
    (tmp_path / "plain").mkdir()
    (tmp_path / "spoiled").mkdir()
    expected = life(tmp_path / "plain").rows("q")
    found = life(tmp_path / "spoiled", lambda rig: remove(rig, kinds(rig.engine.state)["base"]))
    assert expected and found.rows("q") == expected
    assert repairs(found.engine) == 1


def test_a_lost_bucket_stops_the_platform_and_nothing_wrong_comes_out(tmp_path, undamaged):
    rig = joining(tmp_path)
    ref = next(r for r in rig.engine.state.sources.values() if r.epoch == 1)
    path = tmp_path / "buckets" / ref.file
    kept, before = path.read_bytes(), {q.id: rig.rows(q.id) for q in rig.engine.queries()}
    pushed = {p: p.read_bytes() for p in (tmp_path / "sources").rglob("0000000000.jsonl")}
    path.unlink()
    for p in pushed:
        p.unlink()

    def told(caught):
        assert caught.value.reason == "BUCKET_LOST"
        said = str(caught.value)
        for part in (ref.file, repr(ref.stream), "epoch 1", "offsets 0 to 1", "No wrong row", "state directory"):
            assert part in said

    for attempt in range(2):
        with pytest.raises(InternalError) as caught:
            rig.epoch(tuples(2) if attempt == 0 else {})
        told(caught)
        assert {q.id: rig.rows(q.id) for q in rig.engine.queries()} == before
    rig.engine.abandon()
    with pytest.raises(InternalError) as caught:
        Engine.open(tmp_path, LocalExecutor(), rig.config, rig.clock)
    told(caught)
    path.write_bytes(kept)  # somebody has a copy
    rig.engine = rig._open()
    assert finish(rig, 3) == undamaged


def test_a_source_that_brings_something_else_does_not_have_them_any_more(tmp_path):
    """A file that disappeared is a dead letter to its source; here it is a loss."""

    def spoil(rig):
        remove(rig, kinds(rig.engine.state)["base"])
        (tmp_path / "in" / "A-0.parquet").unlink()

    with pytest.raises(InternalError, match="disappeared") as caught:
        reading_files(tmp_path, spoil)
    assert caught.value.reason == "BUCKET_LOST"


def test_a_source_that_is_away_is_waited_for(tmp_path, undamaged, monkeypatch):
    rig = joining(tmp_path)
    remove(rig, kinds(rig.engine.state)["base"][:1])
    load = PushRead.load

    def away(self, schema):
        if self.number < 2:
            raise Unavailable("the broker is away")
        return load(self, schema)

    with monkeypatch.context() as patched:
        patched.setattr(PushRead, "load", away)
        with pytest.raises(Unavailable, match="away"):
            rig.epoch(tuples(2))
    assert finish(rig, 3) == undamaged


def test_pushed_tuples_are_kept_while_their_buckets_are_open(tmp_path):
    rig = joining(tmp_path)

    def kept():
        return {int(p.name.split(".")[0]) for p in (tmp_path / "sources").rglob("*.jsonl")}

    assert kept() == {0, 1}
    for epoch in range(2, 9):
        rig.epoch(tuples(epoch))
        needed = min(r.origin.start.offset for r in rig.engine.state.sources.values())
        assert kept() == set(range(needed, epoch + 1))
    assert needed > 0
    rig.epoch(watermark=1 << 40)
    assert not rig.engine.state.sources and not kept()


@pytest.mark.spark
def test_a_loss_on_spark_has_its_reason_and_its_file(tmp_path, spark):
    rig = joining(tmp_path, spark)
    ref = next(r for r in rig.engine.state.sources.values() if r.epoch == 1)
    remove(rig, [ref.file])
    for path in (tmp_path / "sources").rglob("0000000000.jsonl"):
        path.write_text("")
    with pytest.raises(InternalError, match=rf"bucket file {ref.file} is lost.*brings 0 tuples") as caught:
        rig.epoch(tuples(2))
    assert caught.value.reason == "BUCKET_LOST"
    rig.engine.abandon()
