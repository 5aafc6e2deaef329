"""Partial buckets: what queries that fold need of an epoch, immutable and in the order of the hashes of groups.

An entry is one group, piece of time [lo, hi] and query set, with the partials of every component. Since entries lie in
the order of hashes, a partition is a contiguous piece, and rescaling moves nothing. Where partials of several epochs
were put together, every entry still knows its epoch (revisions are counted by that), and one that only stands for
tuples which are gone says for how many (`weights`, count windows; 0: it is itself).

Edges of punctuated windows belong to no group: every reader of a bucket gets all of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from runtime.aggregates.components import Component
from runtime.aggregates.states import State, concat, get_state, put_state
from runtime.buckets.file import BucketFile
from runtime.buckets.indexes import Arrays, entries_within, put_fences, put_times, times_part
from runtime.buckets.views import get_column, put_column
from runtime.columns import column
from runtime.columns.coded_sets import CodedSets, concat_sets
from runtime.columns.column import ColumnData, compacted

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]


class Standing(NamedTuple):
    """Rows that a query was delivered and that may still be revised, where that does not follow from the entries: four
    rows of numbers (start, end, revision, how many entries), and the entries of each row one behind the other."""

    table: I64
    entries: I64


@dataclass(frozen=True, slots=True)
class Partials:
    """`edges[slot]`: (time, epoch) of punctuations of the query in this slot, as two rows of numbers; `firsts[slot]`:
    the same of the first tuple that an epoch brought."""

    hashes: U64
    lo: I64
    hi: I64
    sets: CodedSets
    epochs: I64
    weights: I64
    keys: tuple[ColumnData, ...]
    states: Mapping[Component, State]
    edges: Mapping[int, I64]
    firsts: Mapping[int, I64]
    standing: Mapping[int, Standing] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.hashes)

    def take(self, rows: npt.NDArray[Any]) -> Partials:
        return replace(
            self,
            hashes=self.hashes[rows],
            lo=self.lo[rows],
            hi=self.hi[rows],
            sets=self.sets.take(rows),
            epochs=self.epochs[rows],
            weights=self.weights[rows],
            keys=tuple(k.take(rows) for k in self.keys),
            states={c: s.take(rows) for c, s in self.states.items()},
        )


def put_partials(arrays: Arrays, meta: dict[str, Any], partials: Partials, epoch: int) -> None:
    """`epoch`: that of the bucket, which its reader is told."""
    arrays["hash"] = partials.hashes
    put_fences(arrays, "", partials.hashes)
    put_times(arrays, "lo", partials.lo)
    if (partials.hi != partials.lo).any():
        put_times(arrays, "hi", partials.hi)
    sets = partials.sets.compact()
    arrays["sets"] = sets.table
    if len(sets.table) > 1:
        arrays["sets:codes"] = sets.codes
    if (partials.epochs != epoch).any():
        arrays["epochs"] = partials.epochs
    if partials.weights.any():
        arrays["weights"] = partials.weights
    meta["types"] = {f"k{i}": k.type for i, k in enumerate(partials.keys)}
    for i, key in enumerate(partials.keys):
        put_column(arrays, f"k{i}", compacted(key))
    for component, state in partials.states.items():
        put_state(arrays, prefix(component), state)
    meta["edges"] = sorted(partials.firsts)
    for slot, first in partials.firsts.items():
        arrays[f"edges:{slot}"] = partials.edges[slot]
        arrays[f"first:{slot}"] = first
    meta["standing"] = sorted(partials.standing)
    for slot, rows in partials.standing.items():
        arrays[f"standing:{slot}"], arrays[f"standing:{slot}:entries"] = rows


def get_partials(
    file: BucketFile, components: Sequence[Component], first_hash: int, end_hash: int, epoch: int
) -> Partials:
    """The entries with hashes in [first_hash, end_hash), with the partials of these components."""
    a = file.arrays
    first, end = entries_within(file, "", (first_hash, end_hash))
    piece, rows = slice(first, end), None if a.whole else np.arange(first, end)
    lo = times_part(file, "lo", first, end)
    hi = times_part(file, "hi", first, end) if "hi" in a else lo
    return Partials(
        a.part("hash", first, end)[piece],
        lo[piece],
        hi[piece],
        _sets(file, piece, end - first),
        a.part("epochs", first, end)[piece] if "epochs" in a else np.full(end - first, epoch, np.int64),
        a.part("weights", first, end)[piece] if "weights" in a else np.zeros(end - first, np.int64),
        tuple(_sliced(get_column(file, f"k{i}", rows), piece) for i in range(len(file.meta["types"]))),
        {c: get_state(file, prefix(c), c, first, end) for c in components},
        {slot: a[f"edges:{slot}"] for slot in file.meta["edges"]},
        {slot: a[f"first:{slot}"] for slot in file.meta["edges"]},
        {slot: _standing(file, slot, first, end) for slot in file.meta["standing"]},
    )


def _standing(file: BucketFile, slot: int, first: int, end: int) -> Standing:
    """Of the entries [first, end), numbered from there on. A row's entries are of one group, so all or none."""
    table, entries = file.arrays[f"standing:{slot}"], file.arrays[f"standing:{slot}:entries"]
    ends = np.cumsum(table[3])
    leads = entries[ends - table[3]]
    chosen = (leads >= first) & (leads < end)
    return Standing(table[:, chosen], entries[np.repeat(chosen, table[3])] - first)


def _sets(file: BucketFile, piece: slice, rows: int) -> CodedSets:
    """Where all entries have one set, there are no numbers."""
    if "sets:codes" not in file.arrays:
        return CodedSets(file.arrays["sets"], np.zeros(rows, np.int32))
    return CodedSets(file.arrays["sets"], file.arrays.part("sets:codes", piece.start, piece.stop)[piece])


def _sliced(data: ColumnData, piece: slice) -> ColumnData:
    valid = None if data.valid is None else data.valid[piece]
    if valid is not None and valid.all():
        valid = None
    return ColumnData(data.type, data.values[piece], valid, data.dictionary)


@cache
def prefix(component: Component) -> str:
    """How the names of a component's arrays begin: the same in every bucket that has it."""
    digest = hashlib.blake2b(repr(component).encode(), digest_size=6).hexdigest()
    return f"s:{component.kind}:{digest}:"


def concat_partials(parts: Sequence[Partials], words: int) -> Partials:
    """One after the other; at least one. What belongs to slots is left out."""
    if len(parts) == 1:
        return replace(parts[0], sets=parts[0].sets.widened(words), edges={}, firsts={}, standing={})
    keys = tuple(column.concat([compacted(p.keys[i]) for p in parts]) for i in range(len(parts[0].keys)))
    return Partials(
        np.concatenate([p.hashes for p in parts]),
        np.concatenate([p.lo for p in parts]),
        np.concatenate([p.hi for p in parts]),
        concat_sets([p.sets for p in parts], words),
        np.concatenate([p.epochs for p in parts]),
        np.concatenate([p.weights for p in parts]),
        keys,
        {c: concat([p.states[c] for p in parts]) for c in parts[0].states},
        {},
        {},
    )
