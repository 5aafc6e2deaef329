"""The files source: every complete file once, in name order, through crashes and restarts."""

from __future__ import annotations

import json
import os
import pickle
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.errors import InternalError, InvalidRequest, Unavailable
from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.connectors import folders
from runtime.connectors.base import ConnectorSpec
from runtime.connectors.files import FilesSource, parse_config
from runtime.connectors.ledger import check_ledger
from runtime.connectors.options import NOWHERE
from runtime.connectors.registry import check_options, make_source
from tests.tools.store_double import Double

SCHEMA = StreamSchema("S", (Column("ts", ColumnType.TIMESTAMP), Column("n", ColumnType.BIGINT)), time="ts")
NOW = 1_700_000_000_000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.mkdir()
    return path


def put(directory: Path, name: str, *numbers: int) -> None:
    """Written aside and renamed, as a careful writer does."""
    aside = directory / f".{name}.part"
    aside.write_text("".join(json.dumps({"ts": n, "n": n}) + "\n" for n in numbers))
    aside.rename(directory / name)


def open_source(data: Path, **options: str) -> FilesSource:
    return FilesSource(parse_config({"path": str(data), **options}), data.parent / "state")


def numbers(source: FilesSource, start: int, end: int) -> list[int]:
    return [n for r in source.reads(start, end) for n in r.load(SCHEMA).table["n"].to_pylist()]


def reasons(source: FilesSource, start: int, end: int) -> list[str]:
    return [f"{d.place}: {d.reason}" for r in source.reads(start, end) for d in r.load(SCHEMA).dead]


def test_new_files_are_picked_up_in_name_order(data):
    source = open_source(data)
    assert source.latest(source.initial(), NOW) == 0
    put(data, "b.jsonl", 2)
    put(data, "a.jsonl", 1)
    assert source.latest(0, NOW) == 2
    assert numbers(source, 0, 2) == [1, 2]
    put(data, "a0.jsonl", 3)  # sorts before b, but came later
    assert source.latest(2, NOW) == 3
    assert numbers(source, 2, 3) == [3]
    assert source.latest(3, NOW) == 3
    assert numbers(source, 0, 3) == [1, 2, 3]


def test_max_files_bounds_an_epoch(data):
    for i in range(5):
        put(data, f"{i}.jsonl", i)
    source = open_source(data, max_files="2")
    ends = [0]
    while (end := source.latest(ends[-1], NOW)) != ends[-1]:
        ends.append(end)
    assert ends == [0, 2, 4, 5]
    assert numbers(source, 0, 5) == [0, 1, 2, 3, 4]


def test_unfinished_and_foreign_names_are_left_alone(data):
    for name in (".hidden.jsonl", "_SUCCESS", "a.jsonl.tmp", "b.jsonl.crc", "c.TMP"):
        put(data, name, 1)
    (data / "empty.jsonl").touch()
    (data / "sub.jsonl").mkdir()
    (data / "dangling.jsonl").symlink_to(data / "nowhere")
    source = open_source(data)
    assert source.latest(0, NOW) == 0
    put(data, "empty.jsonl", 1)  # not empty any more
    assert source.latest(0, NOW) == 1


def test_pattern_and_format(data):
    put(data, "clicks-1.txt", 1)
    put(data, "views-1.txt", 2)
    source = open_source(data, pattern="clicks-*", format="jsonl")
    assert source.latest(0, NOW) == 1
    assert numbers(source, 0, 1) == [1]


def test_a_name_that_tells_no_format_is_a_dead_letter_not_a_riddle(data):
    put(data, "a.txt", 1)
    source = open_source(data)
    assert source.latest(0, NOW) == 1
    [reason] = reasons(source, 0, 1)
    assert reason.startswith("a.txt: ")
    assert "format" in reason


def test_settle_ms_waits_until_a_file_rests(data):
    put(data, "a.jsonl", 1)
    os.utime(data / "a.jsonl", (NOW / 1000, NOW / 1000))
    source = open_source(data, settle_ms="5000")
    assert source.latest(0, NOW + 4_999) == 0
    assert source.latest(0, NOW + 5_000) == 1


