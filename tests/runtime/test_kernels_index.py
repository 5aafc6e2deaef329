"""Index, intersection and expansion against brute force on plain lists.

Random items with few hashes, few slices and query sets of one to three words, so that every branch is taken: several
slices under one hash, empty intersections, pieces of a partition, pieces of a single entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.kernels import csr
from runtime.kernels.expand import carry, count_pairs, pairs, unroll
from runtime.kernels.intersect import intersect, intersections
from tests.runtime.kernel_support import arguments
from tests.runtime.rig import entries

HASHES = [0, 1, 2, (1 << 63) - 1, 1 << 63, (1 << 64) - 2, (1 << 64) - 1]
SHAPES = [(10, 10), (25, 10), (7, 20), (40, 5)]
END = np.iinfo(np.int32).max


@dataclass(frozen=True)
class Items:
    """Items 0..n-1; `chosen` of them are indexed."""

    hashes: list[int]
    lo: list[int]
    hi: list[int]
    sets: list[int]
    chosen: list[int]
    words: int

    @property
    def matrix(self):
        rows = [[s >> 64 * w & (1 << 64) - 1 for w in range(self.words)] for s in self.sets]
        return np.array(rows, np.uint64).reshape(len(rows), self.words)

    @property
    def index(self):
        lo, hi = np.array(self.lo, np.int64), np.array(self.hi, np.int64)
        hashes = np.array(self.hashes, np.uint64)
        return csr.build(np.array(self.chosen, np.intp), hashes, lo, hi, self.matrix)

    @property
    def items(self):
        return csr.Items(self.index.order, self.index.offsets, self.matrix)

    def item(self, i):
        return self.hashes[i], self.lo[i], self.hi[i], self.sets[i]

    @property
    def entries(self):
        """Index entries as if each were one item, with the union of its members' query sets."""
        index = self.index
        columns = (index.hashes.tolist(), index.lo.tolist(), index.hi.tolist(), map(number, index.query_sets))
        return list(zip(*columns, strict=True))


def number(row):
    """A query set as one number."""
    return sum(int(word) << 64 * w for w, word in enumerate(row))


@st.composite
def items(draw, words, size=14):
    n = draw(st.integers(0, size))

    def many(values):
        return draw(st.lists(values, min_size=n, max_size=n))

    lo = many(st.integers(-4, 6).map(lambda s: 5 * s))
    hi = [a + d for a, d in zip(lo, many(st.sampled_from([0, 0, 0, 5, 15])), strict=True)]
    slots = st.sets(st.sampled_from([0, 1, 5, 63, 64, 70, 127, 128, 190]), max_size=4)
    sets = [sum(1 << s for s in chosen if s < 64 * words) for chosen in many(slots)]
    chosen = sorted(draw(st.sets(st.sampled_from(range(n)), max_size=n))) if n else []
    return Items(many(st.sampled_from(HASHES)), lo, hi, sets, chosen, words)


@given(st.integers(1, 3).flatmap(items))
def test_an_index_groups_items_by_hash_and_slices_in_order(given_items):
    index = given_items.index
    groups = {}
    for i in given_items.chosen:
        groups.setdefault((given_items.hashes[i], given_items.lo[i], given_items.hi[i]), []).append(i)
    expected = sorted(groups.items())
    assert [(int(h), int(a), int(b)) for h, a, b in zip(index.hashes, index.lo, index.hi, strict=True)] == [
        key for key, _ in expected
    ]
    assert entries(index) == [members for _, members in expected]
    united = [0] * len(expected)
    for e, (_, members) in enumerate(expected):
        for i in members:
            united[e] |= given_items.sets[i]
    assert [number(row) for row in index.query_sets] == united


@pytest.mark.parametrize("n", [0, 1, 23, 24, 25, 48, 1000, 5000])
@pytest.mark.parametrize("spread", ["uniform", "one hash", "few hashes", "leading bits equal"])
def test_an_index_of_any_size_is_in_order(n, spread):
    rng = np.random.default_rng(n)
    hashes = {
        "uniform": rng.integers(0, 1 << 64, n, np.uint64, endpoint=False),
        "one hash": np.full(n, 12345, np.uint64),
        "few hashes": rng.integers(0, 7, n).astype(np.uint64) << np.uint64(61),
        "leading bits equal": rng.integers(0, 1000, n).astype(np.uint64),
    }[spread]
    lo = rng.integers(-3, 3, n) * 10
    hi = lo + rng.integers(0, 2, n) * 10
    index = csr.build(np.arange(n), hashes, lo, hi, np.ones((n, 1), np.uint64))
    assert index.order.tolist() == np.lexsort((np.arange(n), hi, lo, hashes)).tolist()
    assert int(index.offsets[-1]) == n


