"""The tuples of an experiment: Parquet files, made once, read by every system.

A stream is a sequence of *chunks*, one file each, of `chunk_seconds` of event time in order. Every attribute is
uniform in [0, keys), with its own seed per stream, as in the paper. Each system reads a *prefix* of the chunks, long
enough to keep it busy and short enough for its time limit; a prefix is a directory of hard links, so nothing is
copied.

Flink deals splits of a file out to its readers in no promised order, and a tuple that comes after a later one is
late. So it gets the same prefix as two files a stream (one for each reader, tuples dealt in turn, one row group each,
which cannot be split): then each reader sees event time in order. That costs Flink nothing in the measurement; the
files are written before.

With `phase_chunks`, the last attribute is not the same for ever: in one phase a condition on it passes one tuple in
SWING of the first stream and every tuple of the last one, in the next it is the other way round.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from experiments.template import ATTRIBUTES, TIME

SPARE = ATTRIBUTES - 1
"""An attribute that is left for selections where a workload needs one that no join uses."""

SWING = 200


@dataclass(frozen=True, slots=True)
class DataSpec:
    """`event_rate`: tuples per second of event time and stream."""

    streams: int
    keys: int
    event_rate: int
    chunk_seconds: int
    chunks: int
    seed: int
    phase_chunks: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"S{i + 1}" for i in range(self.streams))

    @property
    def tuples_per_chunk(self) -> int:
        """Of one stream."""
        return self.event_rate * self.chunk_seconds

    @property
    def digest(self) -> str:
        return hashlib.blake2b(json.dumps(asdict(self)).encode(), digest_size=6).hexdigest()


class Dataset:
    """Chunks are written when a prefix first needs them."""

    def __init__(self, spec: DataSpec, directory: Path) -> None:
        self.spec = spec
        self.directory = directory / spec.digest

    def prefix(self, chunks: int, layout: str = "chunks") -> Path:
        """A directory with one folder per stream: `layout` 'chunks' (a file per chunk) or 'readers' (one
        per reader).
        """
        path = self.directory / f"{layout}-{chunks}"
        if path.exists():
            return path
        making = path.with_name(f".{path.name}.{os.getpid()}")
        for stream in self.spec.names:
            (making / stream).mkdir(parents=True)
            files = [self._chunk(stream, i) for i in range(chunks)]
            if layout == "readers":
                _deal(files, making / stream, readers=2)
                continue
            for file in files:
                os.link(file, making / stream / file.name)
        making.rename(path)
        return path

    def tuples(self, chunks: int, streams: int) -> int:
        return self.spec.tuples_per_chunk * chunks * streams

    def remove(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    def _chunk(self, stream: str, number: int) -> Path:
        path = self.directory / "made" / stream / f"{number:06d}.parquet"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(make_chunk(self.spec, stream, number), path)
        return path


def make_chunk(spec: DataSpec, stream: str, number: int) -> pa.Table:
    """A pure function of its arguments."""
    n = spec.tuples_per_chunk
    rng = np.random.default_rng([spec.seed, spec.names.index(stream), number])
    times = (np.arange(n, dtype=np.int64) + number * n) * 1000 // spec.event_rate
    values = {f"a{i}": rng.integers(0, spec.keys, n, dtype=np.int64) for i in range(ATTRIBUTES)}
    if spec.phase_chunks and stream in (spec.names[0], spec.names[-1]):
        odd = number // spec.phase_chunks % 2
        if odd == (stream == spec.names[0]):
            values[f"a{SPARE}"] //= SWING
    return pa.table(values | {TIME: times})


def _write(table: pa.Table, path: Path) -> None:
    """Uncompressed and without dictionaries: plain columns, quick to read for everybody."""
    making = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    pq.write_table(table, making, compression="none", use_dictionary=False, row_group_size=max(1, table.num_rows))
    making.rename(path)


def _deal(files: list[Path], directory: Path, readers: int) -> None:
    table = pa.concat_tables([pq.read_table(f) for f in files])
    for reader in range(readers):
        rows = pa.array(np.arange(reader, table.num_rows, readers))
        _write(table.take(rows), directory / f"reader-{reader}.parquet")
