"""Tuples of stream S on disk, and what queries must make of them.

Two layouts of the same tuples: `chunks`, two files per piece of event time, in order, with every other tuple each, so
that both cores can read; `readers`, two files with every other tuple of all, because Flink reads files in no promised
order and would drop what then comes late.

`expected` is an implementation of its own, by sorting in NumPy, to which all systems are compared: number of rows and
sum of all aggregates, per query, over the windows that end up to a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from experiments.aggregations.workload import COLUMNS, DENSITY, Aggregation

CHECKED_TUPLES = 100_000
HALVES = 2


@dataclass(frozen=True, slots=True)
class Data:
    """`chunk`: tuples in each of `chunks` pieces of event time."""

    folder: Path
    chunk: int
    chunks: int

    @property
    def tuples(self) -> int:
        return self.chunk * self.chunks


def make(folder: Path, chunk: int, chunks: int, density: int = DENSITY, seed: int = 0) -> Data:
    draw = np.random.default_rng(seed)
    (folder / "chunks").mkdir(parents=True)
    (folder / "readers").mkdir()
    tables = []
    for number in range(chunks):
        columns = {name: draw.integers(0, values, chunk) for name, values in COLUMNS.items()}
        ts = (number * chunk + np.arange(chunk, dtype=np.int64)) * 1000 // density
        tables.append(pa.table({**columns, "ts": ts}))
        for half in range(HALVES):
            some = tables[-1].take(pa.array(np.arange(half, chunk, HALVES)))
            pq.write_table(some, folder / "chunks" / f"{number:05d}-{half}.parquet")
    whole = pa.concat_tables(tables)
    for reader in range(2):
        rows = pa.array(np.arange(reader, whole.num_rows, 2))
        pq.write_table(whole.take(rows), folder / "readers" / f"{reader}.parquet")
    return Data(folder, chunk, chunks)


def until_ms(data: Data, density: int) -> int:
    """Windows that end here or before are closed by every system, whether or not it treats the end of data as time."""
    return (data.tuples * 1000 // density) - 1500


def expected(data: Data, queries: Sequence[Aggregation], until: int) -> dict[str, list[int]]:
    files = sorted((data.folder / "chunks").iterdir())
    whole = pa.concat_tables([pq.read_table(f) for f in files])
    read = {name: whole[name].to_numpy() for name in whole.column_names}
    return {q.id: _expected(read, q, until) for q in queries}


def _expected(read: dict[str, np.ndarray], q: Aggregation, until: int) -> list[int]:
    low, high = q.condition or (0, 1 << 62)
    wanted = (read["c"] >= low) & (read["c"] < high)
    key, v, ts = (read[name][wanted] for name in (q.key, "v", "ts"))
    if q.hop is not None:
        return _hopping(key, v, ts, q, until)
    size = 1000 * q.size
    window = np.zeros(len(ts), np.int64) if q.session else ts // size
    order = np.lexsort((ts, window, key))
    key, v, ts, window = key[order], v[order], ts[order], window[order]
    begins = np.ones(len(ts), bool)
    begins[1:] = (key[1:] != key[:-1]) | (window[1:] != window[:-1])
    if q.session:
        begins[1:] |= ts[1:] - ts[:-1] > size
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(ts)) - 1
    ends = ts[last] + size if q.session else (window[first] + 1) * size
    columns = [np.add.reduceat(v, first), last - first + 1, np.maximum.reduceat(v, first)][: q.values]
    done = ends <= until
    return [int(done.sum()), int(sum(c[done].sum() for c in columns))]


def _hopping(key: np.ndarray, v: np.ndarray, ts: np.ndarray, q: Aggregation, until: int) -> list[int]:
    """From a table of (step, group), window by window."""
    assert q.hop is not None
    step = ts // (1000 * q.hop)
    shape = int(step.max()) + 1, int(key.max()) + 1
    sums, counts, greatest = np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.full(shape, -1, np.int64)
    np.add.at(sums, (step, key), v)
    np.add.at(counts, (step, key), 1)
    np.maximum.at(greatest, (step, key), v)
    rows = total = 0
    for end in range(1, until // (1000 * q.hop) + 1):
        inside = slice(max(0, end - q.size // q.hop), end)
        there = counts[inside].any(axis=0)
        columns = [sums[inside].sum(axis=0), counts[inside].sum(axis=0), greatest[inside].max(axis=0, initial=-1)]
        rows += int(there.sum())
        total += int(sum(c[there].sum() for c in columns[: q.values]))
    return [rows, total]