def test_restart_goes_on_where_the_offset_says(data):
    put(data, "a.jsonl", 1)
    put(data, "b.jsonl", 2)
    before = open_source(data)
    assert before.latest(0, NOW) == 2
    put(data, "c.jsonl", 3)
    after = open_source(data)
    assert numbers(after, 0, 2) == [1, 2]  # the unfinished epoch, read again
    assert after.latest(2, NOW) == 3
    assert numbers(after, 2, 3) == [3]


def test_files_planned_but_never_committed_are_the_next_ones(data):
    put(data, "b.jsonl", 2)
    assert open_source(data).latest(0, NOW) == 1  # and the platform dies before it logs that offset
    put(data, "a.jsonl", 1)
    after = open_source(data)
    assert after.latest(0, NOW) == 2
    assert numbers(after, 0, 2) == [2, 1]


def test_a_torn_last_ledger_line_is_cut_off(data):
    put(data, "a.jsonl", 1)
    open_source(data).latest(0, NOW)
    ledger = data.parent / "state" / "files.ledger"
    with open(ledger, "ab") as file:
        file.write(b'["b.jso')
    put(data, "b.jsonl", 2)
    source = open_source(data)
    assert source.latest(1, NOW) == 2
    assert numbers(open_source(data), 0, 2) == [1, 2]


def test_a_damaged_ledger_is_named_and_never_becomes_dead_letters(data):
    for n in range(3):
        put(data, f"{n}.jsonl", n)
    open_source(data).latest(0, NOW)
    ledger = data.parent / "state" / "files.ledger"
    raw = ledger.read_bytes()
    lines = raw.splitlines(keepends=True)
    digit = raw.index(b",", 9) + 1  # of the first file's size
    for spoiled in (
        b"{" + raw[1:],
        raw[:digit] + b"7" + raw[digit + 1 :],
        raw.replace(b"1.jsonl", b"9.jsonl"),
        lines[1] + lines[0] + lines[2],
        lines[0] + lines[2],
        lines[0] + lines[0] + lines[2],
        raw.replace(b"2.jsonl", b"9.jsonl"),  # the last line, whole and changed
    ):
        ledger.write_bytes(spoiled)
        source = open_source(data)
        for act in (
            lambda s: s.begin(0),
            lambda s: s.latest(0, NOW),
            lambda s: s.reads(0, 1),
            lambda s: check_ledger(ledger, 0),
        ):
            with pytest.raises(InternalError) as caught:
                act(source)
            assert caught.value.reason == "SOURCE_DAMAGED"
            assert str(ledger) in caught.value.message and "from a copy" in str(caught.value)
        assert ledger.read_bytes() == spoiled, "it stays for whoever repairs it"
    ledger.write_bytes(raw)
    assert numbers(open_source(data), 0, 3) == [0, 1, 2]


def test_a_ledger_that_has_lost_its_end_reads_nothing_twice(data):
    for n in range(3):
        put(data, f"{n}.jsonl", n)
    open_source(data).latest(0, NOW)
    ledger = data.parent / "state" / "files.ledger"
    ledger.write_bytes(b"".join(ledger.read_bytes().splitlines(keepends=True)[:2]))
    source = open_source(data)
    source.begin(2)  # the third one was in no epoch: it is simply the next
    for act in (lambda: source.begin(3), lambda: source.latest(3, NOW), lambda: source.reads(0, 3)):
        with pytest.raises(InternalError, match="lists 2 files, and 3 were read") as caught:
            act()
        assert caught.value.reason == "SOURCE_DAMAGED"


def test_the_ledger_of_another_stream_is_not_taken(data, tmp_path):
    put(data, "a.jsonl", 1)
    open_source(data).latest(0, NOW)
    other = tmp_path / "other stream"
    other.mkdir()
    (other / "files.ledger").write_bytes((data.parent / "state" / "files.ledger").read_bytes())
    with pytest.raises(InternalError) as caught:
        FilesSource(parse_config({"path": str(data)}), other).begin(0)
    assert caught.value.reason == "SOURCE_DAMAGED"