@given(items(1), st.lists(st.sampled_from([0, *HASHES, 1 << 64]), min_size=0, max_size=4))
def test_partitions_cut_an_index_into_contiguous_pieces(given_items, inner):
    index = given_items.index
    bounds = sorted({0, *inner, 1 << 64})
    pieces = [index.range(a, b) for a, b in pairwise(bounds)]
    assert [e for a, b in pieces for e in range(a, b)] == list(range(len(index.hashes)))
    for (a, b), first, end in zip(pieces, bounds[:-1], bounds[1:], strict=True):
        assert all(first <= int(h) < end for h in index.hashes[a:b])


def in_one_window(lo, hi, size, advance):
    """Some k with k*advance <= lo and hi < k*advance + size, by trying them."""
    return any(k * advance <= lo and hi < k * advance + size for k in range(-200, 200))


def wanted(left, right, alive, shapes):
    """The queries two items (hash, lo, hi, query set) are for: in both sets, alive, with a window over both."""
    (l_hash, l_lo, l_hi, l_set), (r_hash, r_lo, r_hi, r_set) = left, right
    lo, hi = min(l_lo, r_lo), max(l_hi, r_hi)
    if l_hash != r_hash:
        return 0
    reach = sum(slots for (size, advance), slots in shapes if lo == hi or in_one_window(lo, hi, size, advance))
    return l_set & r_set & alive & reach


@st.composite
def joins(draw):
    words = draw(st.integers(1, 3))
    left, right = draw(items(words)), draw(items(words))
    # every slot belongs to exactly one window shape
    owner = draw(st.lists(st.integers(0, len(SHAPES) - 1), min_size=64 * words, max_size=64 * words))
    shapes = [(shape, sum(1 << s for s, o in enumerate(owner) if o == n)) for n, shape in enumerate(SHAPES)]
    dead = draw(st.sets(st.sampled_from([0, 5, 63, 64, 128]), max_size=2))
    alive = ((1 << 64 * words) - 1) & ~sum(1 << s for s in dead)
    l_range = sorted(draw(st.lists(st.integers(0, len(left.index.hashes)), min_size=2, max_size=2)))
    return left, right, alive, shapes, tuple(draw(st.sampled_from([l_range, [0, len(left.index.hashes)]])))


def as_words(value, words):
    return np.array([value >> 64 * w & (1 << 64) - 1 for w in range(words)], np.uint64)


def call(left, right, alive, shapes, l_range):
    shape_sets = np.stack([as_words(slots, left.words) for _, slots in shapes])
    shape_list = [shape for shape, _ in shapes]
    return intersect(*arguments(left.index, right.index, as_words(alive, left.words), shape_list, shape_sets, l_range))


@given(joins())
def test_intersection_finds_every_pair_of_entries_some_query_wants_and_no_other(join):
    left, right, alive, shapes, (first, end) = join
    l, r, sets = call(left, right, alive, shapes, (first, end))
    found = {(int(a), int(b)): number(s) for a, b, s in zip(l, r, sets, strict=True)}
    assert len(found) == len(l), "no pair twice"
    expected = {
        (a, b): wanted(mine, other, alive, shapes)
        for a, mine in enumerate(left.entries)
        for b, other in enumerate(right.entries)
        if first <= a < end
    }
    assert found == {pair: queries for pair, queries in expected.items() if queries}


@given(joins(), st.integers(1, 6))
def test_intersection_in_pieces_is_the_same_in_order(join, allowed):
    left, right, alive, shapes, l_range = join
    whole = call(left, right, alive, shapes, l_range)
    shape_sets = np.stack([as_words(slots, left.words) for _, slots in shapes])
    given_arguments = arguments(
        left.index, right.index, as_words(alive, left.words), [s for s, _ in shapes], shape_sets, l_range
    )
    pieces = list(intersections(*given_arguments, allowed))
    for name in ("left", "right", "sets"):
        found = np.concatenate([getattr(piece, name) for piece in pieces])
        assert found.tolist() == getattr(whole, name).tolist()
    assert all(len(p.left) <= allowed or len(set(p.left.tolist())) == 1 for p in pieces)


