"""Data files: good rows come through, broken ones are named, a hopeless file is one dead letter."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.connectors import formats
from runtime.connectors.base import Loaded, arrow_schema
from runtime.connectors.formats import format_of, load_file

SCHEMA = StreamSchema(
    "S",
    (
        Column("ts", ColumnType.TIMESTAMP),
        Column("n", ColumnType.BIGINT),
        Column("price", ColumnType.DOUBLE),
        Column("geo", ColumnType.STRING),
        Column("ok", ColumnType.BOOLEAN),
    ),
    time="ts",
)


def rows_of(loaded: Loaded) -> list[tuple]:
    """Tuples in column order, event time as milliseconds."""
    assert loaded.table.schema == arrow_schema(SCHEMA)
    columns = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in loaded.table.columns]
    return list(zip(*(c.to_pylist() for c in columns), strict=True))


def load(tmp_path: Path, name: str, content: bytes, **options: str) -> Loaded:
    path = tmp_path / name
    path.write_bytes(content)
    return load_file(path, format_of(name), SCHEMA, name, **options)


def places(loaded: Loaded) -> list[str]:
    return [d.place for d in loaded.dead]


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("a.parquet", "parquet"),
        ("a.b.CSV", "csv"),
        ("a.csv.gz", "csv"),
        ("a.jsonl", "jsonl"),
        ("a.json.gz", "jsonl"),
        ("a.ndjson", "jsonl"),
        ("a.txt", None),
        ("csv", None),
    ],
)
def test_format_by_name(name, format):
    assert format_of(name) == format


# -- JSON lines ---------------------------------------------------------------------------------------


def lines(*rows: object) -> bytes:
    return b"".join((r if isinstance(r, bytes) else json.dumps(r).encode()) + b"\n" for r in rows)


FULL = {"ts": 1, "n": 2, "price": 3, "geo": "ü", "ok": False}


def test_json_lines_fast_and_careful_agree_on_clean_rows(tmp_path, monkeypatch):
    content = lines(FULL, {"ts": 5, "more": {"deep": [1, 2]}}, {"n": 7, "ts": 6})
    expected = [(1, 2, 3.0, "ü", False), (5, None, None, None, None), (6, 7, None, None, None)]
    assert formats._fast_jsonl(content, SCHEMA) is not None
    assert rows_of(load(tmp_path, "a.jsonl", content)) == expected
    assert rows_of(load(tmp_path, "a.jsonl", b"\xef\xbb\xbf" + content.rstrip(b"\n"))) == expected
    assert rows_of(load(tmp_path, "a.jsonl.gz", gzip.compress(content))) == expected
    assert rows_of(load(tmp_path, "b.json", content.replace(b"\n", b"\r\n"))) == expected
    monkeypatch.setattr(formats, "_fast_jsonl", lambda data, schema: None)
    assert rows_of(load(tmp_path, "a.jsonl", content)) == expected


def test_broken_json_lines_are_named_by_line(tmp_path):
    loaded = load(
        tmp_path,
        "a.jsonl",
        lines(
            {"ts": 1},
            b"{broken",
            b"",
            [1, 2],
            {"ts": "x"},
            b'{"ts": 2} {"ts": 3}',
            b'{"geo": "\xff"}',
            b'{"geo": "\\ud800"}',
            b"null",
            b'{"n": ' + b"9" * 5000 + b"}",
            b"[" * 100_000,
            {"ts": 4},
        ),
    )
    assert [r[0] for r in rows_of(loaded)] == [1, 4]
    assert places(loaded) == [f"a.jsonl line {n}" for n in (2, 4, 5, 6, 7, 8, 9, 10, 11)]
    assert loaded.dead[0].text == "{broken"
    assert "column ts: expected TIMESTAMP" in loaded.dead[2].reason
    assert all(len(d.text) <= 200 for d in loaded.dead)


@pytest.mark.parametrize("content", [b"", b"\n", b"  \n\n"])
def test_files_without_rows(tmp_path, content):
    for name in ("a.jsonl", "a.csv"):
        loaded = load(tmp_path, name, content)
        assert rows_of(loaded) == []
        assert loaded.dead == []


def test_objects_over_two_lines_are_two_broken_lines(tmp_path):
    loaded = load(tmp_path, "a.jsonl", b'{"ts": 1,\n"n": 2}\n{"ts": 3}\n')
    assert [r[0] for r in rows_of(loaded)] == [3]
    assert places(loaded) == ["a.jsonl line 1", "a.jsonl line 2"]


def test_a_line_that_is_just_null_does_not_kill_the_process(tmp_path):
    path = tmp_path / "null.jsonl"
    path.write_bytes(b"null\n")
    program = (
        "from pathlib import Path; from optimizer.model.types import *;"
        "from runtime.connectors.formats import load_file;"
        "s = StreamSchema('S', (Column('ts', ColumnType.TIMESTAMP),), 'ts');"
        f"print(load_file(Path({str(path)!r}), 'jsonl', s, 'f').dead[0].reason)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "expected an object, got null")


row_values = st.one_of(st.none(), st.booleans(), st.integers(-(2**65), 2**65), st.floats(), st.text(max_size=4))


@given(st.lists(st.dictionaries(st.sampled_from(["ts", "n", "price", "geo", "ok", "other"]), row_values), max_size=8))
@settings(max_examples=80, deadline=None)
def test_whatever_the_fast_reader_accepts_the_careful_one_reads_the_same(rows):
    content = lines(*rows)
    careful = formats.decode_rows(rows, SCHEMA, "")
    fast = formats._fast_jsonl(content, SCHEMA)
    if fast is not None:
        assert careful.dead == []
        assert repr(rows_of(Loaded(fast))) == repr(rows_of(careful))


# -- CSV ----------------------------------------------------------------------------------------------


def test_csv_types_nulls_quotes_and_missing_columns(tmp_path):
    content = (
        b"n,ts,geo,ok,unknown\n"
        b"1,1000,DE,true,x\n"
        b' 2 ,1970-01-01T00:00:02.5,"a,""b""\nc",0,\n'
        b',1970-01-01 01:00:03+01:00,"",,\n'
    )
    expected = [
        (1000, 1, None, "DE", True),
        (2500, 2, None, 'a,"b"\nc', False),
        (3000, None, None, None, None),
    ]
    assert rows_of(load(tmp_path, "a.csv", content)) == expected
    assert rows_of(load(tmp_path, "a.csv.gz", gzip.compress(content))) == expected


def test_csv_fast_and_careful_agree_on_clean_rows(tmp_path, monkeypatch):
    content = b'ts,n,price,geo,ok\n1,-5,2.5e1,"x ""y""",TRUE\n2, 0x1f ,nan, z ,\n\n3,,inf,"",false\n'
    fast = load(tmp_path, "a.csv", content)
    assert fast.dead == []
    monkeypatch.setattr(formats, "_fast_csv", lambda *a: None)
    careful = load(tmp_path, "a.csv", content)
    assert repr(rows_of(fast)) == repr(rows_of(careful))
    assert [r[1] for r in rows_of(fast)] == [-5, 31, None]
    assert [r[3] for r in rows_of(fast)] == ['x "y"', " z ", None]


