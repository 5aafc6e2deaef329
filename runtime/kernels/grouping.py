"""Which items belong together: the entries of a fold, ordered by hash, then slice, then query set.

A fold needs equal (hash, lo, hi, set) next to each other and the entries in order, but no order among the millions of
items themselves: so only the distinct entries are sorted. First, (lo, hi, set) becomes one small number, its rank: the
slices are few, and sets come as numbers. Then there are two ways.

Few groups, slices and sets, so that they multiply to no more cells than a few times the items: items are counted per
cell and dealt out, two passes.

Otherwise two passes over the items, each of them within the processor's caches:

    1. items are dealt out by the leading bits of their hash to pieces of about a thousand
    2. in each piece a little table numbers the distinct (hash, rank); these are sorted, and the items dealt out again

Dealing out keeps the order, so items inside an entry stand as they came; "first" and "last" rely on it. It takes a
third to a half of the time of sorting the items: for 1 million in 100,000 groups 25 ms instead of 65, in ten slices 40
to 55 ms instead of 105 to 135. The time is linear as long as hashes are spread; equal leading bits cost a merge sort of
the entries that have them.
"""

from __future__ import annotations

from typing import NamedTuple

import numba as nb
import numpy as np
import numpy.typing as npt

from runtime.kernels.csr import sort_run
from runtime.kernels.kinds import INTS, SHORTS, WORDS

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]

_PIECE = 10
"""Items are dealt out to pieces of 2**10 on average."""

FEW_BITS = 12
FEW_GROUPS = 1 << FEW_BITS
"""Groups that are numbered before items are dealt out."""

SPARSE = 4
"""Cells per item that may be counted."""

MOST_KINDS = (1 << 31) - 1

_NO_CODES = np.empty(0, np.int32)


class Entries(NamedTuple):
    """Items `order[offsets[e]:offsets[e + 1]]` are those of entry e."""

    order: I32
    offsets: I64


