"""Slots in query sets, against sets of numbers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from runtime.columns.querysets import add_slot, bitset, has, remove_slot, widen
from runtime.operators.floors import Floor, apply_floors

slots = st.integers(0, 191)
rows_of_slots = st.lists(st.frozensets(slots, max_size=6), min_size=1, max_size=5)


def matrix(rows, words=3):
    return np.stack([bitset(row, words) for row in rows])


def members(sets):
    return [{slot for slot in range(64 * sets.shape[1]) if has(sets[i : i + 1], slot)[0]} for i in range(len(sets))]


@given(rows_of_slots, st.integers(1, 4))
def test_a_matrix_says_what_was_put_in_as_far_as_it_is_wide(rows, words):
    assert members(matrix(rows)) == rows
    assert members(widen(matrix(rows), words)) == [{s for s in row if s < 64 * words} for row in rows]


@given(rows_of_slots, slots, st.data())
def test_a_slot_is_added_to_some_rows_and_removed_from_some(rows, slot, data):
    chosen = np.array([data.draw(st.booleans()) for _ in rows])
    sets = matrix(rows)
    add_slot(sets, chosen, slot)
    assert members(sets) == [row | {slot} if c else row for row, c in zip(rows, chosen, strict=True)]
    remove_slot(sets, np.flatnonzero(chosen), slot)
    assert members(sets) == [row - {slot} if c else row for row, c in zip(rows, chosen, strict=True)]


@given(rows_of_slots, st.lists(st.builds(Floor, st.integers(1, 2), slots, st.integers(0, 9)), max_size=4), st.data())
def test_floors_take_a_querys_bit_off_what_is_too_old(rows, floors, data):
    times = [data.draw(st.integers(0, 9)) for _ in rows]
    sets = widen(matrix(rows), 2)
    apply_floors(floors, 1, sets, np.array(times, np.int64))
    below = [{f.slot for f in floors if f.group == 1 and t < f.time} for t in times]
    assert members(sets) == [{s for s in row if s < 128} - old for row, old in zip(rows, below, strict=True)]