def test_gone_changed_and_unreadable_files_are_dead_letters_and_the_rest_goes_on(data):
    for i, name in enumerate(["a.jsonl", "b.jsonl", "c.jsonl", "d.parquet"]):
        put(data, name, i)
    source = open_source(data)
    assert source.latest(0, NOW) == 4
    (data / "a.jsonl").unlink()
    put(data, "b.jsonl", 1, 11)
    assert numbers(source, 0, 4) == [2]
    gone, changed, corrupt = reasons(source, 0, 4)
    assert gone.startswith("a.jsonl: ")
    assert "disappeared" in gone
    assert changed.startswith("b.jsonl: ")
    assert "must not change" in changed
    assert corrupt.startswith("d.parquet: ")


def test_a_directory_that_goes_away_stops_nothing(data):
    source = open_source(data)
    data.rmdir()
    assert source.latest(0, NOW) == 0
    data.mkdir()
    put(data, "a.jsonl", 1)
    assert source.latest(0, NOW) == 1


def test_an_object_store_that_goes_away_is_asked_again_after_a_pause(tmp_path):
    objects = Double()
    source = FilesSource(parse_config({"path": objects.open()}), tmp_path)
    objects.put("1.jsonl", b'{"ts": 1, "n": 1}\n')
    assert source.latest(0, NOW) == 1
    [read] = source.reads(0, 1)
    objects.put("2.jsonl", b'{"ts": 2, "n": 2}\n')
    objects.away = True
    assert source.latest(1, NOW) == 1, "no news, and the stream goes on"
    with pytest.raises(Unavailable):
        read.load(SCHEMA)
    objects.away = False
    assert source.latest(1, NOW + 499) == 1
    assert source.latest(1, NOW + 500) == 2
    assert numbers(source, 0, 2) == [1, 2]


def test_a_list_that_takes_long_holds_up_nobody_and_is_not_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "_ASK_S", 0.01)
    goes_on, objects = threading.Event(), Double()
    objects.put("1.jsonl", b'{"ts": 1, "n": 1}\n')
    source = FilesSource(parse_config({"path": objects.open()}), tmp_path)
    act, asked = objects.list, []
    monkeypatch.setattr(objects, "list", lambda folder="": (asked.append(1), goes_on.wait(), act(folder))[-1])
    assert [source.latest(0, NOW) for _ in range(3)] == [0, 0, 0] and len(asked) == 1
    goes_on.set()
    while source.latest(0, NOW) == 0:
        pass
    assert len(asked) == 1 and numbers(source, 0, 1) == [1]


def test_reads_are_picklable(data):
    put(data, "ä \U0001f600.jsonl", 1)
    source = open_source(data)
    source.latest(0, NOW)
    [read] = pickle.loads(pickle.dumps(source.reads(0, 1)))
    assert read.load(SCHEMA).table["n"].to_pylist() == [1]


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_every_file_is_read_exactly_once_whatever_happens(tmp_path_factory, data):
    """Files appear in any order; the platform plans, commits, forgets to commit, and restarts."""
    directory = tmp_path_factory.mktemp("life") / "data"
    directory.mkdir()
    source = open_source(directory, max_files="3")
    committed, seen, names = 0, [], list(data.draw(st.permutations(range(8))))
    for action in data.draw(st.lists(st.sampled_from(["put", "epoch", "lost epoch", "restart"]), max_size=20)):
        if action == "put" and names:
            n = names.pop()
            put(directory, f"{n}.jsonl", n)
        elif action == "epoch":
            end = source.latest(committed, NOW)
            seen += numbers(source, committed, end)
            committed = end
        elif action == "lost epoch":
            source.latest(committed, NOW)
        elif action == "restart":
            source = open_source(directory, max_files="3")
    while (end := source.latest(committed, NOW)) > committed:
        seen += numbers(source, committed, end)
        committed = end
    assert sorted(seen) == sorted(set(range(8)) - set(names))
    assert numbers(open_source(directory), 0, committed) == seen


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "needs the option path"),
        ({"path": ""}, "path"),
        ({"path": "a\0b"}, "path"),
        ({"path": "{data}/nowhere"}, "there is no directory"),
        ({"path": "{data}", "format": "xml"}, "parquet, csv, jsonl"),
        ({"path": "{data}", "pattern": "../*"}, "without directories"),
        ({"path": "{data}", "max_files": "none"}, "max_files"),
        ({"path": "{data}", "settle_ms": "-1"}, "settle_ms"),
        ({"path": "{data}", "delimiter": "||"}, "one character"),
        ({"path": "{data}", "patern": "*"}, "did you mean pattern"),
        ({"path": "{data}", "shared": "yes"}, "one of true, false"),
        ({"path": "s3://bucket/in", "shared": "true"}, "all machines see them"),
        ({"path": "s3://bucket/in", "settle_ms": "5"}, "objects of a store appear whole"),
        ({"path": "file:///tmp/in"}, "expected a path"),
        ({"path": "s3://"}, "s3://bucket/folder"),
        ({"path": "nothing://a/b"}, "neither a path nor a URI that pyarrow knows"),
    ],
)
def test_bad_options(data, options, said):
    filled = tuple((k, v.replace("{data}", str(data))) for k, v in options.items())
    with pytest.raises(InvalidRequest) as caught:
        check_options(ConnectorSpec("files", filled))
    assert caught.value.reason == "BAD_CONNECTOR_OPTION"
    assert said in str(caught.value)


