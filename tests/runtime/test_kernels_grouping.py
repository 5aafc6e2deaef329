"""Entries of a fold against sorting in plain Python: few keys and many, equal leading hash bits, few codes and many."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.kernels.grouping import fold_entries

HASHES = [0, 1, 2, 1 << 20, (1 << 63) - 1, 1 << 63, (1 << 64) - 2, (1 << 64) - 1]


def check(hashes, lo, hi, codes):
    def key(i):
        return int(hashes[i]), int(lo[i]), int(hi[i]), 0 if codes is None else int(codes[i])

    expected = sorted(range(len(hashes)), key=key)
    order, offsets = fold_entries(hashes, lo, hi, codes)
    assert order.dtype == np.int32 and offsets.dtype == np.int64
    assert order.tolist() == expected
    fresh = [p for p, i in enumerate(expected) if p == 0 or key(i) != key(expected[p - 1])]
    assert offsets.tolist() == [*fresh, len(expected)]


@given(st.data(), st.sampled_from([None, 0, 3, (1 << 31) - 1]))
def test_few_items(data, greatest):
    n = data.draw(st.integers(0, 30))
    many = st.lists(st.integers(-2, 2), min_size=n, max_size=n)
    hashes = np.array([HASHES[data.draw(st.integers(0, 7))] for _ in range(n)], np.uint64)
    codes = [data.draw(st.sampled_from([0, greatest // 2, greatest])) for _ in range(n)] if greatest is not None else []
    lo, hi = (np.array(data.draw(many), np.int64) for _ in range(2))
    check(hashes, lo, hi, None if greatest is None else np.array(codes, np.int32))


@pytest.mark.parametrize("groups", [1, 50, 4000, 1 << 62])
@pytest.mark.parametrize("slices", [1, 9, 100_000])
@pytest.mark.parametrize("sets", ["none", "equal", "few", "all different", "far apart"])
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
    codes = {
        "none": None,
        "equal": np.full(n, 5),
        "few": random.integers(0, 3, n),
        "all different": random.permutation(n),
        "far apart": random.integers(0, 3, n) * ((1 << 30) - 1),
    }[sets]
    check(hashes, lo, hi, None if codes is None else codes.astype(np.int32))
