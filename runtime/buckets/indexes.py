"""Indexes as they are written: times and query sets in as few bytes as they need, and a range of hashes at a time.

A task works on a range of hashes, which is a contiguous piece of every array of an index. Where a bucket is at hand as
a whole, the index is decoded once for all tasks of the process. Where it has to be fetched (runtime.store), only the
piece is: `fences`, the places of 256 equal ranges of hashes, say about where it lies, so that its ends are found
without the hashes of all entries. The arrays then have their full length and are right in that piece only, like
those of `entry_sets`: memory that is never touched costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from runtime.buckets.file import BucketFile
from runtime.columns.querysets import Words
from runtime.kernels import csr
from runtime.kernels.csr import Csr
from runtime.kernels.sets import all_equal

Arrays = dict[str, npt.NDArray[Any]]
HashRange = tuple[int, int]
ALL_HASHES = (0, 1 << 64)

FENCES = 256
FENCED_FROM = 4096
"""Entries. Fewer are fetched together anyway."""
_STEPS = np.arange(FENCES, dtype=np.uint64) << np.uint64(56)


# -- times and sets, in as few bytes as they need -----------------------------------------------------------------
#
# Slices of one bucket are few and lie on the grid of the windows' edges: a base, a unit and one to four bytes each.
# Query sets that are all the same are written once. What a reader decodes it keeps with the open file, read-only like
# the rest.


def put_times(arrays: Arrays, name: str, times: npt.NDArray[np.int64]) -> None:
    if not len(times):
        arrays[name], arrays[f"{name}:grid"] = np.empty(0, np.uint8), np.zeros(2, np.int64)
        return
    base = int(times.min())
    steps = times - base
    unit = int(np.gcd.reduce(steps[:: max(1, len(steps) // 64)])) or 1
    if unit > 1 and (steps % unit).any():
        unit = 1
    steps = steps // unit if unit > 1 else steps
    widest = int(steps.max())
    kind = next((k for k in (np.uint8, np.uint16, np.uint32) if widest <= np.iinfo(k).max), np.int64)
    arrays[name], arrays[f"{name}:grid"] = steps.astype(kind), np.array([base, unit], np.int64)


def get_times(file: BucketFile, name: str) -> npt.NDArray[np.int64]:
    """All of them."""
    times: npt.NDArray[np.int64] | None = file.derived.get(name)
    if times is None:
        base, unit = file.arrays[f"{name}:grid"]
        times = file.arrays[name].astype(np.int64) * unit + base
        times.setflags(write=False)
        file.derived[name] = times
    return times


def put_sets(arrays: Arrays, name: str, sets: Words) -> None:
    if all_equal(sets):
        _put_one_set(arrays, name, sets[0], len(sets))
    else:
        arrays[name] = sets


def _put_one_set(arrays: Arrays, name: str, one: npt.NDArray[np.uint64], count: int) -> None:
    arrays[f"{name}:all"] = np.concatenate((one, np.array([count], np.uint64)))


def times_part(file: BucketFile, name: str, first: int, end: int) -> npt.NDArray[np.int64]:
    """As many as there are, right in [first, end)."""
    if file.arrays.whole:
        return get_times(file, name)
    base, unit = file.arrays[f"{name}:grid"]
    stored = file.arrays.part(name, first, end)
    times = np.empty(len(stored), np.int64)
    times[first:end] = stored[first:end].astype(np.int64) * unit + base
    return times


def get_sets(file: BucketFile, name: str, rows: npt.NDArray[Any] | None = None) -> Words:
    """All of them; or as many, right in these rows."""
    if name in file.arrays:
        return file.arrays[name] if rows is None else file.arrays.at_rows(name, rows)
    sets: Words | None = file.derived.get(name)
    if sets is None:
        *words, count = file.arrays[f"{name}:all"]
        sets = np.tile(np.array(words, np.uint64), (int(count), 1))
        sets.setflags(write=False)
        file.derived[name] = sets
    return sets


# -- indexes ------------------------------------------------------------------------------------------------------


class IndexPart(NamedTuple):
    """Entries [first, end) of an index, which are those of a range of hashes."""

    csr: Csr
    first: int
    end: int


def put_index(arrays: Arrays, prefix: str, index: Csr, sets: Words, *, spans: bool) -> None:
    """`sets`: the items' query sets. `spans`: items reach over several slices (hi differs from lo).

    Where most entries have one item, their query sets say little more than the items' own and are left out.
    """
    arrays[f"{prefix}order"] = index.order
    arrays[f"{prefix}hash"] = index.hashes
    put_fences(arrays, prefix, index.hashes)
    put_times(arrays, f"{prefix}lo", index.lo)
    if spans:
        put_times(arrays, f"{prefix}hi", index.hi)
    arrays[f"{prefix}offsets"] = index.offsets
    if 2 * len(index.hashes) <= len(index.order):
        if all_equal(sets):
            _put_one_set(arrays, f"{prefix}sets", sets[0], len(index.hashes))
        else:
            put_sets(arrays, f"{prefix}sets", csr.entry_sets(index.order, index.offsets, sets, 0, len(index.hashes)))


def get_index(
    file: BucketFile, prefix: str, items: Callable[[npt.NDArray[Any] | None], Words], within: HashRange
) -> IndexPart:
    """`items`: the query sets of the bucket's items, of all or right for some. Only entries with hashes `within` are
    sure to have query sets."""
    if not file.arrays.whole:
        return _fetched(file, prefix, items, within)
    index = bare_index(file, prefix)
    first, end = index.range(*within)
    if index.query_sets.shape[1]:
        return IndexPart(index, first, end)
    name = f"{prefix}{first}:{end}"
    sets: Words | None = file.derived.get(name)
    if sets is None:
        sets = file.derived[name] = csr.entry_sets(index.order, index.offsets, items(None), first, end)
        sets.setflags(write=False)
    return IndexPart(replace(index, query_sets=sets), first, end)


def _fetched(
    file: BucketFile, prefix: str, items: Callable[[npt.NDArray[Any] | None], Words], within: HashRange
) -> IndexPart:
    name = f"{prefix}{within}"
    known: IndexPart | None = file.derived.get(name)
    if known is not None:
        return known
    a = file.arrays
    near, until = _between_fences(file, prefix, within)
    per_entry = ("hash", "lo", "hi", "sets")
    a.bring([*((f"{prefix}{array}", near, until) for array in per_entry), (f"{prefix}offsets", near, until + 1)])
    first, end = entries_within(file, prefix, within)
    hashes, offsets = a.part(f"{prefix}hash", first, end), a.part(f"{prefix}offsets", first, end + 1)
    begin, stop = (int(offsets[first]), int(offsets[end])) if end > first else (0, 0)
    order = a.part(f"{prefix}order", begin, stop)
    lo = times_part(file, f"{prefix}lo", first, end)
    hi = times_part(file, f"{prefix}hi", first, end) if f"{prefix}hi" in a else lo
    if f"{prefix}sets" in a:
        sets = a.part(f"{prefix}sets", first, end)
    elif f"{prefix}sets:all" in a:
        sets = get_sets(file, f"{prefix}sets")
    else:
        sets = csr.entry_sets(order, offsets, items(order[begin:stop]), first, end)
    part = file.derived[name] = IndexPart(Csr(order, hashes, lo, hi, offsets, sets), first, end)
    return part


def put_fences(arrays: Arrays, prefix: str, hashes: npt.NDArray[np.uint64]) -> None:
    """About where the hashes, which ascend, lie."""
    if len(hashes) >= FENCED_FROM:
        arrays[f"{prefix}fences"] = np.append(np.searchsorted(hashes, _STEPS), len(hashes)).astype(np.int32)


def entries_within(file: BucketFile, prefix: str, within: HashRange) -> tuple[int, int]:
    """The entries whose hashes are in the range."""
    near, until = _between_fences(file, prefix, within)
    hashes = file.arrays.part(f"{prefix}hash", near, until)[near:until]
    first = int(np.searchsorted(hashes, np.uint64(max(0, within[0]))))
    end = len(hashes) if within[1] >= 1 << 64 else int(np.searchsorted(hashes, np.uint64(within[1])))
    return near + first, near + end


def _between_fences(file: BucketFile, prefix: str, within: HashRange) -> tuple[int, int]:
    """Entries that surely include those of the range."""
    (count,) = file.arrays.shape(f"{prefix}hash")
    if f"{prefix}fences" not in file.arrays:
        return 0, count
    fences = file.arrays[f"{prefix}fences"]
    return int(fences[max(0, within[0]) >> 56]), int(fences[min(FENCES, -(-within[1] >> 56))])


def bare_index(file: BucketFile, prefix: str) -> Csr:
    """With the query sets of entries only if they are stored; else with no column of them."""
    index: Csr | None = file.derived.get(prefix)
    if index is None:
        a = file.arrays
        lo = get_times(file, f"{prefix}lo")
        hi = get_times(file, f"{prefix}hi") if f"{prefix}hi" in a else lo
        order, offsets = a[f"{prefix}order"], a[f"{prefix}offsets"]
        if f"{prefix}sets" in a or f"{prefix}sets:all" in a:
            sets = get_sets(file, f"{prefix}sets")
        else:
            sets = np.empty((len(offsets) - 1, 0), np.uint64)
        index = file.derived[prefix] = Csr(order, a[f"{prefix}hash"], lo, hi, offsets, sets)
    return index