def test_paths_can_be_confined(data, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (data / "link").symlink_to(outside)
    spec = lambda path: ConnectorSpec("files", (("path", str(path)),))  # noqa: E731
    check_options(spec(data), allowed_roots=[data])
    for path in (outside, data / ".." / "outside", data / "link"):
        with pytest.raises(InvalidRequest, match="a path inside"):
            check_options(spec(path), allowed_roots=[data])
        with pytest.raises(InvalidRequest, match="a path inside"):
            make_source(spec(path), SCHEMA, tmp_path / "state", allowed_roots=[data])


@pytest.mark.parametrize(
    ("uri", "allowed"),
    [
        ("s3://bucket/in", True),
        ("s3://bucket/in/", True),
        ("s3://bucket/in/deep", True),
        ("s3://bucket/inner", False),
        ("s3://bucket/in/../other", False),
        ("s3://bucket", False),
        ("s3://key:secret@bucket/in", False),
        ("s3://bucket/in?endpoint_override=10.0.0.1:80", False),
        ("hdfs://bucket/in", False),
    ],
)
def test_uris_can_be_confined(tmp_path, uri, allowed):
    options = {"path": uri}
    for roots in ((tmp_path, "s3://bucket/in"), ("s3://bucket/in/",)):
        if allowed:
            assert parse_config(options, roots).folder.uri == uri
        else:
            with pytest.raises(InvalidRequest) as caught:
                parse_config(options, roots)
            assert caught.value.reason == "BAD_CONNECTOR_OPTION" and "secret" not in str(caught.value)
    for roots in ((tmp_path,), NOWHERE):
        with pytest.raises(InvalidRequest) as caught:
            parse_config(options, roots)
        assert caught.value.reason == "BAD_CONNECTOR_OPTION"
    with pytest.raises(InvalidRequest, match="a path inside"):
        parse_config({"path": str(tmp_path)}, ("s3://bucket/in",))


def test_a_stream_can_be_read_from_another_place_on(data):
    for n in range(3):
        put(data, f"{n}.jsonl", n)
    source = open_source(data, max_files="1")
    stands = source.latest(0, NOW)
    assert stands == 1
    assert source.seek("latest", stands, NOW) == 3, "all that are there are left out"
    assert source.seek("earliest", stands, NOW) == 0 and source.seek("2", stands, NOW) == 2
    put(data, "3.jsonl", 3)
    assert source.latest(3, NOW) == 4 and numbers(source, 3, 4) == [3]
    assert numbers(open_source(data), 0, 4) == [0, 1, 2, 3]
    with pytest.raises(InvalidRequest, match="from 0 to 4"):
        source.seek("5", 4, NOW)
