"""All kinds of sources and sinks by name, with the options they know.

A kind is one entry in SOURCES or SINKS: its options, a check that needs no side effects, and a function that
opens it. A connector of your own adds an entry (`SOURCES["mine"] = SourceKind(...)`) before the platform
starts; nothing else has to know about it. `check_options` is for the moment a user creates a stream or query;
opening again after a restart repeats only what does not depend on the outside world, so a directory that went
away stops nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optimizer.errors import InvalidRequest
from optimizer.model.types import StreamSchema
from runtime.connectors import files, generator, push, sinks
from runtime.connectors.base import ConnectorSpec, Sink, Source
from runtime.connectors.kafka import sink as kafka_sink
from runtime.connectors.kafka import source as kafka_source
from runtime.connectors.options import Option, Root, check_names, nearest

Roots = Sequence[Root]


@dataclass(frozen=True, slots=True)
class SourceKind:
    """`check` raises for bad values; `open` also gets a directory that is the stream's own."""

    summary: str
    options: tuple[Option, ...]
    check: Callable[[Mapping[str, str], StreamSchema | None, Roots], None]
    open: Callable[[Mapping[str, str], StreamSchema, Path, Roots], Source]


@dataclass(frozen=True, slots=True)
class SinkKind:
    """Opening a sink has no side effects before its first write, so opening it also checks its options.

    When a query is created, `check` says whether rows with these columns can be written, and `reach` whether the place
    they go to is there, as far as one can tell within seconds. Both raise if not, and leave nothing behind.
    """

    summary: str
    options: tuple[Option, ...]
    open: Callable[[Mapping[str, str], Roots], Sink]
    check: Callable[[Any, Sequence[str]], None] = lambda sink, columns: None
    reach: Callable[[Any], None] = lambda sink: None


def _check_generator(options: Mapping[str, str], schema: StreamSchema | None, roots: Roots) -> None:
    generator.parse_config(options, schema)


def _open_generator(options: Mapping[str, str], schema: StreamSchema, state_dir: Path, roots: Roots) -> Source:
    return generator.GeneratorSource(generator.parse_config(options, schema))


def _check_files(options: Mapping[str, str], schema: StreamSchema | None, roots: Roots) -> None:
    files.parse_config(options, roots).folder.check()


def _open_files(options: Mapping[str, str], schema: StreamSchema, state_dir: Path, roots: Roots) -> Source:
    return files.FilesSource(files.parse_config(options, roots), state_dir)


def _check_push(options: Mapping[str, str], schema: StreamSchema | None, roots: Roots) -> None:
    """Has no options."""


def _open_push(options: Mapping[str, str], schema: StreamSchema, state_dir: Path, roots: Roots) -> Source:
    return push.PushSource(state_dir / "push")


def _check_kafka(options: Mapping[str, str], schema: StreamSchema | None, roots: Roots) -> None:
    kafka_source.parse_config(options, roots)


def _open_kafka(options: Mapping[str, str], schema: StreamSchema, state_dir: Path, roots: Roots) -> Source:
    return kafka_source.KafkaSource(kafka_source.parse_config(options, roots))


SOURCES: dict[str, SourceKind] = {
    "generator": SourceKind("seeded random tuples", generator.OPTIONS, _check_generator, _open_generator),
    "files": SourceKind("a directory of data files", files.OPTIONS, _check_files, _open_files),
    "kafka": SourceKind("a Kafka topic", kafka_source.OPTIONS, _check_kafka, _open_kafka),
    "push": SourceKind("tuples handed over by the caller", push.OPTIONS, _check_push, _open_push),
}

SINKS: dict[str, SinkKind] = {
    "parquet": SinkKind(
        "one Parquet file per epoch", sinks.PARQUET_OPTIONS, sinks.open_parquet, reach=sinks.ParquetSink.reach
    ),
    "kafka": SinkKind(
        "a Kafka topic per query",
        kafka_sink.OPTIONS,
        kafka_sink.open_kafka,
        kafka_sink.KafkaSink.check,
        kafka_sink.KafkaSink.reach,
    ),
    "console": SinkKind("rows on standard output", sinks.CONSOLE_OPTIONS, sinks.open_console),
    "blackhole": SinkKind("counts and forgets", sinks.BLACKHOLE_OPTIONS, sinks.open_blackhole),
}


def make_source(spec: ConnectorSpec, schema: StreamSchema, state_dir: Path, *, allowed_roots: Roots = ()) -> Source:
    """`state_dir` must belong to this stream alone and live as long as its offsets."""
    kind = _source_kind(spec)
    check_names(spec.kind, spec.options, kind.options)
    return kind.open(spec.settings, schema, state_dir, allowed_roots)


def make_sink(spec: ConnectorSpec, *, allowed_roots: Roots = ()) -> Sink:
    kind = _sink_kind(spec)
    check_names(spec.kind, spec.options, kind.options)
    return kind.open(spec.settings, allowed_roots)


def check_source(spec: ConnectorSpec, schema: StreamSchema | None = None, *, allowed_roots: Roots = ()) -> None:
    """Raise InvalidRequest (UNKNOWN_CONNECTOR, BAD_CONNECTOR_OPTION) if this cannot be a stream's source."""
    kind = _source_kind(spec)
    check_names(spec.kind, spec.options, kind.options)
    kind.check(spec.settings, schema, allowed_roots)


def check_sink(spec: ConnectorSpec, *, allowed_roots: Roots = (), columns: Sequence[str] | None = None) -> None:
    """The options; with the `columns` of the rows also whether they go with them."""
    with closing(make_sink(spec, allowed_roots=allowed_roots)) as sink:
        if columns is not None:
            SINKS[spec.kind].check(sink, columns)


def reach_sink(spec: ConnectorSpec, *, allowed_roots: Roots = ()) -> None:
    """Is there what the sink writes to? May take seconds."""
    with closing(make_sink(spec, allowed_roots=allowed_roots)) as sink:
        SINKS[spec.kind].reach(sink)


def check_options(spec: ConnectorSpec, schema: StreamSchema | None = None, *, allowed_roots: Roots = ()) -> None:
    """`check_source` or `check_sink`, whichever knows the kind; a kind that is both is taken as a source."""
    if spec.kind in SINKS and spec.kind not in SOURCES:
        check_sink(spec, allowed_roots=allowed_roots)
    elif spec.kind in SOURCES:
        check_source(spec, schema, allowed_roots=allowed_roots)
    else:
        raise _unknown("connector", spec.kind, {**SOURCES, **SINKS})


def _source_kind(spec: ConnectorSpec) -> SourceKind:
    if spec.kind not in SOURCES:
        raise _unknown("source", spec.kind, SOURCES)
    return SOURCES[spec.kind]


def _sink_kind(spec: ConnectorSpec) -> SinkKind:
    if spec.kind not in SINKS:
        raise _unknown("sink", spec.kind, SINKS)
    return SINKS[spec.kind]


def _unknown(role: str, kind: str, known: Mapping[str, object]) -> InvalidRequest:
    return InvalidRequest(f"there is no {role} {kind!r}", reason="UNKNOWN_CONNECTOR", hint=nearest(kind, known))
