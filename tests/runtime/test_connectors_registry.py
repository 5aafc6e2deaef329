"""The registry: known kinds, known options, and a place for kinds to come."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from optimizer.errors import InvalidRequest
from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime import connectors
from runtime.connectors.base import ConnectorSpec, Sink, Source
from runtime.connectors.generator import GeneratorSource
from runtime.connectors.options import Option
from runtime.connectors.registry import (
    SINKS,
    SOURCES,
    SourceKind,
    check_options,
    check_source,
    make_sink,
    make_source,
)

SCHEMA = StreamSchema("S", (Column("ts", ColumnType.TIMESTAMP),), time="ts")
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", sorted(set(SOURCES) - {"kafka"}))  # asks its broker where to start
def test_every_source_can_be_opened_and_starts_empty(kind, tmp_path):
    (tmp_path / "data").mkdir()
    options = (("path", str(tmp_path / "data")),) if kind == "files" else ()
    spec = ConnectorSpec(kind, options)
    check_options(spec, SCHEMA)
    source: Source = make_source(spec, SCHEMA, tmp_path / "state")
    assert source.reads(source.initial(), source.initial()) == []
    source.trim([source.initial()])
    assert source.may_read_ahead is (kind != "push")
    if kind != "push":
        with pytest.raises(InvalidRequest, match="stream 'S' reads from its own source") as refused:
            source.pushable("S")
        assert refused.value.reason == "NOT_A_PUSH_STREAM"


@pytest.mark.parametrize("kind", sorted(SINKS))
def test_opening_and_closing_a_sink_leaves_nothing_behind(kind, tmp_path, capsys):
    """Opening is how a sink's options are checked, so it must not write or call anybody."""
    options = {"parquet": (("path", str(tmp_path)),), "kafka": (("bootstrap", "127.0.0.1:9"),)}
    sink: Sink = make_sink(ConnectorSpec(kind, options.get(kind, ())))
    sink.close()
    assert list(tmp_path.iterdir()) == [] and capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("spec", "reason", "said"),
    [
        (ConnectorSpec("genrator"), "UNKNOWN_CONNECTOR", "did you mean generator?"),
        (ConnectorSpec("qqqqqq"), "UNKNOWN_CONNECTOR", "known: blackhole, console"),
        (ConnectorSpec("generator", (("rat", "1"),)), "BAD_CONNECTOR_OPTION", "did you mean rate?"),
        (ConnectorSpec("generator", (("rate", "1"), ("rate", "2"))), "BAD_CONNECTOR_OPTION", "given twice"),
        (ConnectorSpec("push", (("x", "1"),)), "BAD_CONNECTOR_OPTION", "no option 'x'"),
    ],
)
def test_mistakes_get_the_nearest_name(spec, reason, said):
    with pytest.raises(InvalidRequest) as caught:
        check_options(spec)
    assert caught.value.reason == reason
    assert said in str(caught.value)


def test_a_sink_is_no_source(tmp_path):
    for use in (lambda s: check_source(s, SCHEMA), lambda s: make_source(s, SCHEMA, tmp_path)):
        with pytest.raises(InvalidRequest, match="no source 'parquet'"):
            use(ConnectorSpec("parquet", (("path", "x"),)))


def test_a_connector_of_your_own(monkeypatch, tmp_path):
    asked = []

    def open_mine(options, schema, state_dir, roots):
        asked.append((options["topic"], schema.name, state_dir))
        return GeneratorSource(connectors.registry.generator.parse_config({}, schema))

    mine = SourceKind(
        "mine", (Option("topic", "which one", required=True), Option("x.", "any")), lambda *a: None, open_mine
    )
    monkeypatch.setitem(SOURCES, "mine", mine)
    spec = ConnectorSpec("mine", (("topic", "t"), ("x.y", "1")))
    check_options(spec, SCHEMA)
    make_source(spec, SCHEMA, tmp_path)
    assert asked == [("t", "S", tmp_path)]
    with pytest.raises(InvalidRequest, match="needs the option topic"):
        make_source(ConnectorSpec("mine"), SCHEMA, tmp_path)


def test_reads_import_neither_spark_nor_the_other_connectors():
    program = (
        "import sys, runtime.connectors.generator; "
        "print([m for m in ('pyspark', 'pandas', 'numba', 'grpc', 'rich', 'runtime.connectors.registry') "
        "if m in sys.modules]);"
        "import runtime.connectors.files, runtime.connectors.push; "
        "print([m for m in ('pyspark', 'pandas', 'numba', 'grpc', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == ["[]", "[]"]


def test_the_package_offers_the_registry():
    assert connectors.make_source is make_source
    with pytest.raises(AttributeError):
        connectors.nonsense  # noqa: B018
