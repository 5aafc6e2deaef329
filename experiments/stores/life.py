"""One engine over two generated streams with one two-way join; every step is an epoch with a second of event time.

Tuples have three BIGINT columns, uniform over as many keys as there are tuples per stream and epoch (`spread` times
as many where rows would only cost time), and an event time. `hopping` windows advance by an epoch, so that as many
buckets are open at any time; tumbling ones close all at once.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from ajoin.sql import parse_query
from experiments.larger_than_memory import checksum
from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.api import CreateQuery
from runtime.connectors.base import ConnectorSpec
from runtime.connectors.generator import GeneratorSource, parse_config
from runtime.engine.config import EngineConfig
from runtime.engine.engine import Engine
from runtime.execution.executor import Executor, LocalExecutor
from runtime.store.objects import below

COLUMNS = ("k", "a", "b")


class Line(NamedTuple):
    """A row of the report. `met` None: there is nothing to meet."""

    what: str
    value: str
    target: str = ""
    met: bool | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """`reads`: source tasks per stream; `window` in epochs."""

    tuples: int
    window: int = 2
    hopping: bool = False
    reads: int = 1
    partitions: int = 2
    spread: int = 1

    @property
    def sql(self) -> str:
        size = f"SIZE {self.window} SECONDS"
        window = f"HOPPING ({size}, ADVANCE BY 1 SECOND)" if self.hopping else f"TUMBLING ({size})"
        return f"SELECT V.k, V.a, W.b FROM V JOIN W ON V.k = W.k WINDOW {window}"

    def stream(self, name: str, seed: int) -> tuple[StreamSchema, ConnectorSpec]:
        typed = tuple(Column(c, ColumnType.BIGINT) for c in COLUMNS)
        options = {f"column.{c}": f"uniform(1,{self.spread * self.tuples})" for c in COLUMNS}
        options |= {"rate": str(self.tuples), "seed": str(seed), "batch": str(2 * self.tuples)}
        options["partitions"] = str(self.reads)
        schema = StreamSchema(name, (*typed, Column("ts", ColumnType.TIMESTAMP)), "ts")
        return schema, ConnectorSpec("generator", tuple(sorted(options.items())))


def tables(load: Load, name: str, seed: int, epochs: int) -> Iterator[pa.Table]:
    """What the stream brings when a life opens, and in each of so many epochs."""
    schema, spec = load.stream(name, seed)
    source = GeneratorSource(parse_config(spec.settings, schema))
    start = source.initial()
    for epoch in range(epochs + 1):
        end = source.latest(start, 1000 * epoch)
        yield pa.concat_tables([read.load(schema).table for read in source.reads(start, end)])
        start = end


class Life:
    """`inputs`: the URI of a folder with a folder per stream, whose files bring what would be generated, one each
    epoch."""

    def __init__(
        self, folder: Path, executor: Executor, store: str | None, load: Load, inputs: str = "", cache_bytes: int = 0
    ) -> None:
        self.load, self.now = load, 0
        self.taken: list[float] = []
        config = EngineConfig(partitions=load.partitions, store=store, pipelined=False, cache_bytes=cache_bytes)
        self.engine = Engine.open(folder, executor, config, lambda: self.now)
        for seed, name in enumerate(("V", "W")):
            schema, spec = load.stream(name, seed)
            if inputs:
                spec = ConnectorSpec("files", (("path", below(inputs, name)), ("max_files", "1")))
            self.engine.create_stream(schema, spec)
        self.engine.apply([CreateQuery("q", parse_query(load.sql, self.engine.schemas()))])
        self.engine.run_epoch()

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.now += 1000
            report = self.engine.run_epoch()
            assert report.tuples == 2 * self.load.tuples, report
            self.taken.append(self.engine.status().epoch_seconds)

    @property
    def open_bytes(self) -> dict[str, int]:
        """Files of the state and their sizes."""
        state = self.engine.state
        return {ref.file: ref.bytes for refs in (state.sources, state.joined) for ref in refs.values()}

    def written(self, epochs: int) -> int:
        """Bytes of the buckets of the last so many epochs, which must all be open still."""
        state = self.engine.state
        refs = [*state.sources.values(), *state.joined.values()]
        return sum(ref.bytes for ref in refs if ref.epoch > state.epoch - epochs)

    def rows(self) -> tuple[int, int]:
        """How many rows there are, and a number that depends on every value of every one but not on their order."""
        count = mixed = 0
        for epoch in range(1, self.engine.epoch + 1):
            for batch in self.engine.delivered(epoch):
                count += batch.rows.num_rows
                mixed = (mixed + checksum(batch)) % (1 << 64)
        return count, mixed

    def close(self) -> tuple[int, int]:
        """What it delivered."""
        rows = self.rows()
        self.engine.close()
        return rows


def plain(folder: Path, load: Load, epochs: int) -> tuple[int, int]:
    """What the same life delivers without Spark and without a store."""
    life = Life(folder, LocalExecutor(), None, load)
    life.steps(epochs)
    return life.close()


def ratio(few: Sequence[float], many: Sequence[float]) -> float:
    """Median over pairs of epochs that followed each other."""
    return statistics.median(a / b for a, b in zip(few, many, strict=True))
