"""Reading and writing buckets: source columns, views of them, joined items.

Every *input* of a join, whether source view or joined bucket, looks the same to the join: a set of items with a query
set each, and an index. What differs is how an item leads back to rows: an item of a view is a row; an item of a joined
bucket is a carrier item and a range of partners.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from optimizer.model.plan import Leaf
from optimizer.model.types import ColumnType
from runtime.buckets.file import BucketFile
from runtime.buckets.refs import IndexKey
from runtime.columns.column import ColumnData, strings_from
from runtime.columns.querysets import Words
from runtime.kernels import csr
from runtime.kernels.csr import Csr
from runtime.kernels.sets import all_equal

Arrays = dict[str, npt.NDArray[Any]]
HashRange = tuple[int, int]
ALL_HASHES = (0, 1 << 64)


# -- columns ------------------------------------------------------------------------------------------------------


def put_column(arrays: Arrays, name: str, data: ColumnData) -> None:
    arrays[f"c:{name}"] = data.values
    if data.valid is not None:
        arrays[f"c:{name}:valid"] = data.valid
    if data.dictionary is not None:
        arrays[f"c:{name}:offsets"], arrays[f"c:{name}:bytes"] = data.dictionary_arrays()


def get_column(file: BucketFile, name: str) -> ColumnData:
    a = file.arrays
    dictionary = None
    type = ColumnType(file.meta["types"][name])
    if type is ColumnType.STRING:
        dictionary = strings_from(a[f"c:{name}:offsets"], a[f"c:{name}:bytes"])
    return ColumnData(type, a[f"c:{name}"], a.get(f"c:{name}:valid"), dictionary)


def longest_text(file: BucketFile, name: str) -> int:
    """Of a STRING column, in bytes; 0 if the bucket has no such column, because it is older than who reads it."""
    longest: int | None = file.derived.get(f"c:{name}:longest")
    if longest is None:
        offsets = file.arrays[f"c:{name}:offsets"] if name in file.meta["types"] else ()
        longest = file.derived[f"c:{name}:longest"] = int(np.diff(offsets).max(initial=0))
    return longest


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


def get_sets(file: BucketFile, name: str) -> Words:
    sets: Words | None = file.arrays.get(name)
    if sets is None:
        sets = file.derived.get(name)
    if sets is None:
        *words, count = file.arrays[f"{name}:all"]
        sets = np.tile(np.array(words, np.uint64), (int(count), 1))
        sets.setflags(write=False)
        file.derived[name] = sets
    return sets


# -- indexes ------------------------------------------------------------------------------------------------------


def put_index(arrays: Arrays, prefix: str, index: Csr, sets: Words, *, spans: bool) -> None:
    """`sets`: the items' query sets. `spans`: items reach over several slices (hi differs from lo).

    Where most entries have one item, their query sets say little more than the items' own and are left out.
    """
    arrays[f"{prefix}order"] = index.order
    arrays[f"{prefix}hash"] = index.hashes
    put_times(arrays, f"{prefix}lo", index.lo)
    if spans:
        put_times(arrays, f"{prefix}hi", index.hi)
    arrays[f"{prefix}offsets"] = index.offsets
    if 2 * len(index.hashes) <= len(index.order):
        if all_equal(sets):
            _put_one_set(arrays, f"{prefix}sets", sets[0], len(index.hashes))
        else:
            put_sets(arrays, f"{prefix}sets", csr.entry_sets(index.order, index.offsets, sets, 0, len(index.hashes)))


def get_index(file: BucketFile, prefix: str, items: Words, within: HashRange) -> Csr:
    """`items`: the query sets of the bucket's items. Only entries with hashes `within` are sure to have query sets."""
    index = bare_index(file, prefix)
    if index.query_sets.shape[1]:
        return index
    first, end = index.range(*within)
    name = f"{prefix}{first}:{end}"
    sets: Words | None = file.derived.get(name)
    if sets is None:
        sets = file.derived[name] = csr.entry_sets(index.order, index.offsets, items, first, end)
        sets.setflags(write=False)
    return replace(index, query_sets=sets)


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


# -- views of source buckets --------------------------------------------------------------------------------------


def view_prefix(leaf: Leaf, group: int) -> str:
    return f"v{leaf.occurrence}.{group}:"


def key_name(key: IndexKey) -> str:
    return "\x1f".join(f"{type}:{column}" for column, type in key)


