"""Query sets of sampled tuples, kept as one bit column per query.

The paper's Crd (equation 1) is the size of a union of possibly intersecting sets. With a sample of tuples it needs no
inclusion-exclusion: a query's *column* is an integer with bit r set when sampled tuple r passes its selection, the
union of any number of queries is the OR of their columns, and its size is a population count:

    |A ∪ B ∪ C| / rows = popcount(a | b | c) / rows          |A ∩ B| / rows = popcount(a & b) / rows

One OR of a 1,024-row column takes some 50 ns, so a union costs one step per query, and never a scan over pairs. All
pairs at once (grouping needs that) are one matrix product of the unpacked columns, see `intersections`.

A sample slides: new rows push the oldest out, and one epoch brings at most `fresh` of them, so it forgets exponentially
like every other statistic. A query that was not there when a row was sampled gets a guess in that row: a pseudo-random
bit with the query's known (or the default) selectivity, derived from its selection, so that equal selections get
equal guesses and every run gets the same ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROWS = 1024
DEFAULT_SELECTIVITY = 0.3


@dataclass(frozen=True)
class QuerySetSample:
    """`bits[r, c]` says whether sampled tuple r passes the selection of query `uids[c]` on this leaf.

    The rows must be drawn from *all* accepted tuples of the stream, also those that no query wants: the number of
    rows is the denominator of every selectivity.
    """

    uids: tuple[str, ...]
    bits: NDArray[np.uint8] | NDArray[np.bool_]


@dataclass(frozen=True)
class Sample:
    """The sliding sample of one leaf, a value: `pushed` makes the next one. Row 0 is the newest."""

    rows: int = 0
    columns: Mapping[str, int] = field(default_factory=dict)

    def pushed(self, report: QuerySetSample, fresh: int) -> Sample:
        """With one epoch's rows taken in. Queries the report does not name are gone and forgotten."""
        bits = np.asarray(report.bits, dtype=bool)
        if bits.ndim != 2 or bits.shape[1] != len(report.uids) or not bits.shape[0]:
            return self
        limit = ROWS if self.rows == 0 else fresh
        if bits.shape[0] > limit:  # evenly spread, so that an ordered report loses no end
            bits = bits[np.linspace(0, bits.shape[0] - 1, limit).astype(np.int64)]
        new = bits.shape[0]
        kept = min(self.rows, ROWS - new)
        old_mask = (1 << kept) - 1
        columns = {}
        for uid, column in zip(report.uids, pack(bits), strict=True):
            old = self.columns.get(uid)
            if old is None:
                old = guess(uid, column.bit_count() / new, kept) if kept else 0
            columns[uid] = column | ((old & old_mask) << new)
        return Sample(kept + new, columns)

    def to_json(self) -> dict[str, Any]:
        return {"rows": self.rows, "columns": {u: f"{c:x}" for u, c in sorted(self.columns.items())}}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Sample:
        return Sample(int(data["rows"]), {u: int(c, 16) for u, c in data["columns"].items()})


def pack(bits: NDArray[np.bool_]) -> list[int]:
    """One integer per column; bit r is row r."""
    packed = np.packbits(bits, axis=0, bitorder="little").T
    return [int.from_bytes(np.ascontiguousarray(c).tobytes(), "little") for c in packed]


def unpack(columns: Sequence[int], rows: int) -> NDArray[np.float32]:
    """The columns as a 0/1 matrix [queries x rows]."""
    width = (rows + 7) // 8
    raw = np.frombuffer(b"".join(c.to_bytes(width, "little") for c in columns), dtype=np.uint8)
    bits = np.unpackbits(raw.reshape(len(columns), width), axis=1, count=rows, bitorder="little")
    return bits.astype(np.float32)


def intersections(columns: Sequence[int], rows: int) -> NDArray[np.float64]:
    """Fractions |A ∩ B| / rows for all pairs, as one matrix product; the diagonal holds the selectivities."""
    matrix = unpack(columns, rows)
    return np.asarray(matrix @ matrix.T, dtype=np.float64) / rows


@lru_cache(maxsize=8192)
def guess(selection: str, selectivity: float, rows: int) -> int:
    """A pseudo-random column: the same for the same selection, independent for different ones."""
    if not selection:
        return (1 << rows) - 1
    seed = int.from_bytes(hashlib.blake2b(selection.encode(), digest_size=8).digest(), "little")
    chosen = np.random.Generator(np.random.PCG64(seed)).random(rows) < selectivity
    return pack(chosen.reshape(rows, 1))[0] if rows else 0
