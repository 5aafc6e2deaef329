"""A store holds all of the state: the local directory may be small, lost, or somebody else's."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ajoin.sql import parse_query
from optimizer.errors import FailedPrecondition, InternalError, InvalidRequest, Unavailable
from runtime.api import CreateQuery
from runtime.connectors.base import ConnectorSpec
from runtime.engine.engine import Engine
from runtime.execution.executor import LocalExecutor
from runtime.plugins import load
from runtime.store.arrow import ArrowObjects
from runtime.store.cache import Cache
from runtime.store.claim import take
from tests.runtime.rig import Rig, plain
from tests.tools.store_double import Double

JOIN = "SELECT A.n AS a, B.n AS b FROM A JOIN B ON A.k = B.k WINDOW TUMBLING (SIZE 1000 SECONDS)"


def rig_on(base: Path, name: str = "state", **config) -> Rig:
    return Rig(base / name, **{"store": str(base / "store")} | config)


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
    return ArrowObjects(str(base / "store")).list()


def test_a_lost_directory_comes_back_and_subscribers_go_on_where_they_were(tmp_path):
    rig = begun(tmp_path)
    epochs(rig, range(4))
    seen = rig.engine.read_results("q", None, 3)
    lose(rig)
    assert rig.engine.epoch == 4
    assert not (rig.directory / "buckets").exists() and not (rig.directory / "log").exists()
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


def test_the_cache_may_be_smaller_than_the_state(tmp_path):
    store = Double()
    rig = begun(tmp_path, store=store.open(), cache_bytes=3 << 12)
    epochs(rig, range(12))
    status = rig.engine.status()
    held = [p for p in (rig.directory / "cache").iterdir() if p.is_file()]
    assert 0 < len(held) < len(rig.engine.state.bucket_files)
    assert status.store_bytes > status.bucket_bytes > 0 and 0 < status.cache_bytes <= 4 << 12
    assert rig.rows("q") == expected(12)


def test_the_oldest_runs_leave_the_cache_first(tmp_path):
    cache = Cache(tmp_path, 3 << 12)
    names = [f"buckets/0000000001-ab/b{n}.{n}.bucket" for n in (3, 11, 2, 10)]
    for name in names:
        os.close(cache.create(name, b"x" * 4096, 4096, 0))
        cache.brought(4096)
    assert sorted(cache.held()) == sorted(n.replace("/", "~") for n in names if ".2." not in n)


def test_the_store_holds_what_the_state_lists_and_nothing_else(tmp_path):
    rig = begun(tmp_path, snapshot_every=4, retention_epochs=3)
    epochs(rig, range(6))
    rig.epoch({"A": [(9, 9, 3_000_000)], "B": [(9, 9, 3_000_000)]})  # everything before is closed
    rig.engine.close()
    far = ArrowObjects(str(tmp_path / "store"))
    far.put("buckets/0000000001-dead/b999.7.bucket", b"debris")
    far.put("heartbeat", b"of somebody else")
    rig.engine = rig._open()
    s = rig.engine.state
    files = {r.file for r in (*s.sources.values(), *s.joined.values())} | {
        x.file for segments in s.segments.values() for x in segments
    }
    found = {name.partition("/")[2] for name in objects(tmp_path) if name.startswith(("buckets/", "results/"))}
    assert found == files
    others = sorted(Path(n).name for n in objects(tmp_path) if not n.startswith(("buckets/", "results/")))
    assert {"format", "owner", "heartbeat", "snapshot.json"} <= set(others)
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
    """The first machine comes back with what its sources kept of another time."""
    first = begun(tmp_path)
    epochs(first, range(2))
    for name in "AB":
        first.engine.push(name, [{"k": 2, "n": 2, "ts": 2}])
    first.engine.abandon()
    second = rig_on(tmp_path, "other")
    second.engine.run_epoch()
    epochs(second, range(3, 5))
    second.engine.abandon()
    for path in (tmp_path / "state").rglob("*.jsonl"):
        path.write_bytes(b"of another time")
    back = rig_on(tmp_path)
    epochs(back, range(5, 6))
    assert back.rows("q") == expected(6)


def away(base: Path) -> None:
    os.rename(base / "store", base / "elsewhere")
    (base / "store").write_text("not a folder")


def back(base: Path) -> None:
    (base / "store").unlink()
    os.rename(base / "elsewhere", base / "store")


def test_an_outage_is_waited_out(tmp_path):
    rig = begun(tmp_path)
    epochs(rig, range(2))
    for name in "AB":
        rig.engine.push(name, [{"k": 2, "n": 2, "ts": 2}])
    away(tmp_path)
    for act in (rig.engine.run_epoch, rig.engine.run_epoch, lambda: rig.create("q2", JOIN)):
        with pytest.raises(Unavailable) as caught:
            act()
        assert caught.value.reason == "STORE_UNAVAILABLE"
    back(tmp_path)
    assert rig.engine.run_epoch().epoch == 3
    epochs(rig, range(3, 4))
    assert rig.rows("q") == expected(4)
    lose(rig)
    assert rig.rows("q") == expected(4)


def test_a_store_that_is_not_mounted_is_an_outage_and_no_empty_one(tmp_path):
    rig = begun(tmp_path)
    epochs(rig, range(1))
    os.rename(tmp_path / "store", tmp_path / "elsewhere")
    with pytest.raises(Unavailable, match="mounted"):
        rig.engine.push("A", [{"k": 1, "n": 1, "ts": 1}])
    shutil.rmtree(tmp_path / "store")
    os.rename(tmp_path / "elsewhere", tmp_path / "store")
    epochs(rig, range(1, 3))
    assert rig.rows("q") == expected(3)


def test_what_cannot_be_deleted_during_an_outage_is_deleted_later(tmp_path, monkeypatch):
    rig = begun(tmp_path)
    epochs(rig, range(2))

    def refuse(tier, name):
        raise Unavailable("no deletions today", reason="STORE_UNAVAILABLE")

    with monkeypatch.context() as m:
        m.setattr(ArrowObjects, "delete", refuse)
        rig.epoch({"A": [(9, 9, 3_000_000)], "B": [(9, 9, 3_000_000)]})
    before = [n for n in objects(tmp_path) if n.startswith("buckets/")]
    rig.epoch({"A": [(9, 9, 3_000_001)]})
    after = [n for n in objects(tmp_path) if n.startswith("buckets/")]
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


def test_a_directory_gets_a_store(tmp_path):
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


def test_a_cache_is_not_taken_for_an_empty_state(tmp_path):
    rig = begun(tmp_path)
    epochs(rig, range(1))
    rig.engine.close()
    with pytest.raises(FailedPrecondition) as caught:
        Rig(tmp_path / "state")
    assert caught.value.reason == "STATE_IN_STORE"
    with pytest.raises(FailedPrecondition) as caught:
        Rig(tmp_path / "state", store=str(tmp_path / "an empty one"))
    assert caught.value.reason == "STATE_IN_STORE"
    assert rig_on(tmp_path).engine.epoch == 1


def test_formats_and_addresses_that_nobody_reads_are_refused(tmp_path):
    ArrowObjects(str(tmp_path / "store")).put("format", b"0.0")
    with pytest.raises(FailedPrecondition) as caught:
        rig_on(tmp_path)
    assert caught.value.reason == "STATE_FORMAT"
    with pytest.raises(InvalidRequest) as wrong:
        ArrowObjects("gopher://somewhere/else")
    assert wrong.value.reason == "STORE_INVALID"


def test_a_damaged_record_or_a_hole_in_the_log_is_an_error(tmp_path):
    rig = begun(tmp_path)
    rig.engine.abandon()
    records = sorted(n for n in objects(tmp_path) if "/log/" in n and "snapshot" not in n)
    path = tmp_path / "store" / records[0]
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


def test_a_directory_with_a_state_of_its_own_is_refused_beside_another_one(tmp_path):
    begun(tmp_path).engine.close()
    other = Rig(tmp_path / "other")
    other.stream("X", k="BIGINT")
    other.engine.close()
    with pytest.raises(FailedPrecondition) as caught:
        rig_on(tmp_path, "other")
    assert caught.value.reason == "STATE_IN_STORE"
    assert Rig(tmp_path / "other").engine.schemas().keys() == {"X"}, "nothing of it was touched"


def test_a_directory_that_died_while_it_got_its_store_is_cleaned_up(tmp_path):
    rig = Rig(tmp_path / "state")
    rig.stream("A", k="BIGINT", n="INT")
    rig.engine.close()
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    rig_on(tmp_path).engine.close()
    shutil.rmtree(tmp_path / "state")
    os.rename(tmp_path / "copy", tmp_path / "state")
    again = rig_on(tmp_path)
    assert again.engine.schemas().keys() == {"A"} and not (tmp_path / "state" / "log").exists()


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
    (place,) = json.loads((rig.directory / "delivered").read_text())
    assert place["epoch"] == 4
    assert rig.engine.parts.sources.opened["A"].latest(4, 0) == 4, "no file is taken twice"


class Reading:
    """Counts what an opening reads of the log."""

    def __init__(self, monkeypatch):
        self.count = 0
        real = ArrowObjects.get

        def get(tier, name):
            self.count += "/log/" in name
            return real(tier, name)

        monkeypatch.setattr(ArrowObjects, "get", get)


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


# -- tasks that come too late -------------------------------------------------------------------------------------


class Zombies(LocalExecutor):
    """Remembers every task it ran, and runs them all once more when told so."""

    def __init__(self):
        self.ran = []

    def run(self, name, stage, shared, tasks):
        payload = pickle.dumps((stage, shared, tasks))
        self.ran.append(payload)
        return super().run(name, stage, shared, tasks)

    def again(self):
        for payload in self.ran:
            stage, shared, tasks = pickle.loads(payload)
            for task in tasks:
                with suppress(InternalError):  # what it wants to read may be gone
                    stage(shared, task)


@pytest.mark.parametrize("kind", ["path", "opaque", "double"])
def test_tasks_of_earlier_runs_and_owners_hit_nothing_that_counts(tmp_path, kind):
    load(("tests.tools.opaque_store",))
    uri = {"path": str(tmp_path / "s"), "opaque": f"opaque://{tmp_path / 's'}", "double": Double().open()}[kind]
    zombies = Zombies()
    rig = begun(tmp_path, store=uri, executor=zombies)
    epochs(rig, range(2))
    rig.create("q2", JOIN)  # another plan: the same names would now have other bits
    epochs(rig, range(2, 3))
    zombies.again()
    epochs(rig, range(3, 4))
    lose(rig)
    zombies.again()
    epochs(rig, range(4, 6))
    zombies.again()
    lose(rig)
    epochs(rig, range(6, 7))
    assert rig.rows("q") == expected(7)
    names = [n for n in rig.engine.parts.store.objects.list() if n.startswith(("buckets/", "results/"))]
    state = rig.engine.state
    listed = {f"buckets/{f}" for f in state.bucket_files} | {f"results/{f}" for f in state.segment_files}
    lose(rig)
    after = [n for n in rig.engine.parts.store.objects.list() if n.startswith(("buckets/", "results/"))]
    assert listed <= set(names) and set(after) == listed, "what they left is swept on opening"


class Failing(LocalExecutor):
    """The join of an epoch fails so often."""

    def __init__(self, times):
        self.times = times

    def run(self, name, stage, shared, tasks):
        done = super().run(name, stage, shared, tasks)
        if "join" in name and self.times:
            self.times -= 1
            raise Unavailable("afterwards", reason="STORE_UNAVAILABLE")
        return done


def test_what_failed_runs_leave_is_deleted_while_the_platform_runs(tmp_path):
    rig = begun(tmp_path, executor=Failing(3))
    for name in "AB":
        rig.engine.push(name, [{"k": 0, "n": 0, "ts": 0}])
    for _ in range(3):
        with pytest.raises(Unavailable):
            rig.engine.run_epoch()
    rig.engine.run_epoch()
    written = {n for n in objects(tmp_path) if n.startswith(("buckets/", "results/"))}
    assert len(written) > len(rig.engine.state.bucket_files | rig.engine.state.segment_files)
    epochs(rig, range(1, 3))
    state = rig.engine.state
    listed = {f"buckets/{f}" for f in state.bucket_files} | {f"results/{f}" for f in state.segment_files}
    assert {n for n in objects(tmp_path) if n.startswith(("buckets/", "results/"))} == listed
    assert rig.rows("q") == expected(3)


def test_a_driver_that_was_replaced_commits_nothing(tmp_path):
    rig = begun(tmp_path)
    epochs(rig, range(2))
    take(ArrowObjects(str(tmp_path / "store")), "another1")
    with pytest.raises(FailedPrecondition) as caught:
        epochs(rig, range(2, 3))
    assert caught.value.reason == "STATE_TAKEN"
    lose(rig)
    assert rig.engine.epoch == 2 or rig.rows("q") == expected(rig.engine.epoch)
