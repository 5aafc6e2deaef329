"""A state directory seen from outside: what is there, whether it holds, what can go. Looking changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from optimizer.errors import AJoinError
from runtime.api import QueryState
from runtime.connectors.base import ConnectorSpec
from runtime.log.lock import is_locked
from runtime.state_tools.files import pushed_batches, read_state
from runtime.state_tools.gc import collect
from runtime.state_tools.report import inspect, inspect_store
from runtime.state_tools.verify import verify
from runtime.state_tools.verify_store import verify as verify_store
from runtime.store.contents import read_store
from tests.runtime.rig import Rig

JOIN = "SELECT A.k, B.x FROM A JOIN B ON A.k = B.k WINDOW TUMBLING (SIZE 10 SECONDS)"
CHAIN = "SELECT A.k, C.y FROM A JOIN B ON A.k = B.k JOIN C ON B.x = C.x WINDOW TUMBLING (SIZE 10 SECONDS)"
COUNT = "SELECT COUNT(*) FROM A JOIN B ON A.k = B.k WINDOW TUMBLING (SIZE 10 SECONDS)"
FACTORIZED = f"{JOIN} EMIT FACTORIZED"


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """Three streams, four kinds of queries, three epochs with rows, nothing closed yet."""
    made = Rig(tmp_path / "state")
    made.stream("A", k="BIGINT")
    made.stream("B", k="BIGINT", x="BIGINT")
    made.stream("C", x="BIGINT", y="STRING")
    for id, sql in (("join", JOIN), ("chain", CHAIN), ("count", COUNT), ("factorized", FACTORIZED)):
        made.create(id, sql)
    for i in range(3):
        made.epoch({"A": [(i, i), (i, i)], "B": [(i, i * 10, i)], "C": [(i * 10, "y", i)]})
    return made


def contents(directory: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(p.relative_to(directory)): (p.read_bytes(), p.stat().st_mtime_ns)
        for p in directory.rglob("*")
        if p.is_file()
    }


def test_it_tells_what_the_engine_knows(rig):
    engine = rig.engine
    report = inspect(rig.directory)
    assert report.running and report.epoch == 3 and report.plan_version == engine.plan.version
    assert (
        report.records == engine.parts.journal._log.since_snapshot and report.torn_bytes == 0 and report.planned is None
    )
    assert {s.name: (s.tuples, s.watermark, s.source) for s in report.streams} == {
        s.schema.name: (s.tuples, s.watermark, s.source.kind) for s in engine.streams()
    }
    assert {q.id: (q.uid, q.rows, q.state, q.sql) for q in report.queries} == {
        q.id: (q.uid, q.rows, q.state, q.sql) for q in engine.queries()
    }
    status = engine.status()
    held = [s.buckets for s in report.streams] + [j.buckets for j in report.joins]
    assert report.partials
    assert sum(f.files for f in held) + len(report.partials) == status.buckets
    assert sum(f.bytes for f in held) + sum(p.bytes for p in report.partials) == status.bucket_bytes
    assert all(f.epochs == (1, 3) and not f.missing for f in held) and report.joins
    assert report.results.files == len(rig.files("results"))
    assert report.results.bytes == sum(p.stat().st_size for p in rig.files("results"))
    assert report.result_rows == sum(q.rows for q in engine.queries())
    assert not report.debris


def test_a_snapshot_and_the_log_after_it_give_the_same_state(rig):
    rig.reopen(kill=False)
    rig.epoch({"A": [(9, 4)]})
    found = read_state(rig.directory)
    assert found.number >= 1 and found.snapshot_bytes > 0 and found.records == 2
    assert found.state.to_json() == rig.engine.state.to_json()


def test_looking_changes_nothing_even_where_a_crash_left_something(rig):
    rig.engine.abandon()
    log = max((rig.directory / "log").glob("log-*.jsonl"))
    log.write_bytes(log.read_bytes() + b"deadbeef {half a rec")
    for name in ("buckets/b999.bucket", "buckets/.b7.1.tmp", "results/e9-0.segment", "log/snapshot.tmp"):
        (rig.directory / name).write_bytes(b"x" * 10)
    before = contents(rig.directory)
    assert len(inspect(rig.directory).debris) == 4
    found = verify(rig.directory)
    assert not found.problems and not found.running
    assert any("never acknowledged" in note for note in found.notes)
    assert len(collect(rig.directory, dry_run=True)) == 4
    assert contents(rig.directory) == before


def test_a_running_platform_is_noticed_and_gc_refused(rig):
    assert is_locked(rig.directory) and inspect(rig.directory).running and verify(rig.directory).running
    for dry_run in (False, True):
        with pytest.raises(AJoinError) as refused:
            collect(rig.directory, dry_run=dry_run)
        assert refused.value.reason == "STATE_LOCKED"
    rig.engine.abandon()
    assert not is_locked(rig.directory)


def test_gc_removes_exactly_the_debris(rig):
    rig.stream("D", k="BIGINT")
    rig.engine.push("D", [{"k": 1, "ts": 1}])
    spare = rig.directory / "sources" / "0123456789abcdef"  # as left by a deletion that was cut short
    rig.engine.abandon()
    whole = contents(rig.directory)
    (spare / "push").mkdir(parents=True)
    debris = {
        "buckets/b999.bucket": "no committed epoch lists it",
        "buckets/.b7.1.tmp": "half written",
        "results/e9-0.segment": "no committed epoch lists it",
        "log/snapshot.tmp": "half written",
        "log/log-0.jsonl": "replaced by a newer snapshot",
        f"sources/{spare.name}/push/0000000000.jsonl": "of a stream that was deleted",
    }
    for name in debris:
        (rig.directory / name).write_bytes(b"1234")
    removed = collect(rig.directory)
    assert {d.path: d.why for d in removed} == debris and all(d.bytes == 4 for d in removed)
    assert contents(rig.directory) == whole and not spare.exists()
    assert collect(rig.directory) == []
    rig.engine = rig._open()
    assert rig.engine.epoch == 3 and rig.epoch().tuples == 1


def test_everything_holds_and_every_byte_that_counts_is_checked(rig):
    rig.engine.abandon()
    found = verify(rig.directory)
    assert not found.problems and found.files == len(rig.files("buckets")) + len(rig.files("results"))
    for folder, reasons in (("buckets", {"BUCKET_DAMAGED"}), ("results", {"RESULTS_DAMAGED"})):
        for path in rig.files(folder):
            data = path.read_bytes()
            path.write_bytes(data[:-1])
            (problem,) = verify(rig.directory).problems
            assert problem.file == f"{folder}/{path.name}" and problem.reason in reasons and problem.consequence
            path.write_bytes(data)
    assert not verify(rig.directory).problems


def test_missing_files_are_named_with_what_will_happen(rig):
    rig.engine.abandon()
    state = read_state(rig.directory).state
    source, joined = next(iter(state.sources.values())), next(iter(state.joined.values()))
    segment = state.segments[3][0]
    for folder, file in (("buckets", source.file), ("buckets", joined.file), ("results", segment.file)):
        (rig.directory / folder / file).unlink()
    found = {p.file: p for p in verify(rig.directory).problems}
    assert set(found) == {f"buckets/{source.file}", f"buckets/{joined.file}", f"results/{segment.file}"}
    lost = found[f"buckets/{source.file}"]
    assert lost.reason == "BUCKET_MISSING" and "BUCKET_LOST" in lost.consequence and source.stream in lost.consequence
    assert "makes it again" in found[f"buckets/{joined.file}"].consequence
    assert "RESULTS_DAMAGED" in found[f"results/{segment.file}"].consequence
    assert inspect(rig.directory).results.missing == 1


def test_a_damaged_log_is_a_problem_and_not_an_exception(rig):
    rig.engine.abandon()
    log = max((rig.directory / "log").glob("log-*.jsonl"))
    lines = log.read_bytes().split(b"\n")
    lines[1] = lines[1][:-1] + b"?"
    log.write_bytes(b"\n".join(lines))
    (problem,) = verify(rig.directory).problems
    assert problem.reason == "LOG_CORRUPT" and "line 2" in problem.what and "does not start" in problem.consequence
    with pytest.raises(AJoinError, match="line 2"):
        inspect(rig.directory)
    with pytest.raises(AJoinError, match="line 2"):
        collect(rig.directory)


def test_foreign_files_and_stray_snapshots_are_reported_and_change_nothing(rig):
    rig.reopen(kill=False)
    rig.create("after the snapshot", JOIN.replace("10 SECONDS", "20 SECONDS"))
    rig.engine.abandon()
    log = rig.directory / "log"
    newest = max(log.glob("snapshot-*.json"))
    stray = ("snapshot-old.json", "log-x.jsonl", "snapshot-2.json~", "snapshot-99.json")
    for name in stray:
        (log / name).write_bytes(newest.read_bytes())
    before = contents(rig.directory)
    assert set(inspect(rig.directory).foreign) == {f"log/{name}" for name in stray}
    found = verify(rig.directory)
    assert not found.problems and all(any(f"log/{name}" in note for note in found.notes) for name in stray)
    assert collect(rig.directory) == [] and contents(rig.directory) == before
    rig.engine = rig._open()
    assert rig.engine.query("after the snapshot").state is QueryState.RUNNING, "what was acknowledged is there"


def test_a_damaged_ledger_is_a_problem(tmp_path):
    data = tmp_path / "in"
    data.mkdir()
    (data / "a.jsonl").write_text('{"k": 1, "ts": 1}\n')
    made = Rig(tmp_path / "state", allowed_roots=(tmp_path,))
    made.stream("A", ConnectorSpec("files", (("path", str(data)),)), k="BIGINT")
    made.epoch()
    made.engine.abandon()
    assert not verify(made.directory).problems
    (ledger,) = made.directory.rglob("files.ledger")
    for spoiled in (ledger.read_bytes().replace(b"a.jsonl", b"b.jsonl"), b""):
        ledger.write_bytes(spoiled)
        (problem,) = verify(made.directory).problems
        assert problem.reason == "SOURCE_DAMAGED" and problem.file == str(ledger.relative_to(made.directory))
        with pytest.raises(AJoinError, match=str(ledger)) as refused:
            made._open()
        assert refused.value.reason == "SOURCE_DAMAGED"


def test_pushed_rows_that_an_epoch_still_needs_are_missed(rig):
    for k in range(3):
        rig.engine.push("A", [{"k": k, "ts": 5}])
    rig.engine.abandon()
    (report,) = [s for s in inspect(rig.directory).streams if s.name == "A"]
    assert report.pushed.files >= 3 and report.offset == "3"
    pushed_batches(rig.directory, "A")[4].unlink()
    (problem,) = verify(rig.directory).problems
    assert problem.reason == "PUSH_MISSING" and "batch 4" in problem.what and "stream A" in problem.what


def test_what_is_no_state_directory_is_refused(tmp_path):
    for command in (inspect, verify, collect):
        with pytest.raises(AJoinError) as refused:
            command(tmp_path)
        assert refused.value.reason == "STATE_NOT_FOUND"
    assert not list(tmp_path.iterdir())
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "format").write_text("0\n")
    with pytest.raises(AJoinError) as refused:
        verify(tmp_path)
    assert refused.value.reason == "STATE_FORMAT"


# -- with a store -------------------------------------------------------------------------------------------------


@pytest.fixture
def stored(tmp_path: Path) -> tuple[Rig, Path]:
    far = tmp_path / "far"
    made = Rig(tmp_path / "near", store=str(far))
    made.stream("A", k="BIGINT")
    made.stream("B", k="BIGINT", x="BIGINT")
    made.create("join", JOIN)
    for i in range(3):
        made.epoch({"A": [(i, i)], "B": [(i, i * 10, i)]})
    return made, far


def test_a_whole_store_holds_and_is_not_changed_by_looking(stored):
    rig, far = stored
    before = contents(far)
    found = verify_store(str(far))
    assert not found.problems and contents(far) == before
    assert found.files == len(rig.files("buckets")) + len(rig.files("results"))
    rig.epoch({"A": [(1, 3)]})  # still its owner
    assert read_store(str(far)).state.to_json() == rig.engine.state.to_json()


def test_a_directory_whose_state_is_in_a_store_says_so(stored):
    rig, far = stored
    for command in (inspect, verify, collect):
        with pytest.raises(AJoinError) as refused:
            command(rig.directory)
        assert refused.value.reason == "STATE_IN_STORE" and str(far) in refused.value.message


def test_a_store_is_inspected_like_a_directory(stored):
    rig, far = stored
    rig.engine.push("A", [{"k": 1, "ts": 4}])
    found, state = inspect_store(str(far)), rig.engine.state
    assert (found.epoch, found.plan_version, found.platform) == (state.epoch, state.plan.version, state.platform)
    assert [s.buckets.files for s in found.streams] == [3, 3] and not any(s.buckets.missing for s in found.streams)
    assert sum(s.buckets.bytes for s in found.streams) == sum(p.stat().st_size for p in rig.files("buckets"))
    assert found.results.files == len(rig.files("results")) and found.records > 0 < found.log_bytes
    assert found.streams[0].pushed.files > found.streams[1].pushed.files, "what no epoch has read counts too"


def test_lost_and_damaged_objects_are_told(stored):
    rig, far = stored
    rig.engine.abandon()
    lost, cut, segment = rig.files("buckets")[:2] + rig.files("results")[-1:]
    lost.unlink()
    cut.write_bytes(cut.read_bytes()[:-1])
    segment.write_bytes(b"")
    reasons = {Path(p.file).name: p.reason for p in verify_store(str(far)).problems}
    assert reasons == {lost.name: "BUCKET_MISSING", cut.name: "BUCKET_DAMAGED", segment.name: "RESULTS_DAMAGED"}


def test_a_store_without_a_state_or_with_a_damaged_log_is_told(stored, tmp_path):
    rig, far = stored
    rig.engine.abandon()
    (problem,) = verify_store(str(tmp_path / "empty")).problems
    assert problem.reason == "STATE_NOT_FOUND"
    record = max(p for p in far.rglob("0*.json") if p.parent.parent.name == "log")
    record.write_bytes(record.read_bytes()[:-5])
    (problem,) = verify_store(str(far)).problems
    assert problem.reason == "LOG_CORRUPT" and record.name in problem.what