class View:
    """`rows[item]` is the item's row in the bucket's columns, `sets[item]` its query set."""

    def __init__(self, file: BucketFile, leaf: Leaf, group: int) -> None:
        self._file = file
        self._prefix = view_prefix(leaf, group)
        self.sets = get_sets(file, f"{self._prefix}sets")

    @property
    def every(self) -> bool:
        """Has the view every row of the bucket, so that item i is row i?"""
        return f"{self._prefix}rows" not in self._file.arrays

    @property
    def rows(self) -> npt.NDArray[np.int32]:
        rows: npt.NDArray[np.int32] | None = self._file.arrays.get(f"{self._prefix}rows")
        if rows is None:
            rows = self._file.derived.get(f"{self._prefix}rows")
            if rows is None:
                rows = self._file.derived[f"{self._prefix}rows"] = np.arange(len(self.sets), dtype=np.int32)
        return rows

    def index(self, key: IndexKey, within: HashRange = ALL_HASHES) -> Csr:
        return get_index(self._file, f"{self._prefix}{key_name(key)}:", self.sets, within)

    def order(self, key: IndexKey) -> npt.NDArray[np.int32]:
        """Items in the order of the index."""
        return bare_index(self._file, f"{self._prefix}{key_name(key)}:").order


class KeyedItems(NamedTuple):
    """What an index is made of: the hash of every item's key, and which items have a key at all (None: all)."""

    key: IndexKey
    hashes: npt.NDArray[np.uint64]
    usable: npt.NDArray[np.bool_] | None


def put_view(
    arrays: Arrays,
    leaf: Leaf,
    group: int,
    rows: npt.NDArray[Any],
    sets: Words,
    slices: npt.NDArray[np.int64],
    indexes: Iterable[KeyedItems],
) -> list[int]:
    """`rows` ascend; `slices` per item; one index per element of `indexes`.

    Returns the number of distinct keys of each index.
    """
    prefix = view_prefix(leaf, group)
    if len(rows) and (int(rows[0]), int(rows[-1])) != (0, len(rows) - 1):
        arrays[f"{prefix}rows"] = rows.astype(np.int32)
    if len(rows):
        put_sets(arrays, f"{prefix}sets", sets)
    else:
        arrays[f"{prefix}sets"] = sets
    distinct = []
    for key, hashes, usable in indexes:
        items = np.arange(len(rows)) if usable is None else np.flatnonzero(usable)
        index = csr.grouped(items, hashes, slices, slices)
        put_index(arrays, f"{prefix}{key_name(key)}:", index, sets, spans=False)
        distinct.append(int((index.hashes[1:] != index.hashes[:-1]).sum()) + min(1, len(index.hashes)))
    return distinct


# -- joined buckets -----------------------------------------------------------------------------------------------


JOINED_ARRAYS = ("carrier_bucket", "carrier_item", "partner_bucket", "partner_from", "partner_to", "sets")
INDEX = "index:"
"""How the names of a joined bucket's index arrays begin."""


class RowRefs(NamedTuple):
    """Rows of one leaf: (source bucket, item of its view) per row."""

    buckets: npt.NDArray[Any]
    items: npt.NDArray[Any]


class Joined:
    """Items of a joined bucket.

    Item i is: carrier item `carrier_item[i]` of bucket `carrier_bucket[i]`, combined with each of the partners at
    positions [partner_from[i], partner_to[i]) of the index of bucket `partner_bucket[i]`. `carrier_left`: which input
    carried.
    """

    def __init__(self, file: BucketFile) -> None:
        a = file.arrays
        self.carrier_left: bool = bool(file.meta["carrier_left"])
        self.carrier_bucket: npt.NDArray[np.int64] = a["carrier_bucket"]
        self.carrier_item: npt.NDArray[np.int32] = a["carrier_item"]
        self.partner_bucket: npt.NDArray[np.int64] = a["partner_bucket"]
        self.partner_from: npt.NDArray[np.int32] = a["partner_from"]
        self.partner_to: npt.NDArray[np.int32] = a["partner_to"]
        self.sets: Words = a["sets"]
        self._file = file

    def index(self, within: HashRange = ALL_HASHES) -> Csr:
        return get_index(self._file, INDEX, self.sets, within)

    @property
    def order(self) -> npt.NDArray[np.int32]:
        """Items in the order of the index."""
        return bare_index(self._file, INDEX).order

    def exposed(self, leaf: Leaf) -> RowRefs:
        """The one row of an exposed leaf behind every item."""
        return RowRefs(self._file.arrays[f"exposed:{leaf}:bucket"], self._file.arrays[f"exposed:{leaf}:item"])


def put_exposed(arrays: Arrays, leaf: Leaf, rows: RowRefs) -> None:
    arrays[f"exposed:{leaf}:bucket"], arrays[f"exposed:{leaf}:item"] = rows
