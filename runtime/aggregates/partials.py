"""State: the partials of one component, for any number of entries.

Parts are columns. With `offsets` None every part has one value per entry; otherwise the parts are lists, and entry e
has the elements [offsets[e], offsets[e + 1]) of each. A state never changes: whatever is done with it makes another.

Some parts may be missing at the end, because mostly they say nothing: the high word of integer sums that fit 64 bits,
and what rounding took from sums of doubles that were never added. Then `parts` is shorter; `concat` fills up what some
have and others lack.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from optimizer.model.types import ColumnType
from runtime.columns import column
from runtime.columns.column import ColumnData, Mask, compacted
from runtime.kernels.runs import list_places

I64 = npt.NDArray[np.int64]
Rows = npt.NDArray[Any]
EVERY = np.empty(0, np.bool_)
"""What kernels take instead of a mask when every entry has a value."""


@dataclass(frozen=True, slots=True, eq=False)
class State:
    parts: tuple[ColumnData, ...]
    offsets: I64 | None = None

    def __len__(self) -> int:
        return len(self.parts[0]) if self.offsets is None else len(self.offsets) - 1

    def take(self, rows: Rows) -> State:
        """Entries by number; they are not checked."""
        if self.offsets is None:
            return State(tuple(p.take(rows) for p in self.parts))
        offsets, places = list_places(np.ascontiguousarray(rows, np.int32), self.offsets)
        return State(tuple(p.take(places) for p in self.parts), offsets)


def concat(parts: list[State]) -> State:
    """One after the other; all of one component, at least one."""
    if len(parts) == 1:
        return parts[0]
    widest = max(parts, key=lambda s: len(s.parts))
    filled = [_filled(s, widest) for s in parts]
    columns = zip(*(s.parts for s in filled), strict=True)
    joined = tuple(compacted(column.concat(list(c))) for c in columns)
    if parts[0].offsets is None:
        return State(joined)
    sizes = [np.diff(s.offsets) for s in parts if s.offsets is not None]
    return State(joined, starts_of(np.concatenate(sizes)))


def starts_of(sizes: npt.NDArray[Any]) -> I64:
    """Offsets of lists of these sizes."""
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


def _filled(state: State, like: State) -> State:
    """With the parts it lacks: the high words of its first part, or zeros."""
    missing = like.parts[len(state.parts) :]
    more = tuple(high_word(state.parts[0]) if m.type is ColumnType.BIGINT else zeros(state, m.type) for m in missing)
    return State(state.parts + more, state.offsets) if more else state


def high_word(low: ColumnData) -> ColumnData:
    return ColumnData(ColumnType.BIGINT, low.values >> np.int64(63))


def zeros(state: State, type: ColumnType) -> ColumnData:
    return ColumnData(type, np.zeros(len(state.parts[0]), column.NUMPY_TYPES[type]))


def keep_of(valid: Mask | None) -> Mask:
    return EVERY if valid is None else valid


def some(mask: Mask) -> Mask | None:
    """As the validity of a column: None if all are."""
    return None if mask.all() else mask


def both(a: Mask | None, b: Mask | None) -> Mask | None:
    if a is None:
        return b
    return a if b is None else a & b