def test_other_delimiters(tmp_path):
    assert rows_of(load(tmp_path, "a.csv", b"ts;n\n1;2\n", delimiter=";")) == [(1, 2, None, None, None)]


def test_broken_csv_lines_are_named_by_line(tmp_path):
    content = (
        b'ts,n,geo\n1,1,a\n2,x,"two\nlines"\n3\n4,4,d,too many\n5,99999999999999999999,e\n6,6,\xff\n'
        b"2024-13-01,7,g\n8,8,h\n"
    )
    loaded = load(tmp_path, "a.csv", content)
    assert [r[0] for r in rows_of(loaded)] == [1, 8]
    assert places(loaded) == [f"a.csv line {n}" for n in (4, 5, 6, 7, 8, 9)]
    assert 'column n: expected BIGINT, got "x"' in loaded.dead[0].reason
    assert "expected 3 fields as in the header, got 1" in loaded.dead[1].reason
    assert "column geo: expected STRING" in loaded.dead[4].reason
    for d in loaded.dead:
        d.text.encode("utf-8")


def test_csv_needs_a_header(tmp_path):
    loaded = load(tmp_path, "a.csv", b"1,2,3\n4,5,6\n")
    assert rows_of(loaded) == []
    assert places(loaded) == ["a.csv"]
    assert "header" in loaded.dead[0].reason
    assert "more than once" in load(tmp_path, "b.csv", b"ts,n,n\n1,2,3\n").dead[0].reason


# -- Parquet and files as such ------------------------------------------------------------------------


def test_parquet(tmp_path):
    table = pa.table({"n": pa.array([1, 2**63], pa.uint64()), "ts": pa.array([1, 2], pa.timestamp("s")), "z": [0, 0]})
    pq.write_table(table, tmp_path / "a.parquet")
    loaded = load_file(tmp_path / "a.parquet", "parquet", SCHEMA, "a.parquet")
    assert rows_of(loaded) == [(1000, 1, None, None, None)]
    assert places(loaded) == ["a.parquet row 2"]


def test_parquet_without_any_known_column_gives_rows_of_nulls(tmp_path):
    pq.write_table(pa.table({"z": [0, 0]}), tmp_path / "a.parquet")
    loaded = load_file(tmp_path / "a.parquet", "parquet", SCHEMA, "a.parquet")
    assert rows_of(loaded) == [(None,) * 5] * 2


def whole_parquet(tmp_path: Path) -> bytes:
    pq.write_table(pa.table({"n": list(range(5000))}), tmp_path / "whole")
    return (tmp_path / "whole").read_bytes()


