"""The log in the state directory: torn ends are cut, damage is refused, snapshots replace history, one owner."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.errors import FailedPrecondition, InternalError
from runtime.log import log as log_module
from runtime.log.lock import StateLock
from runtime.log.log import Log

RECORDS = [{"n": 1, "text": "line\nbreak"}, {"n": 2, "text": "ü"}, {"n": 3, "values": [1.5, None, True]}]


def filled(directory, records=RECORDS):
    log = Log(directory)
    log.read()
    for record in records:
        log.append(record)
    log.close()
    return directory / "log-0.jsonl"


def test_what_was_appended_is_read_in_order(tmp_path):
    filled(tmp_path)
    log = Log(tmp_path)
    assert log.read() == (None, RECORDS)
    assert log.since_snapshot == 3
    log.append({"n": 4})
    log.close()
    assert Log(tmp_path).read() == (None, [*RECORDS, {"n": 4}])


@given(st.integers(1, 10_000))
def test_wherever_the_last_line_is_torn_the_lines_before_survive_and_the_log_goes_on(tmp_path_factory, cut):
    directory = tmp_path_factory.mktemp("log")
    path = filled(directory)
    raw = path.read_bytes()
    last = raw.rindex(b"\n", 0, -1) + 1
    path.write_bytes(raw[: last + (cut - 1) % (len(raw) - last)])
    log = Log(directory)
    assert log.read() == (None, RECORDS[:2])
    log.append({"n": "after"})
    log.close()
    assert Log(directory).read() == (None, [*RECORDS[:2], {"n": "after"}])


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_damaged_byte_before_the_last_line_is_never_accepted(tmp_path_factory, place, change):
    directory = tmp_path_factory.mktemp("log")
    path = filled(directory)
    raw = bytearray(path.read_bytes())
    end_of_second = raw.index(b"\n", raw.index(b"\n") + 1)
    place %= end_of_second
    raw[place] ^= change
    path.write_bytes(raw)
    with pytest.raises(InternalError) as caught:
        Log(directory).read()
    assert caught.value.reason == "LOG_CORRUPT"
    assert "log-0.jsonl, line" in caught.value.message


def test_a_snapshot_begins_a_new_log(tmp_path):
    filled(tmp_path)
    log = Log(tmp_path)
    log.read()
    log.snapshot({"state": 1})
    log.append({"n": 4})
    log.snapshot({"state": 2})
    log.append({"n": 5})
    log.close()
    assert Log(tmp_path).read() == ({"state": 2}, [{"n": 5}])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["format", "log-2.jsonl", "snapshot-2.json"]


@pytest.mark.parametrize("spoil", [lambda raw: b"", lambda raw: raw[:-5], lambda raw: raw[:12] + b"?" + raw[13:]])
def test_a_damaged_snapshot_is_refused(tmp_path, spoil):
    log = Log(tmp_path)
    log.read()
    log.snapshot({"state": 1})
    path = tmp_path / "snapshot-1.json"
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(InternalError, match=r"snapshot-1\.json") as caught:
        Log(tmp_path).read()
    assert caught.value.reason == "LOG_CORRUPT"


class Crash(BaseException):
    pass


@pytest.mark.parametrize("step", ["before the rename", "after the rename", "after one file went"])
def test_a_crash_while_a_snapshot_is_taken_loses_and_leaves_nothing(tmp_path, step, monkeypatch):
    filled(tmp_path)
    log = Log(tmp_path)
    log.read()
    with monkeypatch.context() as patch:
        if step == "before the rename":
            patch.setattr("runtime.files.os.replace", crash)
        elif step == "after the rename":
            patch.setattr("runtime.files.sync_directory", crash)
        else:
            patch.setattr(log_module.Path, "unlink", crash)
        with pytest.raises(Crash):
            log.snapshot({"state": 1})
    again = Log(tmp_path)
    assert again.read() == ((None, RECORDS) if step == "before the rename" else ({"state": 1}, []))
    again.snapshot({"state": 2})
    again.append({"n": 1})
    again.close()
    assert Log(tmp_path).read() == ({"state": 2}, [{"n": 1}])
    assert len([p for p in tmp_path.iterdir() if p.name != "format"]) == 2, "no leftovers"


def crash(*args, **kwargs):
    raise Crash


def test_a_directory_of_another_format_is_refused(tmp_path):
    filled(tmp_path)
    (tmp_path / "format").write_text("99\n")
    with pytest.raises(FailedPrecondition, match="format 99") as caught:
        Log(tmp_path)
    assert caught.value.reason == "STATE_FORMAT"


def test_opening_does_not_touch_the_format_file_again(tmp_path):
    """Rewriting it on every start would leave an empty file behind a crash, and a directory nobody can open."""
    filled(tmp_path)
    before = (tmp_path / "format").stat().st_mtime_ns
    Log(tmp_path)
    assert (tmp_path / "format").stat().st_mtime_ns == before


def test_a_second_instance_is_refused_until_the_first_one_is_gone(tmp_path):
    first = StateLock(tmp_path)
    with pytest.raises(FailedPrecondition) as caught:
        StateLock(tmp_path)
    assert caught.value.reason == "STATE_LOCKED"
    first.release()
    StateLock(tmp_path).release()


def test_the_lock_of_a_killed_process_is_free(tmp_path):
    program = (
        "import sys; from pathlib import Path; from runtime.log.lock import StateLock\n"
        "lock = StateLock(Path(sys.argv[1])); print('locked', flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert child.stdout.readline() == b"locked\n"
        with pytest.raises(FailedPrecondition):
            StateLock(tmp_path)
    finally:
        child.kill()
        child.communicate()
    StateLock(tmp_path).release()


# -- files that do not belong here --------------------------------------------------------------------------------


def after_snapshot(directory, number=1):
    """A log with snapshots up to `number` and two records since."""
    log = Log(directory)
    log.read()
    for n in range(1, number + 1):
        log.snapshot({"state": n})
    log.append({"n": 1})
    log.append({"n": 2})
    log.close()
    return {"state": number}, [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("higher", [2, 7, 99999])
def test_a_stray_copy_with_a_higher_number_is_not_taken_for_the_newest(tmp_path, higher, caplog):
    expected = after_snapshot(tmp_path)
    stray = tmp_path / f"snapshot-{higher}.json"
    shutil.copy(tmp_path / "snapshot-1.json", stray)
    log = Log(tmp_path)
    assert log.read() == expected
    assert f"{stray} is a copy of snapshot 1 and is left alone" in caplog.text and stray.exists()
    log.append({"n": 3})
    log.snapshot({"state": "next"})
    log.close()
    assert Log(tmp_path).read() == ({"state": "next"}, [])


def test_a_snapshot_of_another_time_beside_the_right_one_is_refused(tmp_path):
    """Its own number fits its name, and nobody can know which of the two counts."""
    after_snapshot(tmp_path / "one", 3)
    after_snapshot(tmp_path / "two", 4)
    shutil.copy(tmp_path / "two" / "snapshot-4.json", tmp_path / "one")
    before = sorted(p.name for p in (tmp_path / "one").iterdir())
    with pytest.raises(InternalError, match=r"snapshot-4\.json does not follow snapshot-3\.json") as caught:
        Log(tmp_path / "one").read()
    assert caught.value.reason == "LOG_CORRUPT" and "move the one" in str(caught.value)
    assert sorted(p.name for p in (tmp_path / "one").iterdir()) == before, "nothing is removed"


def test_a_log_that_does_not_follow_its_snapshot_is_refused(tmp_path):
    for records in (1, 2):
        for name in ("one", "two"):
            log = Log(tmp_path / f"{name}{records}")
            log.read()
            log.snapshot({"state": name})
            for n in range(records):
                log.append({"n": n})
            log.close()
        shutil.copy(tmp_path / f"one{records}" / "log-1.jsonl", tmp_path / f"two{records}")
        with pytest.raises(InternalError, match="line 1 is damaged, or belongs to another file"):
            Log(tmp_path / f"two{records}").read()


@pytest.mark.parametrize("lost", ["snapshot-2.json", "renamed"])
def test_a_log_without_its_snapshot_does_not_start_from_nothing(tmp_path, lost):
    after_snapshot(tmp_path, 2)
    if lost == "renamed":
        (tmp_path / "snapshot-2.json").rename(tmp_path / "snapshot-5.json")
        (tmp_path / "log-2.jsonl").unlink()
    else:
        (tmp_path / lost).unlink()
    with pytest.raises(InternalError) as caught:
        Log(tmp_path).read()
    assert caught.value.reason == "LOG_CORRUPT" and "restore it" in str(caught.value)


def test_a_changed_last_record_was_acknowledged_and_is_not_cut_off(tmp_path):
    path = filled(tmp_path)
    path.write_bytes(path.read_bytes().replace(b'"n":3', b'"n":4'))
    with pytest.raises(InternalError, match="line 3"):
        Log(tmp_path).read()


FOREIGN = ("snapshot-old.json", "log-x.jsonl", "snapshot-1.json~", ".log-1.jsonl.swp", "snapshot-01.json", "notes.txt")


def test_foreign_names_are_left_alone(tmp_path, caplog):
    expected = after_snapshot(tmp_path)
    for name in FOREIGN:
        (tmp_path / name).write_text("?")
    log = Log(tmp_path)
    assert log.read() == expected
    assert all(f"{tmp_path / name} is no file of this platform" in caplog.text for name in FOREIGN)
    log.snapshot({"state": 2})
    assert {p.name for p in tmp_path.iterdir()} == {*FOREIGN, "format", "snapshot-2.json"}
