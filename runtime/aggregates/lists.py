"""Runs and sketches: the partials whose size depends on the data.

Runs hold every distinct value and how often it is there, ascending: medians, quantiles and distinct counts follow.
Sketches hold the registers of a HyperLogLog that are not zero (runtime.kernels.sketches), at most 2,048.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from optimizer.model.types import ColumnType
from runtime.aggregates.keys import Keys, from_keys, keys_of, normal
from runtime.aggregates.numbers import multiplied
from runtime.aggregates.partials import I64, State, keep_of, starts_of
from runtime.columns.column import ColumnData, Mask, compacted
from runtime.kernels import hashing, runs, sketches

I32 = npt.NDArray[np.int32]


def lift_list(kind: str, argument: ColumnData, keep: Mask | None) -> State:
    """Lists of one element, or of none."""
    rows = len(argument)
    each = np.arange(rows, dtype=np.int32)
    return lift_fold_list(kind, argument, keep, each, np.arange(rows + 1, dtype=np.int64))


def lift_fold_list(kind: str, argument: ColumnData, keep: Mask | None, order: I32, offsets: I64) -> State:
    if kind == "sketch":
        starts, codes = sketches.sketches_of(order, offsets, _codes(argument), keep_of(keep))
        return State((ColumnData(ColumnType.INT, codes),), starts)
    keys = keys_of(argument)
    starts, values, counts = runs.runs_of(order, offsets, keys.values, keep_of(keep))
    return State((from_keys(argument.type, Keys(values, keys.texts)), _counts(counts)), starts)


def fold_list(kind: str, state: State, order: I32, offsets: I64) -> State:
    assert state.offsets is not None
    if kind == "sketch":
        starts, codes = sketches.merge_sketches(order, offsets, state.offsets, state.parts[0].values)
        return State((ColumnData(ColumnType.INT, codes),), starts)
    values, counts = state.parts
    keys = keys_of(values)
    starts, merged, times = runs.merge_runs(order, offsets, state.offsets, keys.values, counts.values)
    return State((from_keys(values.type, Keys(merged, keys.texts)), _counts(times)), starts)


def scale_list(kind: str, state: State, times: I64) -> State:
    """Runs: every value so many times as often. Sketches do not count. Either is empty where it is there no times."""
    assert state.offsets is not None
    sizes = np.diff(state.offsets)
    if not (times > 0).all():
        elements = np.repeat(times > 0, sizes)
        rows = np.flatnonzero(elements)
        kept = State(tuple(p.take(rows) for p in state.parts), starts_of(np.where(times > 0, sizes, 0)))
        return scale_list(kind, kept, np.maximum(times, 1))
    if kind == "sketch":
        return state
    return State((state.parts[0], _counts(multiplied(state.parts[1].values, np.repeat(times, sizes)))), state.offsets)


def _counts(counts: I64) -> ColumnData:
    return ColumnData(ColumnType.BIGINT, counts)


def _codes(argument: ColumnData) -> I32:
    """Equal values have equal hashes; texts are hashed once per distinct one."""
    match argument.type:
        case ColumnType.STRING:
            column = compacted(argument)
            texts: I32 = sketches.codes_of(hashing.hash_strings(*column.dictionary_arrays()))
            return texts[column.values] if len(texts) else np.zeros(len(column), np.int32)
        case ColumnType.DOUBLE:
            hashes = hashing.hash_doubles(normal(argument.values))
        case _:
            hashes = hashing.hash_integers(argument.values.astype(np.int64))
    codes: I32 = sketches.codes_of(hashes)
    return codes
