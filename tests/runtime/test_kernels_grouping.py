"""Entries of a fold against sorting in plain Python: few keys and many, equal leading hash bits, sets of any width."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.kernels.grouping import fold_entries

HASHES = [0, 1, 2, 1 << 20, (1 << 63) - 1, 1 << 63, (1 << 64) - 2, (1 << 64) - 1]


def check(hashes, lo, hi, sets):
    def key(i):
        return int(hashes[i]), int(lo[i]), int(hi[i]), () if sets is None else tuple(sets[i].tolist())

    expected = sorted(range(len(hashes)), key=key)
    order, offsets = fold_entries(hashes, lo, hi, sets)
    assert order.dtype == np.int32 and offsets.dtype == np.int64
    assert order.tolist() == expected
    fresh = [p for p, i in enumerate(expected) if p == 0 or key(i) != key(expected[p - 1])]
    assert offsets.tolist() == [*fresh, len(expected)]


@given(st.data(), st.integers(0, 3))
def test_few_items(data, words):
    n = data.draw(st.integers(0, 30))
    many = st.lists(st.integers(-2, 2), min_size=n, max_size=n)
    hashes = np.array([HASHES[data.draw(st.integers(0, 7))] for _ in range(n)], np.uint64)
    sets = np.array([data.draw(st.lists(st.integers(0, 2), min_size=words, max_size=words)) for _ in range(n)])
    lo, hi = (np.array(data.draw(many), np.int64) for _ in range(2))
    check(hashes, lo, hi, None if words == 0 else sets.astype(np.uint64).reshape(n, words))


@pytest.mark.parametrize("groups", [1, 50, 4000, 1 << 62])
@pytest.mark.parametrize("slices", [1, 9, 100_000])
@pytest.mark.parametrize("sets", ["none", "equal", "few", "two words", "all different"])
@pytest.mark.parametrize("spread", [True, False])
def test_many_items(groups, slices, sets, spread):
    """`spread` False: hashes whose leading bits are all equal."""
    random = np.random.default_rng(groups % 1000 + slices)
    n = 12_000
    hashes = random.integers(0, groups, n).astype(np.uint64)
    if spread:
        hashes *= np.uint64(0x9E3779B97F4A7C15)
    lo = np.sort(random.integers(-slices, slices, n)) if slices < 100 else random.integers(-slices, slices, n)
    hi = lo + random.integers(0, 2, n)
    matrix = {
        "none": None,
        "equal": np.full((n, 1), 5, np.uint64),
        "few": random.integers(0, 3, (n, 1)).astype(np.uint64),
        "two words": random.integers(0, 3, (n, 2)).astype(np.uint64),
        "all different": random.permutation(n).astype(np.uint64).reshape(n, 1),
    }[sets]
    check(hashes, lo, hi, matrix)
