"""Two tiers: what is acknowledged survives the local directory, which may be small, lost, old, or somebody else's."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ajoin.sql import parse_query
from optimizer.errors import FailedPrecondition, InternalError, InvalidRequest, Unavailable
from runtime.api import CreateQuery
from runtime.connectors.base import ConnectorSpec
from runtime.durable.cached_folder import CachedFolder, StoredObject
from runtime.durable.tier import DurableTier
from runtime.engine.engine import Engine
from tests.runtime.rig import Rig, plain

JOIN = "SELECT A.n AS a, B.n AS b FROM A JOIN B ON A.k = B.k WINDOW TUMBLING (SIZE 1000 SECONDS)"


def rig_on(base: Path, name: str = "state", **config) -> Rig:
    return Rig(base / name, durable=str(base / "durable"), **config)


def begun(base: Path, **config) -> Rig:
    rig = rig_on(base, **config)
    for name in "AB":
        rig.stream(name, k="BIGINT", n="INT")
    rig.create("q", JOIN)
    return rig


def epochs(rig: Rig, numbers, keys=3) -> None:
    for i in numbers:
        rig.epoch({"A": [(i % keys, i, i)], "B": [(i % keys, i, i)]})


def expected(count: int, keys=3) -> list[tuple[int, ...]]:
    return sorted((0, 1_000_000, a, b) for a in range(count) for b in range(count) if a % keys == b % keys)


def lose(rig: Rig) -> None:
    rig.engine.abandon()
    shutil.rmtree(rig.directory)
    rig.engine = rig._open()


def objects(base: Path) -> dict[str, int]:
    return DurableTier(str(base / "durable")).list()


def test_a_lost_directory_comes_back_and_subscribers_go_on_where_they_were(tmp_path):
    rig = begun(tmp_path)
    epochs(rig, range(4))
    seen = rig.engine.read_results("q", None, 3)
    lose(rig)
    assert rig.engine.epoch == 4
    assert not list((rig.directory / "buckets").glob("*")), "buckets come when they are needed"
    epochs(rig, range(4, 6))
    rest = rig.engine.read_results("q", seen[-1].cursor, 1 << 20)
    assert sorted(r for b in (*seen, *rest) for r in plain(b.rows)) == expected(6)
    rig.engine.close()


def test_a_pushed_batch_that_no_epoch_has_read_survives(tmp_path):
    rig = begun(tmp_path)
    epochs(rig, range(2))
    for name in "AB":
        rig.engine.push(name, [{"k": 2, "n": 2, "ts": 2}])
    lose(rig)
    assert rig.engine.has_input()
    rig.engine.run_epoch()
    lose(rig)
    epochs(rig, range(3, 5))
    assert rig.rows("q") == expected(5)


@pytest.mark.parametrize("exchange", ["reference", "value"])
def test_the_fast_tier_may_be_smaller_than_the_state(tmp_path, exchange):
    rig = begun(tmp_path, exchange=exchange, fast_bytes=3000)
    epochs(rig, range(12))
    status = rig.engine.status()
    local = sum(p.stat().st_size for p in rig.files("buckets"))
    assert local <= 3000 < status.bucket_bytes
    assert status.durable_bytes > status.fast_bytes > 0
    assert rig.rows("q") == expected(12)
    assert status.stage_seconds["upload"] > 0


def test_only_files_with_a_durable_copy_make_room_the_oldest_first(tmp_path):
    tier = DurableTier(str(tmp_path / "durable"))
    shelf = CachedFolder(tier.uri, tmp_path / "fast", 25, {})
    (tmp_path / "fast").mkdir()
    for name in "dcba":
        (tmp_path / "fast" / name).write_bytes(b"x" * 10)
    for name in "abc":
        shelf.hold({name: StoredObject(name, tier.put_file(name, tmp_path / "fast" / name))})
    shelf.make_room()
    assert shelf.local() == {"c": 10, "d": 10}
    assert shelf.fetch("a")
    assert shelf.local() == {"a": 10, "d": 10}, "what was just fetched stays, what is nowhere else stays"
    assert not shelf.fetch("d")


def test_the_tier_holds_what_the_state_lists_and_nothing_else(tmp_path):
    rig = begun(tmp_path, snapshot_every=4, retention_epochs=3)
    epochs(rig, range(6))
    rig.epoch({"A": [(9, 9, 3_000_000)], "B": [(9, 9, 3_000_000)]})  # everything before is closed
    rig.engine.close()
    tier = DurableTier(str(tmp_path / "durable"))
    tier.put("0000000001-dead/buckets/b999.bucket", b"debris")
    rig.engine = rig._open()
    s = rig.engine.state
    files = {r.file for r in (*s.sources.values(), *s.joined.values())} | {
        x.file for segments in s.segments.values() for x in segments
    }
    found = {Path(name).name for name in objects(tmp_path) if "/buckets/" in name or "/results/" in name}
    assert found == files
    others = sorted(Path(n).name for n in objects(tmp_path) if "/buckets/" not in n and "/results/" not in n)
    assert {"format", "owner", "snapshot.json"} <= set(others)
    assert len({n.partition("/")[0] for n in objects(tmp_path) if "/log/" in n}) == 1, "the log of one term"


def test_a_second_platform_takes_over_and_the_first_one_stops(tmp_path):
    first = begun(tmp_path)
    epochs(first, range(2))
    second = rig_on(tmp_path, "other")
    for act in (
        lambda: first.engine.push("A", [{"k": 1, "n": 1, "ts": 1}]),
        lambda: first.create("q2", JOIN),
        first.engine.run_epoch,
    ):
        with pytest.raises(FailedPrecondition) as caught:
            act()
        assert caught.value.reason == "STATE_TAKEN"
    epochs(second, range(2, 4))
    assert second.rows("q") == expected(4)
    first.engine.abandon()
    lose(second)
    assert second.rows("q") == expected(4), "what the first one wrote late counts for nobody"
    assert [q.id for q in second.engine.queries()] == ["q"]


def test_an_older_directory_is_not_believed(tmp_path):
    """The first machine comes back with files of an epoch that the second one ran differently."""
    first = begun(tmp_path)
    epochs(first, range(2))
    for name in "AB":
        first.engine.push(name, [{"k": 2, "n": 2, "ts": 2}])
    first.engine.abandon()
    second = rig_on(tmp_path, "other")
    second.engine.run_epoch()
    epochs(second, range(3, 5))
    second.engine.abandon()
    for path in (tmp_path / "state" / "buckets").iterdir():
        path.write_bytes(b"of another time")
    back = rig_on(tmp_path)
    epochs(back, range(5, 6))
    assert back.rows("q") == expected(6)


def away(base: Path) -> None:
    os.rename(base / "durable", base / "elsewhere")
    (base / "durable").write_text("not a folder")


def back(base: Path) -> None:
    (base / "durable").unlink()
    os.rename(base / "elsewhere", base / "durable")


def test_an_outage_is_waited_out(tmp_path):
    rig = begun(tmp_path)
    epochs(rig, range(2))
    for name in "AB":
        rig.engine.push(name, [{"k": 2, "n": 2, "ts": 2}])
    away(tmp_path)
    for act in (rig.engine.run_epoch, rig.engine.run_epoch, lambda: rig.create("q2", JOIN)):
        with pytest.raises(Unavailable) as caught:
            act()
        assert caught.value.reason == "DURABLE_UNAVAILABLE"
    back(tmp_path)
    assert rig.engine.run_epoch().epoch == 3
    epochs(rig, range(3, 4))
    assert rig.rows("q") == expected(4)
    lose(rig)
    assert rig.rows("q") == expected(4)


def test_a_tier_that_is_not_mounted_is_an_outage_and_no_empty_tier(tmp_path):
    rig = begun(tmp_path)
    epochs(rig, range(1))
    os.rename(tmp_path / "durable", tmp_path / "elsewhere")
    with pytest.raises(Unavailable, match="mounted"):
        rig.engine.push("A", [{"k": 1, "n": 1, "ts": 1}])
    shutil.rmtree(tmp_path / "durable")
    os.rename(tmp_path / "elsewhere", tmp_path / "durable")
    epochs(rig, range(1, 3))
    assert rig.rows("q") == expected(3)


def test_what_cannot_be_deleted_during_an_outage_is_deleted_later(tmp_path, monkeypatch):
    rig = begun(tmp_path)
    epochs(rig, range(2))

    def refuse(tier, name):
        raise Unavailable("no deletions today", reason="DURABLE_UNAVAILABLE")

    with monkeypatch.context() as m:
        m.setattr(DurableTier, "delete", refuse)
        rig.epoch({"A": [(9, 9, 3_000_000)], "B": [(9, 9, 3_000_000)]})
    before = [n for n in objects(tmp_path) if "/buckets/" in n]
    rig.epoch({"A": [(9, 9, 3_000_001)]})
    after = [n for n in objects(tmp_path) if "/buckets/" in n]
    assert len(before) == 6 and len(after) == 3


def test_a_stream_that_takes_the_name_of_a_deleted_one_starts_empty(tmp_path, monkeypatch):
    rig = begun(tmp_path)
    rig.stream("C", k="BIGINT", n="INT")
    for i in range(3):
        rig.engine.push("C", [{"k": 0, "n": 100 + i, "ts": i}])
    rig.engine.delete_stream("C")
    rig.stream("C", k="BIGINT", n="INT")
    rig.engine.push("C", [{"k": 0, "n": 7, "ts": 0}])
    lose(rig)
    rig.create("q2", JOIN.replace("A", "C", 1).replace("FROM A", "FROM C").replace("A.k", "C.k"))
    rig.epoch({"B": [(0, 1, 0)]})
    assert rig.rows("q2") == [(0, 1_000_000, 7, 1)]


def test_a_directory_without_a_tier_gets_one(tmp_path):
    rig = Rig(tmp_path / "state")
    for name in "AB":
        rig.stream(name, k="BIGINT", n="INT")
    rig.create("q", JOIN)
    epochs(rig, range(3))
    rig.engine.push("A", [{"k": 0, "n": 3, "ts": 3}])
    rig.engine.close()
    rig = rig_on(tmp_path)
    lose(rig)
    rig.epoch({"B": [(0, 3, 3)]})
    assert rig.rows("q") == expected(4)


def test_a_fast_tier_is_not_taken_for_the_whole_state(tmp_path):
    rig = begun(tmp_path)
    epochs(rig, range(1))
    rig.engine.close()
    with pytest.raises(FailedPrecondition) as caught:
        Rig(tmp_path / "state")
    assert caught.value.reason == "STATE_TIERED"
    with pytest.raises(FailedPrecondition) as caught:
        Rig(tmp_path / "state", durable=str(tmp_path / "an empty one"))
    assert caught.value.reason == "STATE_TIERED"
    assert rig_on(tmp_path).engine.epoch == 1


def test_formats_and_addresses_that_nobody_reads_are_refused(tmp_path):
    DurableTier(str(tmp_path / "durable")).put("format", b"0.0")
    with pytest.raises(FailedPrecondition) as caught:
        rig_on(tmp_path)
    assert caught.value.reason == "STATE_FORMAT"
    with pytest.raises(InvalidRequest) as wrong:
        DurableTier("gopher://somewhere/else")
    assert wrong.value.reason == "DURABLE_INVALID"


def test_a_damaged_record_or_a_hole_in_the_log_is_an_error(tmp_path):
    rig = begun(tmp_path)
    rig.engine.abandon()
    records = sorted(n for n in objects(tmp_path) if "/log/" in n and "snapshot" not in n)
    path = tmp_path / "durable" / records[0]
    whole = path.read_bytes()
    path.write_bytes(whole[:-5] + b"xxxx\n")
    with pytest.raises(InternalError) as caught:
        rig_on(tmp_path)
    assert caught.value.reason == "LOG_CORRUPT"
    path.unlink()
    with pytest.raises(InternalError) as caught:
        rig_on(tmp_path)
    assert caught.value.reason == "LOG_CORRUPT"
    path.write_bytes(whole)
    assert rig_on(tmp_path).engine.schemas().keys() == {"A", "B"}


def test_a_damaged_bucket_is_fetched_again(tmp_path):
    rig = begun(tmp_path)
    epochs(rig, range(3))
    ref = rig.sources("A")[0]
    path = rig.directory / "buckets" / ref.file
    whole = path.read_bytes()
    path.write_bytes(whole[:-8] + b"\xff" * 8)
    with pytest.raises(InternalError):
        rig.engine.parts.exchange.files.verify(ref.file)
    assert rig.engine.parts.exchange.files.refetch(ref.file)
    assert path.read_bytes() == whole
    path.write_bytes(whole[:-8] + b"\xff" * 8)
    epochs(rig, range(3, 5))
    assert rig.rows("q") == expected(5)
    place = rig.engine.parts.exchange.files.folder.objects[ref.file].name
    (tmp_path / "durable" / place).write_bytes(b"damaged as well")
    assert not rig.engine.parts.exchange.files.refetch(ref.file)


def test_what_a_files_source_has_seen_and_what_sinks_have_got_survives(tmp_path):
    (tmp_path / "in").mkdir()
    rig = rig_on(tmp_path)
    rig.stream("A", ConnectorSpec("files", (("path", str(tmp_path / "in")),)), k="BIGINT", n="INT")
    rig.stream("B", k="BIGINT", n="INT")
    sink = ConnectorSpec("parquet", (("path", str(tmp_path / "out")),))
    rig.control(CreateQuery("q", parse_query(JOIN, rig.engine.schemas()), (sink,)))
    for i in range(4):
        (tmp_path / "in" / f"{3 - i}.jsonl").write_text(json.dumps({"k": i % 3, "n": i, "ts": i}) + "\n")
        rig.epoch({"B": [(i % 3, i, i)]})
        lose(rig)
    assert rig.rows("q") == expected(4)
    delivered = pq.read_table(tmp_path / "out" / "q").select(["a", "b"]).to_pylist()
    assert sorted((r["a"], r["b"]) for r in delivered) == [row[2:] for row in expected(4)]
    (place,) = json.loads((rig.directory / "log" / "delivered").read_text())
    assert place["epoch"] == 4
    assert rig.engine.parts.sources.opened["A"].latest(4, 0) == 4, "no file is taken twice"


class Reading:
    """Counts what an opening reads from the durable tier."""

    def __init__(self, monkeypatch):
        self.count = 0
        real = DurableTier.get

        def get(tier, name):
            self.count += "/log/" in name
            return real(tier, name)

        monkeypatch.setattr(DurableTier, "get", get)


def test_opening_costs_what_is_open_and_not_what_happened(tmp_path, monkeypatch):
    """Windows of 5 epochs; 50 epochs later and 500 epochs later there is as much to do."""
    rig = rig_on(tmp_path, snapshot_every=40)
    for name in "AB":
        rig.stream(name, k="BIGINT", n="INT")
    rig.create("q", JOIN.replace("1000 SECONDS", "5 SECONDS"))
    looked = []
    for until in (50, 500):
        for i in range(rig.engine.epoch, until):
            rig.epoch({"A": [(1, i, 1000 * i)], "B": [(1, i, 1000 * i)]})
        reading = Reading(monkeypatch)
        lose(rig)
        status = rig.engine.status()
        assert status.recovery_seconds > 0
        assert reading.count == status.recovery_records <= 41
        looked.append((status.buckets, status.bucket_bytes))
    (buckets, size), (later, later_size) = looked
    assert buckets == later and abs(size - later_size) <= 64 * buckets, "names in headers have become longer"
    assert isinstance(rig.engine, Engine) and rig.engine.epoch == 500