@nb.njit(cache=True, nogil=True, inline="always")
def _slot(lo: int, hi: int, bits: int) -> int:
    h = np.uint64(lo) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(hi)
    h = (h ^ (h >> np.uint64(32))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64(h >> np.uint64(64 - bits))  # type: ignore[return-value]


@nb.njit([(INTS, INTS)], cache=True, nogil=True)
def _spans(lo: I64, hi: I64):  # type: ignore[no-untyped-def]
    """(the first item of each distinct (lo, hi), per item the number of its own).

    Neighbours are mostly of one span, so the table is mostly not even looked at. It grows with what it holds.
    """
    n = lo.shape[0]
    spans = np.empty(n, np.int32)
    first = np.empty(n, np.int64)
    bits = 10
    table = np.full(1 << bits, -1, np.int32)
    count = 0
    for i in range(n):
        if i > 0 and lo[i] == lo[i - 1] and hi[i] == hi[i - 1]:
            spans[i] = spans[i - 1]
            continue
        slot = _slot(lo[i], hi[i], bits)
        while table[slot] >= 0 and (lo[i] != lo[first[table[slot]]] or hi[i] != hi[first[table[slot]]]):
            slot = (slot + 1) & (table.shape[0] - 1)
        if table[slot] >= 0:
            spans[i] = table[slot]
            continue
        spans[i] = table[slot] = count
        first[count] = i
        count += 1
        if 2 * count > table.shape[0]:
            bits += 2
            table = np.full(1 << bits, -1, np.int32)
            for k in range(count):
                slot = _slot(lo[first[k]], hi[first[k]], bits)
                while table[slot] >= 0:
                    slot = (slot + 1) & (table.shape[0] - 1)
                table[slot] = k
    return first[:count].copy(), spans


@nb.njit([(SHORTS, SHORTS, SHORTS, nb.int64)], cache=True, nogil=True)
def _ranked(spans: I32, rank_of: I32, codes: I32, sets: int) -> I32:
    """rank of the span * sets + code; without codes, the rank of the span."""
    out = np.empty(spans.shape[0], np.int32)
    if codes.shape[0] == 0:
        for i in range(spans.shape[0]):
            out[i] = rank_of[spans[i]]
    else:
        for i in range(spans.shape[0]):
            out[i] = rank_of[spans[i]] * sets + codes[i]
    return out


@nb.njit([(WORDS,)], cache=True, nogil=True)
def _few_groups(hashes: U64):  # type: ignore[no-untyped-def]
    """(the distinct hashes, per item the number of its own); more than FEW_GROUPS: none at all."""
    n = hashes.shape[0]
    bits = FEW_BITS + 2
    table = np.full(1 << bits, -1, np.int32)
    distinct = np.empty(FEW_GROUPS, np.uint64)
    numbers = np.empty(n, np.int32)
    count = 0
    for i in range(n):
        h = hashes[i]
        slot = np.int64(((h ^ (h >> np.uint64(31))) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(64 - bits))
        while table[slot] >= 0 and distinct[table[slot]] != h:
            slot = (slot + 1) & (table.shape[0] - 1)
        if table[slot] < 0:
            if count == FEW_GROUPS:
                return distinct[:0].copy(), numbers[:0].copy()
            table[slot] = count
            distinct[count] = h
            count += 1
        numbers[i] = table[slot]
    return distinct[:count].copy(), numbers


@nb.njit([(SHORTS, SHORTS, SHORTS, nb.int64)], cache=True, nogil=True)
def _counted(numbers: I32, rank_of: I32, ranks: I32, kinds: int):  # type: ignore[no-untyped-def]
    """(order, offsets): items dealt out to cells, one per group and kind, which is cheap if the cells are few."""
    n = numbers.shape[0]
    at = np.zeros(rank_of.shape[0] * kinds + 1, np.int64)
    for i in range(n):
        at[rank_of[numbers[i]] * kinds + ranks[i] + 1] += 1
    offsets = np.empty(min(n, at.shape[0] - 1) + 1, np.int64)
    count = 0
    for c in range(at.shape[0] - 1):
        if at[c + 1] > 0:
            offsets[count] = at[c]
            count += 1
        at[c + 1] += at[c]
    offsets[count] = n
    order = np.empty(n, np.int32)
    for i in range(n):
        c = rank_of[numbers[i]] * kinds + ranks[i]
        order[at[c]] = i
        at[c] += 1
    return order, offsets[: count + 1].copy()


@nb.njit(cache=True, nogil=True)
def _bits(n: int) -> int:
    """Of the smallest power of two that is at least n."""
    bits = 0
    while (1 << bits) < n:
        bits += 1
    return bits


@nb.njit(cache=True, nogil=True)
def _number(hashes: U64, ranks: I32, table: I32, number: I32, e_hash: U64, e_rank: I64, e_size: I64) -> int:
    """Number the distinct (hash, rank) of a piece as they come: `number` per item; hash, rank and items per entry."""
    n = hashes.shape[0]
    bits = _bits(n) + 1
    size = 1 << bits
    table[:size] = -1
    d = 0
    for i in range(n):
        h, r = hashes[i], ranks[i]
        slot = np.int64(
            ((h ^ (h >> np.uint64(31))) + np.uint64(r) * np.uint64(0xD1342543DE82EF95)) * np.uint64(0x9E3779B97F4A7C15)
            >> np.uint64(64 - bits)
        )
        while True:
            e = table[slot]
            if e < 0:
                table[slot] = e = d
                e_hash[d], e_rank[d], e_size[d] = h, r, 0
                d += 1
                break
            if e_hash[e] == h and e_rank[e] == r:
                break
            slot = (slot + 1) & (size - 1)
        number[i] = e
        e_size[e] += 1
    return d


@nb.njit(cache=True, nogil=True)
def _sort_entries(d: int, used: np.uint64, e_hash: U64, e_rank: I64, out: I32, spare: I32) -> None:
    """Entries 0..d-1 by (hash, rank): dealt out by the hash bits after the `used` ones, which leaves very few together,
    and these are sorted."""
    bits = min(_bits(d), 48)
    starts = np.zeros((1 << bits) + 1, np.int64)
    if bits == 0:
        out[0] = 0
        return
    right = np.uint64(64 - bits)
    for e in range(d):
        starts[np.int64((e_hash[e] << used) >> right) + 1] += 1
    for k in range(1 << bits):
        starts[k + 1] += starts[k]
    at = starts[:-1].copy()
    for e in range(d):
        place = np.int64((e_hash[e] << used) >> right)
        out[at[place]] = e
        at[place] += 1
    for k in range(1 << bits):
        if starts[k + 1] - starts[k] > 1:
            sort_run(out, spare, starts[k], starts[k + 1], e_hash, e_rank, e_rank)


@nb.njit([(WORDS, SHORTS, nb.int64)], cache=True, nogil=True)
def _grouped(hashes: U64, ranks: I32, pieces: int):  # type: ignore[no-untyped-def]
    """(order, offsets, entries): `pieces`: how many leading bits of the hash name an item's piece."""
    n = hashes.shape[0]
    shift = np.uint64(64 - pieces)
    starts = np.zeros((1 << pieces) + 1, np.int64)
    for i in range(n):
        starts[np.int64(hashes[i] >> shift) + 1] += 1
    largest = np.int64(0)
    for p in range(1 << pieces):
        largest = max(largest, starts[p + 1])
        starts[p + 1] += starts[p]
    dealt = np.empty(n, np.int32)
    dealt_hashes = np.empty(n, np.uint64)
    dealt_ranks = np.empty(n, np.int32)
    at = starts.copy()
    for i in range(n):
        piece = np.int64(hashes[i] >> shift)
        k = at[piece]
        at[piece] = k + 1
        dealt[k] = i
        dealt_hashes[k] = hashes[i]
        dealt_ranks[k] = ranks[i]

    order = np.empty(n, np.int32)
    offsets = np.empty(n + 1, np.int64)
    count = 0
    table = np.empty(1 << (_bits(largest) + 1), np.int32)
    number = np.empty(largest, np.int32)
    e_hash = np.empty(largest, np.uint64)
    e_rank = np.empty(largest, np.int64)
    e_place = np.empty(largest, np.int64)
    sorted_ = np.empty(largest, np.int32)
    spare = np.empty(largest, np.int32)
    for p in range(1 << pieces):
        a, b = starts[p], starts[p + 1]
        if a == b:
            continue
        d = _number(dealt_hashes[a:b], dealt_ranks[a:b], table, number, e_hash, e_rank, e_place)
        _sort_entries(d, np.uint64(pieces), e_hash, e_rank, sorted_, spare)
        place = a
        for k in range(d):
            e = sorted_[k]
            offsets[count] = place
            count += 1
            size = e_place[e]
            e_place[e] = place
            place += size
        for k in range(a, b):
            e = number[k - a]
            order[e_place[e]] = dealt[k]
            e_place[e] += 1
    offsets[count] = n
    return order, offsets, count


def fold_entries(hashes: U64, lo: I64, hi: I64, codes: I32 | None) -> Entries:
    """Items of equal (hash, lo, hi, code) together, in their original order; entries by hash, lo, hi, code. Codes are
    not negative. None: all are equal."""
    n = len(hashes)
    if n == 0:
        return Entries(np.empty(0, np.int32), np.zeros(1, np.int64))
    first, spans = _spans(lo, hi)
    sets = 1 if codes is None else int(codes.max()) + 1
    by_rank = np.lexsort((hi[first], lo[first]))
    if len(first) * sets > MOST_KINDS:
        ranks, kinds = _renumbered(spans, by_rank, codes, sets)
    else:
        ranks = _ranked(spans, _inverse(by_rank), _NO_CODES if codes is None else codes, sets)
        kinds = len(first) * sets
    if kinds <= SPARSE * n:
        distinct, numbers = _few_groups(hashes)
        if len(distinct) and len(distinct) * kinds <= SPARSE * n:
            return Entries(*_counted(numbers, _inverse(np.argsort(distinct)), ranks, kinds))
    pieces = min(14, max(1, n.bit_length() - _PIECE))
    order, offsets, count = _grouped(hashes, ranks, pieces)
    return Entries(order, offsets[: count + 1].copy())


def _inverse(order: npt.NDArray[np.int64]) -> I32:
    """Where each number stands in an order of all."""
    out = np.empty(len(order), np.int32)
    out[order] = np.arange(len(order), dtype=np.int32)
    return out


def _renumbered(spans: I32, by_rank: I64, codes: I32 | None, sets: int) -> tuple[I32, int]:
    """(ranks, how many there are) where spans times codes are too many for small numbers: the distinct ones sorted."""
    wide = _inverse(by_rank)[spans].astype(np.int64) * sets
    distinct, ranks = np.unique(wide if codes is None else wide + codes, return_inverse=True)
    return ranks.astype(np.int32), len(distinct)