@pytest.mark.parametrize("name", ["a.parquet", "a.csv.gz", "a.jsonl.gz"])
@pytest.mark.parametrize("content", [b"", b"nonsense", b"PAR1", b"\x1f\x8b\x08"])
def test_corrupt_files_are_one_dead_letter(tmp_path, name, content):
    loaded = load(tmp_path, name, content)
    assert rows_of(loaded) == []
    if content or name == "a.parquet":
        assert places(loaded) == [name]
        assert "cannot be read" in loaded.dead[0].reason


def test_truncated_files_are_one_dead_letter(tmp_path):
    parquet = whole_parquet(tmp_path)
    damaged = parquet[:100] + b"\x00" * 200 + parquet[300:]
    for content in (parquet[: len(parquet) // 2], damaged):
        loaded = load(tmp_path, "a.parquet", content)
        assert places(loaded) == ["a.parquet"]
    packed = gzip.compress(lines(*[{"ts": i} for i in range(1000)]))
    assert places(load(tmp_path, "a.jsonl.gz", packed[: len(packed) // 2])) == ["a.jsonl.gz"]


def test_a_directory_or_nothing_instead_of_a_file(tmp_path):
    (tmp_path / "d.csv").mkdir()
    for name in ("d.csv", "gone.parquet", "gone.jsonl"):
        loaded = load_file(tmp_path / name, format_of(name), SCHEMA, name)
        assert places(loaded) == [name]


def test_trouble_of_the_machine_is_raised_so_that_the_task_is_tried_again(tmp_path, monkeypatch):
    def no_handles(self):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(Path, "read_bytes", no_handles)
    with pytest.raises(OSError, match="Too many"):
        load_file(tmp_path / "a.csv", "csv", SCHEMA, "a.csv")


def test_column_names_that_are_not_text(tmp_path):
    pq.write_table(pa.table({"geo": ["x"]}), tmp_path / "whole", store_schema=False)
    loaded = load(tmp_path, "a.parquet", (tmp_path / "whole").read_bytes().replace(b"geo", b"g\xf4o"))
    assert places(loaded) == ["a.parquet"]


SPOILERS = [b"null", b"\n", b'"', b"{", b"}", b"[", b",", b"\x00", b"\xff", b"-", b"1e999"]


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.jsonl"])
def test_random_damage_never_raises_and_what_comes_through_is_valid(tmp_path, name):
    rows = [{"ts": i, "n": i, "price": i / 2, "geo": "é", "ok": True} for i in range(40)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    csv = "ts,n,geo\n" + "".join(f'{r["ts"]},{r["n"]},"{r["geo"]}"\n' for r in rows)
    whole = {
        "a.parquet": (tmp_path / "rows.parquet").read_bytes(),
        "a.csv": csv.encode(),
        "a.jsonl": lines(*rows),
    }[name]
    chance = random.Random(name)
    for _ in range(150):
        damaged = bytearray(whole)
        for _ in range(chance.choice([1, 1, 3, 20])):
            at = chance.randrange(len(damaged))
            damaged[at : at + chance.randrange(3)] = chance.choice([*SPOILERS, chance.randbytes(1)])
        loaded = load(tmp_path, name, bytes(damaged))
        rows_of(loaded)
        loaded.table.validate(full=True)
        for dead in loaded.dead:
            assert dead.place.startswith(name)
            "".join((dead.place, dead.reason, dead.text)).encode("utf-8")


# -- files that would kill whoever reads them ---------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.csv.gz"])
def test_a_file_that_unpacks_to_more_than_memory_holds(tmp_path, name, monkeypatch):
    monkeypatch.setattr(formats, "UNPACKED", 1 << 20)
    loaded = load(tmp_path, name, gzip.compress(b" " * (50 << 20)))
    assert places(loaded) == [name] and "1,048,576 are the most" in loaded.dead[0].reason
    whole = gzip.compress(lines({"ts": 1}) + b" " * ((1 << 20) - 10))
    assert len(gzip.decompress(whole)) == 1 << 20 and places(load(tmp_path, "b.jsonl.gz", whole)) == []


def test_a_parquet_file_of_few_bytes_and_many_rows(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"ts": pa.array([7] * 3_000_000)}), path)
    assert path.stat().st_size < 1 << 20 and load_file(path, "parquet", SCHEMA, "a").table.num_rows == 3_000_000
    monkeypatch.setattr(formats, "UNPACKED", 1 << 20)
    loaded = load_file(path, "parquet", SCHEMA, "a")
    assert places(loaded) == ["a"] and "split the file" in loaded.dead[0].reason


@pytest.mark.parametrize("deep", [b'{"ts": 1, "n": ' + b"[" * 200_000, b"[" * 200_000, b'{"ts":' * 200_000])
def test_deep_nests_and_long_numbers_harm_only_their_line(tmp_path, deep):
    loaded = load(tmp_path, "a.jsonl", lines({"ts": 1}, deep, b'{"ts": ' + b"9" * 10_000 + b"}", {"ts": 2}))
    assert [r[0] for r in rows_of(loaded)] == [1, 2] and places(loaded) == ["a.jsonl line 2", "a.jsonl line 3"]
