"""Reading and writing buckets: source columns, views of them, joined items.

Every *input* of a join, whether source view or joined bucket, looks the same to the join: a set of items with a query
set each, and an index. What differs is how an item leads back to rows: an item of a view is a row; an item of a joined
bucket is a carrier item and a range of partners.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from optimizer.model.plan import Leaf
from optimizer.model.types import ColumnType
from runtime.buckets.file import BucketFile
from runtime.buckets.indexes import (
    ALL_HASHES,
    Arrays,
    HashRange,
    IndexPart,
    get_index,
    get_sets,
    put_index,
    put_sets,
)
from runtime.buckets.refs import IndexKey
from runtime.columns.column import ColumnData, strings_from
from runtime.columns.querysets import Words
from runtime.kernels import csr
from runtime.kernels.csr import Csr
from runtime.kernels.fetch import fetch

# -- columns ------------------------------------------------------------------------------------------------------


def put_column(arrays: Arrays, name: str, data: ColumnData) -> None:
    arrays[f"c:{name}"] = data.values
    if data.valid is not None:
        arrays[f"c:{name}:valid"] = data.valid
    if data.dictionary is not None:
        arrays[f"c:{name}:offsets"], arrays[f"c:{name}:bytes"] = data.dictionary_arrays()


def get_column(file: BucketFile, name: str, rows: npt.NDArray[Any] | None = None) -> ColumnData:
    """All of it; or as long, and right in these rows."""
    a = file.arrays
    dictionary = valid = None
    type = ColumnType(file.meta["types"][name])
    if type is ColumnType.STRING:
        dictionary = strings_from(a[f"c:{name}:offsets"], a[f"c:{name}:bytes"])
    if f"c:{name}:valid" in a:
        valid = a[f"c:{name}:valid"] if rows is None else a.at_rows(f"c:{name}:valid", rows)
    values = a[f"c:{name}"] if rows is None else a.at_rows(f"c:{name}", rows)
    return ColumnData(type, values, valid, dictionary)


def longest_text(file: BucketFile, name: str) -> int:
    """Of a STRING column, in bytes; 0 if the bucket has no such column, because it is older than who reads it."""
    longest: int | None = file.derived.get(f"c:{name}:longest")
    if longest is None:
        offsets = file.arrays[f"c:{name}:offsets"] if name in file.meta["types"] else ()
        longest = file.derived[f"c:{name}:longest"] = int(np.diff(offsets).max(initial=0))
    return longest


# -- views of source buckets --------------------------------------------------------------------------------------


def view_prefix(leaf: Leaf, group: int) -> str:
    return f"v{leaf.occurrence}.{group}:"


def key_name(key: IndexKey) -> str:
    return "\x1f".join(f"{type}:{column}" for column, type in key)


class View:
    """`rows[item]` is the item's row in the bucket's columns, `sets[item]` its query set. The methods that end in `_at`
    answer for some items only, of which not more is fetched."""

    def __init__(self, file: BucketFile, leaf: Leaf, group: int) -> None:
        self._file = file
        self._prefix = view_prefix(leaf, group)

    @property
    def sets(self) -> Words:
        return get_sets(self._file, f"{self._prefix}sets")

    def sets_at(self, items: npt.NDArray[Any] | None) -> Words:
        """As many as there are, right for these items; None: for all."""
        return get_sets(self._file, f"{self._prefix}sets", items)

    @property
    def every(self) -> bool:
        """Has the view every row of the bucket, so that item i is row i?"""
        return f"{self._prefix}rows" not in self._file.arrays

    @property
    def rows(self) -> npt.NDArray[np.int32]:
        if not self.every:
            return self._file.arrays[f"{self._prefix}rows"]
        rows: npt.NDArray[np.int32] | None = self._file.derived.get(f"{self._prefix}rows")
        if rows is None:
            rows = self._file.derived[f"{self._prefix}rows"] = np.arange(len(self.sets), dtype=np.int32)
        return rows

    def rows_at(self, items: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The rows of these items."""
        return items if self.every else fetch(self._file.arrays.at_rows(f"{self._prefix}rows", items), items)

    def part(self, key: IndexKey, within: HashRange) -> IndexPart:
        """The index, for a range of hashes."""
        return get_index(self._file, self._index(key), self.sets_at, within)

    def index(self, key: IndexKey) -> Csr:
        return self.part(key, ALL_HASHES).csr

    def order(self, key: IndexKey) -> npt.NDArray[np.int32]:
        """Items in the order of the index."""
        return self._file.arrays[f"{self._index(key)}order"]

    def order_at(self, key: IndexKey, positions: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
        """As many as there are, right at these positions."""
        return self._file.arrays.at_rows(f"{self._index(key)}order", positions)

    def _index(self, key: IndexKey) -> str:
        return f"{self._prefix}{key_name(key)}:"


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
        self.carrier_left: bool = bool(file.meta["carrier_left"])
        self._file = file

    @property
    def carrier_bucket(self) -> npt.NDArray[np.int64]:
        return self._file.arrays["carrier_bucket"]

    @property
    def carrier_item(self) -> npt.NDArray[np.int32]:
        return self._file.arrays["carrier_item"]

    @property
    def partner_bucket(self) -> npt.NDArray[np.int64]:
        return self._file.arrays["partner_bucket"]

    @property
    def partner_from(self) -> npt.NDArray[np.int32]:
        return self._file.arrays["partner_from"]

    @property
    def partner_to(self) -> npt.NDArray[np.int32]:
        return self._file.arrays["partner_to"]

    @property
    def sets(self) -> Words:
        return self._file.arrays["sets"]

    def sets_at(self, items: npt.NDArray[Any] | None) -> Words:
        return get_sets(self._file, "sets", items)

    def part(self, within: HashRange) -> IndexPart:
        """The index, for a range of hashes."""
        return get_index(self._file, INDEX, self.sets_at, within)

    def index(self) -> Csr:
        return self.part(ALL_HASHES).csr

    @property
    def order(self) -> npt.NDArray[np.int32]:
        """Items in the order of the index."""
        return self._file.arrays[f"{INDEX}order"]

    def order_at(self, positions: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
        """As many as there are, right at these positions."""
        return self._file.arrays.at_rows(f"{INDEX}order", positions)

    def exposed(self, leaf: Leaf) -> RowRefs:
        """The one row of an exposed leaf behind every item."""
        return RowRefs(self._file.arrays[f"exposed:{leaf}:bucket"], self._file.arrays[f"exposed:{leaf}:item"])


def put_exposed(arrays: Arrays, leaf: Leaf, rows: RowRefs) -> None:
    arrays[f"exposed:{leaf}:bucket"], arrays[f"exposed:{leaf}:item"] = rows