@pytest.mark.parametrize("shapes", [63, 64, 65, 130])
def test_any_number_of_window_shapes(shapes):
    """A join with many shapes: those beyond the first 64 are looked at in another way."""
    rng = np.random.default_rng(shapes)
    n, words = 60, 3
    lo = rng.integers(0, 40, (2, n)) * 50
    sets = rng.integers(0, 1 << 63, (2, n, words)).astype(np.uint64)
    hashes = rng.integers(0, 3, (2, n)).astype(np.uint64) << np.uint64(60)
    sides = [csr.build(np.arange(n), hashes[i], lo[i], lo[i], sets[i]) for i in range(2)]
    windows = [
        (int(s), int(a)) for s, a in zip(rng.integers(1, 20, shapes) * 50, rng.integers(1, 9, shapes) * 50, strict=True)
    ]
    owner = rng.integers(0, shapes, 64 * words)
    of_shape = [sum(1 << s for s, o in enumerate(owner) if o == k) for k in range(shapes)]
    everybody = (1 << 64 * words) - 1
    l, r, found = intersect(
        *arguments(
            sides[0],
            sides[1],
            as_words(everybody, words),
            windows,
            np.stack([as_words(s, words) for s in of_shape]),
            (0, len(sides[0].hashes)),
        )
    )
    entry = [
        [(int(x.hashes[e]), int(x.lo[e]), int(x.hi[e]), number(x.query_sets[e])) for e in range(len(x.hashes))]
        for x in sides
    ]
    expected = {
        (a, b): queries
        for a, mine in enumerate(entry[0])
        for b, other in enumerate(entry[1])
        if (queries := wanted(mine, other, everybody, list(zip(windows, of_shape, strict=True))))
    }
    assert {(int(a), int(b)): number(s) for a, b, s in zip(l, r, found, strict=True)} == expected


@given(joins(), st.integers(1, 4))
def test_expansion_gives_every_combination_once_however_a_partition_is_dealt_out(join, ways):
    left, right, alive, shapes, _ = join
    whole = (0, len(left.index.hashes))
    l, r, sets = call(left, right, alive, shapes, whole)
    n = len(left.index.order)
    cuts = [n * w // ways for w in range(ways + 1)]
    found = []
    for a, b in pairwise(cuts):
        counts = count_pairs(l, left.index.offsets, a, b, r, right.index.offsets)
        p, li, ri, position, qs = pairs(l, left.items, a, b, r, right.items, sets, int(counts.sum()))
        assert [int(right.index.order[x]) for x in position] == ri.tolist()
        found += [(int(i), int(j), number(q)) for i, j, q in zip(li, ri, qs, strict=True)]
        assert len(p) <= counts.sum()
    expected = [(i, j, wanted(left.item(i), right.item(j), alive, shapes)) for i in left.chosen for j in right.chosen]
    assert sorted(found) == sorted(row for row in expected if row[2])


@given(joins())
def test_carrying_keeps_one_item_per_tuple_of_the_carrying_side_and_a_closed_list(join):
    left, right, alive, shapes, _ = join
    l, r, sets = call(left, right, alive, shapes, (0, len(left.index.hashes)))
    for mine, order, l_side in ((l, left, True), (r, right, False)):
        index = order.index
        p, item, qs = carry(mine, sets, order.items, 0, END)
        found = sorted((int(a), int(b), number(q)) for a, b, q in zip(p, item, qs, strict=True))
        expected = sorted(
            (n, i, order.sets[i] & number(sets[n]))
            for n, e in enumerate(mine)
            for i in entries(index)[e]
            if order.sets[i] & number(sets[n])
        )
        assert found == expected, "left" if l_side else "right"


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 6))))
def test_unrolling_lays_ranges_out_flat(ranges):
    starts = np.array([a for a, _ in ranges], np.int64)
    ends = np.array([a + n for a, n in ranges], np.int64)
    which, position = unroll(starts, ends)
    expected = [(w, a + k) for w, (a, n) in enumerate(ranges) for k in range(n)]
    assert list(zip(which.tolist(), position.tolist(), strict=True)) == expected
