"""Windows over slices for every kind of aggregate: all ways give what folding the window's slices in order gives."""

from __future__ import annotations

import numpy as np
import pytest

from optimizer.model.combining import way_of
from optimizer.model.types import ColumnType
from runtime.aggregates import sliding
from runtime.aggregates.components import components_of, lower
from runtime.aggregates.sliding import Cells, slide
from runtime.aggregates.states import lift
from tests.runtime.aggregates import BIGGEST, aggregate, column, expected, values_of

B, D, I, S, T = ColumnType.BIGINT, ColumnType.DOUBLE, ColumnType.INT, ColumnType.STRING, ColumnType.TIMESTAMP
CASES = [
    ("COUNT", []), ("COUNT", [S]), ("SUM", [B]), ("SUM", [D]), ("SUM", [I]), ("AVG", [I]), ("MIN", [B]), ("MAX", [D]),
    ("MIN", [T]), ("MAX", [I]), ("MIN", [S]), ("STDDEV", [D]), ("FIRST", [B]), ("LAST", [S]), ("ARG_MAX", [S, D]),
    ("MEDIAN", [I]), ("COUNT_DISTINCT", [S]), ("APPROX_COUNT_DISTINCT", [B]),
]  # fmt: skip
VALUES = {
    B: [1, 2, 3, None, -7],
    I: [5, -5, None, 2],
    D: [0.5, 0.1, None, -1e9],
    S: ["a", "", None, "b", "ä"],
    T: [1, 9, None],
}


@pytest.mark.parametrize("way", ["combine", "subtract", "stacks", None])
@pytest.mark.parametrize(("function", "types"), CASES)
@pytest.mark.parametrize("seed", range(3))
def test_all_ways_agree_with_python(function, types, way, seed, monkeypatch):
    if seed == 2:
        monkeypatch.setattr(sliding, "_CELLS", 20)  # several blocks of groups
    random = np.random.default_rng(seed)
    slices, groups = int(random.integers(1, 14)), int(random.integers(1, 5))
    full = random.random((slices, groups)) < 0.6
    at = [(int(s), int(g)) for s, g in np.argwhere(full)]
    random.shuffle(at)
    rows = [(s, True, *(VALUES[t][int(random.integers(len(VALUES[t])))] for t in types)) for s, _ in at]
    first = np.sort(random.integers(0, slices + 1, 9))
    end = np.maximum(np.sort(random.integers(0, slices + 1, 9)), first)
    check(aggregate(function, types), rows, at, (slices, groups), first, end, way)


def check(agg, rows, at, shape, first, end, way):
    cells = Cells(np.array([s for s, _ in at], np.int32), np.array([g for _, g in at], np.int64), shape)
    times = np.array([r[0] for r in rows], np.int64)
    arguments = tuple(column(a.type, [r[2 + i] for r in rows]) for i, a in enumerate(agg.arguments))
    states = {}
    for c in components_of(agg):
        states[c], there = slide(c, lift(c, arguments, None, times), cells, first, end, way)
    found = values_of(lower(agg, states))
    by_slice = sorted(zip(rows, at, strict=True), key=lambda x: x[1])
    for w, (a, b) in enumerate(zip(first, end, strict=True)):
        for g in range(shape[1]):
            inside = [r for r, (s, h) in by_slice if a <= s < b and h == g]
            wanted = expected(agg, inside) if agg.function != "APPROX_COUNT_DISTINCT" else distinct(inside)
            value = found[w * shape[1] + g]
            assert bool(there[w * shape[1] + g]) == bool(inside)
            assert value == (pytest.approx(wanted) if agg.function == "STDDEV" else wanted), (w, g, inside)


def distinct(rows):
    return len({r[2] for r in rows if r[2] is not None})


def test_sums_that_leave_64_bits_on_the_way():
    rows = [(s, True, v) for s, v in enumerate([BIGGEST, BIGGEST, -BIGGEST, 5, BIGGEST, -BIGGEST])]
    at = [(s, 0) for s in range(6)]
    first, end = np.array([0, 0, 1, 2, 2], np.int64), np.array([2, 3, 4, 5, 6], np.int64)
    for way in ("combine", "subtract", "stacks"):
        check(aggregate("SUM", [B]), rows, at, (6, 1), first, end, way)


def test_infinite_sums_are_not_subtracted():
    rows = [(s, True, v) for s, v in enumerate([float("inf"), 1.0, 2.0, float("-inf"), 4.0])]
    first, end = np.array([0, 1, 2, 4], np.int64), np.array([2, 3, 4, 5], np.int64)
    check(aggregate("SUM", [D]), rows, [(s, 0) for s in range(5)], (5, 1), first, end, "subtract")


def test_the_way_follows_from_kind_and_length():
    def way(function, types, length):
        return way_of(components_of(aggregate(function, types))[0].kind, length)

    assert way("SUM", [B], 3) == way("MIN", [B], 3) == "combine"
    assert way("SUM", [B], 60) == "subtract" and way("MIN", [B], 60) == way("LAST", [B], 60) == "stacks"
