"""Sinks: an epoch written twice counts once (where that is promised), and odd names and values do no harm."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from optimizer.errors import InvalidRequest
from runtime.connectors.base import ConnectorSpec
from runtime.connectors.files import FilesSource, parse_config
from runtime.connectors.registry import check_options, make_sink
from runtime.connectors.sinks import BlackholeSink, ConsoleSink, ParquetSink
from runtime.files import safe_name


def rows(*values: int) -> pa.Table:
    start = pa.array([1000] * len(values), pa.timestamp("ms"))
    end = pa.array([2000] * len(values), pa.timestamp("ms"))
    return pa.table({"window_start": start, "window_end": end, "a.n": pa.array(values, pa.int64())})


def test_parquet_replaces_an_epoch_and_keeps_the_others(tmp_path):
    sink = make_sink(ConnectorSpec("parquet", (("path", str(tmp_path / "out")),)))
    sink.write("q1", 1, rows(1, 2))
    sink.write("q1", 2, rows(3))
    sink.write("q2", 2, rows(9))
    sink.write("q1", 2, rows(4, 5))
    names = sorted(str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*") if p.is_file())
    assert names == [
        "q1/epoch-0000000001.parquet",
        "q1/epoch-0000000002.parquet",
        "q2/epoch-0000000002.parquet",
    ]
    assert pq.read_table(tmp_path / "out/q1/epoch-0000000002.parquet").equals(rows(4, 5))
    sink.close()


def test_parquet_writes_no_empty_files_and_takes_back_what_a_repeated_epoch_no_longer_has(tmp_path):
    sink = ParquetSink(tmp_path)
    sink.write("q", 1, rows())
    assert list(tmp_path.rglob("*.parquet")) == []
    sink.write("q", 1, rows(1))
    sink.write("q", 1, rows())
    assert list(tmp_path.rglob("*.parquet")) == []


@pytest.mark.parametrize("compression", ["zstd", "snappy", "none"])
def test_parquet_compressions(tmp_path, compression):
    options = (("path", str(tmp_path)), ("compression", compression))
    make_sink(ConnectorSpec("parquet", options)).write("q", 1, rows(1))
    assert pq.read_table(tmp_path / "q" / "epoch-0000000001.parquet").equals(rows(1))


@pytest.mark.parametrize("id", ["../../etc", "..", ".", "", "_q", "a/b", "ü \U0001f600", "x" * 1000, "a\0b", "%2E"])
def test_any_query_id_becomes_one_directory_inside_the_path(tmp_path, id):
    ParquetSink(tmp_path / "out").write(id, 1, rows(1))
    [file] = tmp_path.rglob("*.parquet")
    assert file.parent.parent == tmp_path / "out"
    assert not file.parent.name.startswith((".", "_"))


@given(st.text(st.characters(codec=None), max_size=300), st.text(st.characters(codec=None), max_size=300))
@settings(max_examples=200, deadline=None)
def test_different_ids_never_share_a_directory(a, b):
    assert (safe_name(a) == safe_name(b)) == (a == b)
    assert "/" not in safe_name(a)
    assert 0 < len(safe_name(a).encode()) < 256


def test_the_parquet_sink_can_feed_a_files_source(tmp_path):
    sink = ParquetSink(tmp_path / "out")
    sink.write("q", 1, rows(1))
    source = FilesSource(parse_config({"path": str(tmp_path / "out" / "q")}), tmp_path / "state")
    assert source.latest(0, 0) == 1
    assert source.latest(1, 0) == 1


def printed(sink_limit: int, table: pa.Table, query: str = "q1") -> str:
    out = io.StringIO()
    ConsoleSink(sink_limit, Console(file=out, width=120, force_terminal=False)).write(query, 12, table)
    return out.getvalue()


def test_console_prints_readable_rows_up_to_the_limit():
    text = printed(2, rows(1, 2, 3))
    assert "query q1 · epoch 12 · 3 rows (1 not shown)" in text
    assert "1970-01-01 00:00:01.000" in text
    assert text.count("1970-01-01 00:00:02.000") == 2
    assert printed(5, rows()) == ""


def test_console_shows_data_as_it_is():
    table = pa.table(
        {
            "[bold]x": pa.array(["[red]not markup[/]", None]),
            "far": pa.array([2**62, -1], pa.timestamp("ms")),
            "raw": pa.array([b"\xff", None]),
        }
    )
    text = printed(5, table, query="[blink]q")
    assert "[red]not markup[/]" in text
    assert "[bold]x" in text
    assert "[blink]q" in text
    assert "NULL" in text
    assert str(2**62) in text
    assert "1969-12-31 23:59:59.999" in text


def test_console_limit_option(capsys):
    make_sink(ConnectorSpec("console", (("limit", "1"),))).write("q", 1, rows(41, 42))
    out = capsys.readouterr().out
    assert "41" in out
    assert "42" not in out


def test_blackhole_counts_each_epoch_once():
    sink = make_sink(ConnectorSpec("blackhole"))
    assert isinstance(sink, BlackholeSink)
    for epoch, count in [(1, 2), (2, 3), (2, 4), (3, 0), (3, 1)]:
        sink.write("q", epoch, rows(*range(count)))
    sink.write("p", 3, rows(1))
    assert sink.rows == {"q": 2 + 4 + 1, "p": 1}


@pytest.mark.parametrize(
    ("kind", "options", "reason", "said"),
    [
        ("parquet", {}, "BAD_CONNECTOR_OPTION", "needs the option path"),
        ("parquet", {"path": "x", "compression": "lz"}, "BAD_CONNECTOR_OPTION", "zstd, snappy, none"),
        ("console", {"limit": "all"}, "BAD_CONNECTOR_OPTION", "limit"),
        ("blackhole", {"path": "x"}, "BAD_CONNECTOR_OPTION", "no option 'path'"),
        ("parket", {}, "UNKNOWN_CONNECTOR", "did you mean parquet?"),
        ("generator", {}, "UNKNOWN_CONNECTOR", "no sink 'generator'"),
    ],
)
def test_bad_sinks(kind, options, reason, said):
    with pytest.raises(InvalidRequest) as caught:
        make_sink(ConnectorSpec(kind, tuple(options.items())))
    assert caught.value.reason == reason
    assert said in str(caught.value)


def test_checking_a_sink_leaves_no_trace(tmp_path: Path):
    check_options(ConnectorSpec("parquet", (("path", str(tmp_path / "new")),)))
    assert list(tmp_path.iterdir()) == []
