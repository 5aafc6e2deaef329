"""Query-set matrices: what the kernels say of every row, and who is in which row, against plain Python."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from runtime.kernels.sets import all_equal, count_members, intersect_with_table, members, nonempty, take_rows

WORD = st.one_of(st.sampled_from([0, 1, 1 << 63, (1 << 64) - 1, 3 << 31]), st.integers(0, (1 << 64) - 1))


@st.composite
def matrices(draw):
    words = draw(st.integers(1, 3))
    row = st.lists(WORD, min_size=words, max_size=words)
    rows = draw(st.lists(row, max_size=12))
    return np.array(rows, np.uint64).reshape(len(rows), words)


def slots(row):
    return [64 * w + b for w, word in enumerate(row.tolist()) for b in range(64) if word >> b & 1]


@given(matrices())
def test_every_slot_has_its_rows_in_order(sets):
    expected: dict[int, list[int]] = {}
    for i, row in enumerate(sets):
        for slot in slots(row):
            expected.setdefault(slot, []).append(i)
    counts = count_members(sets)
    assert {s: int(n) for s, n in enumerate(counts) if n} == {s: len(rows) for s, rows in expected.items()}
    starts = np.cumsum(counts) - counts
    found = members(sets, starts, int(counts.sum()))
    assert {s: found[starts[s] : starts[s] + n].tolist() for s, n in enumerate(counts) if n} == expected


@given(matrices(), st.data())
def test_rows_are_told_apart_picked_and_compared(sets, data):
    assert nonempty(sets).tolist() == [bool(slots(row)) for row in sets]
    rows = data.draw(st.lists(st.integers(0, len(sets) - 1), max_size=8)) if len(sets) else []
    assert take_rows(sets, np.array(rows, np.intp)).tolist() == [sets[i].tolist() for i in rows]
    assert all_equal(sets) == (len({tuple(row) for row in sets.tolist()}) == 1)
    if len(sets):
        places = np.array(data.draw(st.lists(st.integers(0, len(sets) - 1), min_size=len(sets), max_size=len(sets))))
        both = sets.copy()
        intersect_with_table(both, sets, places)
        assert both.tolist() == [
            [a & b for a, b in zip(sets[i].tolist(), sets[p].tolist(), strict=True)] for i, p in enumerate(places)
        ]
