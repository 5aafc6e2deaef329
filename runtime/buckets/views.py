"""Reading and writing buckets: source columns, views of them, joined items.

Every *input* of a join, whether source view or joined bucket, looks the same to the join: a set of items with a query
set each, and an index. What differs is how an item leads back to rows: an item of a view is a row; an item of a joined
bucket is a carrier item and a range of partners.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from optimizer.plan import Leaf
from optimizer.types import ColumnType
from runtime.buckets.file import BucketFile
from runtime.columns import ColumnData, strings_from
from runtime.kernels import csr
from runtime.kernels.csr import Csr
from runtime.physical import IndexKey
from runtime.querysets import Words

Arrays = dict[str, npt.NDArray[Any]]


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


# -- indexes ------------------------------------------------------------------------------------------------------


def put_index(arrays: Arrays, prefix: str, index: Csr, *, spans: bool) -> None:
    """`spans`: items reach over several slices (hi differs from lo)."""
    arrays[f"{prefix}order"] = index.order
    arrays[f"{prefix}hash"] = index.hashes
    arrays[f"{prefix}lo"] = index.lo
    if spans:
        arrays[f"{prefix}hi"] = index.hi
    arrays[f"{prefix}offsets"] = index.offsets
    arrays[f"{prefix}sets"] = index.query_sets


def get_index(file: BucketFile, prefix: str) -> Csr:
    a = file.arrays
    lo = a[f"{prefix}lo"]
    return Csr(
        a[f"{prefix}order"],
        a[f"{prefix}hash"],
        lo,
        a.get(f"{prefix}hi", lo),
        a[f"{prefix}offsets"],
        a[f"{prefix}sets"],
    )


# -- views of source buckets --------------------------------------------------------------------------------------


def view_prefix(leaf: Leaf, group: int) -> str:
    return f"v{leaf.occurrence}.{group}:"


def key_name(key: IndexKey) -> str:
    return "\x1f".join(f"{type}:{column}" for column, type in key)


class View:
    """`rows[item]` is the item's row in the bucket's columns; `sets[item]` its query set."""

    def __init__(self, file: BucketFile, leaf: Leaf, group: int) -> None:
        self._file = file
        self._prefix = view_prefix(leaf, group)
        self.rows: npt.NDArray[np.int32] = file.arrays[f"{self._prefix}rows"]
        self.sets: Words = file.arrays[f"{self._prefix}sets"]

    def index(self, key: IndexKey) -> Csr:
        return get_index(self._file, f"{self._prefix}{key_name(key)}:")


def put_view(
    arrays: Arrays,
    leaf: Leaf,
    group: int,
    rows: npt.NDArray[Any],
    sets: Words,
    slices: npt.NDArray[np.int64],
    keyed: Iterable[tuple[IndexKey, npt.NDArray[np.uint64], npt.NDArray[np.bool_] | None]],
) -> list[int]:
    """`slices` per item; `keyed` gives per key the hash of every item and which items have a key at all.

    Returns the number of distinct keys of each index.
    """
    prefix = view_prefix(leaf, group)
    arrays[f"{prefix}rows"] = rows.astype(np.int32)
    arrays[f"{prefix}sets"] = sets
    distinct = []
    for key, hashes, usable in keyed:
        items = np.arange(len(rows)) if usable is None else np.flatnonzero(usable)
        index = csr.build(items, hashes, slices, slices, sets)
        put_index(arrays, f"{prefix}{key_name(key)}:", index, spans=False)
        distinct.append(int((index.hashes[1:] != index.hashes[:-1]).sum()) + min(1, len(index.hashes)))
    return distinct


# -- joined buckets -----------------------------------------------------------------------------------------------


class Joined:
    """Items of a joined bucket.

    Item i is: carrier item `carrier_item[i]` of bucket `carrier_bucket[i]`, combined with each of the partners at
    positions [partner_from[i], partner_to[i]) of the index of bucket `partner_bucket[i]`. `carrier_left`: which input
    carried.
    """

    def __init__(self, file: BucketFile) -> None:
        a = file.arrays
        self.carrier_left: bool = bool(file.meta["carrier_left"])
        self.carrier_bucket: npt.NDArray[np.int64] = a["cb"]
        self.carrier_item: npt.NDArray[np.int32] = a["ci"]
        self.partner_bucket: npt.NDArray[np.int64] = a["pb"]
        self.partner_from: npt.NDArray[np.int32] = a["pf"]
        self.partner_to: npt.NDArray[np.int32] = a["pt"]
        self.sets: Words = a["sets"]
        self.index = get_index(file, "i:")
        self._file = file

    def exposed(self, leaf: Leaf) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """The one row of an exposed leaf behind every item: (source bucket, view item)."""
        return self._file.arrays[f"x:{leaf}:b"], self._file.arrays[f"x:{leaf}:i"]
