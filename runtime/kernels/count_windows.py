"""SUM and MIN over count windows of one column: tuples [k * slide, k * slide + size) for k = 0, 1, ...

Two ways to the same numbers. `per_tuple` is two stacks as in the textbook: every tuple is pushed with the aggregate
of the stack below it, popped when it leaves, and moved over when the other stack is empty; one step of each kind per
tuple. Both stacks hold values and aggregates; `lean` leaves out the values of the outgoing one, which nobody
reads. `bulk` is Hammer Slide's: tuples that enter and leave together are folded to one partial first (a plain reduction
over memory that the compiler turns into vector instructions), and the two stacks hold partials; of the incoming stack
only the running value is kept, of the outgoing one only the aggregates. So nearly all of the time goes into reading
the column once.

Reductions of integers are vectorised as they stand. A piece of the column is folded when its last tuple is there, so
`bulk` may be called with whatever has arrived and works in one pass.
"""

from __future__ import annotations

import math
from typing import Any

import numba as nb
import numpy as np
import numpy.typing as npt

from runtime.kernels.kinds import INTS, SHORTS

I64 = npt.NDArray[np.int64]
Values = npt.NDArray[Any]

SUM, MIN = 0, 1
_BULK = [(SHORTS, nb.int64), (INTS, nb.int64)]
_TUPLES = [(SHORTS, nb.int64, nb.int64, nb.boolean), (INTS, nb.int64, nb.int64, nb.boolean)]


@nb.njit(_BULK, cache=True, nogil=True)
def piece_sums(values: Values, length: int) -> I64:
    """Of each whole piece of so many tuples."""
    out = np.empty(values.shape[0] // length, np.int64)
    for p in range(out.shape[0]):
        piece = values[p * length : (p + 1) * length]  # counted from 0: no index can be negative, which vectors need
        s = np.int64(0)
        for i in range(piece.shape[0]):
            s += np.int64(piece[i])
        out[p] = s
    return out


@nb.njit(_BULK, cache=True, nogil=True)
def piece_minima(values: Values, length: int) -> I64:
    out = np.empty(values.shape[0] // length, np.int64)
    for p in range(out.shape[0]):
        piece = values[p * length : (p + 1) * length]
        m = piece[0]
        for i in range(piece.shape[0]):
            m = min(m, piece[i])
        out[p] = m
    return out


@nb.njit(cache=True, nogil=True, inline="always")
def _of(a: int, b: int, operation: int) -> int:
    return a + b if operation == SUM else min(a, b)


@nb.njit([(INTS, nb.int64, nb.int64, nb.int64)], cache=True, nogil=True)
def _stacks(pieces: I64, size: int, slide: int, operation: int) -> I64:
    """Windows of `size` pieces, sliding by `slide` pieces."""
    count = (pieces.shape[0] - size) // slide + 1 if pieces.shape[0] >= size else 0
    out = np.empty(count, np.int64)
    front = np.empty(size, np.int64)  # aggregates from each piece up to the border
    bottom = border = right = 0
    back = np.int64(0)
    for w in range(count):
        first, end = w * slide, w * slide + size
        if first >= border:
            bottom, border, right = first, end, end
            front[size - 1] = pieces[end - 1]
            for k in range(size - 2, -1, -1):
                front[k] = _of(pieces[first + k], front[k + 1], operation)
            out[w] = front[0]
            continue
        for k in range(right, end):
            back = pieces[k] if k == border else np.int64(_of(back, pieces[k], operation))
        right = end
        out[w] = _of(front[first - bottom], back, operation)
    return out


def bulk(values: Values, size: int, slide: int, operation: int) -> I64:
    """One number per full window."""
    piece = math.gcd(size, slide)
    pieces = (piece_sums if operation == SUM else piece_minima)(values, piece)
    out: I64 = _stacks(pieces, size // piece, slide // piece, operation)
    return out


@nb.njit(cache=True, nogil=True)
def _per_tuple(values: Values, size: int, slide: int, lean: bool, operation: int) -> I64:
    count = (values.shape[0] - size) // slide + 1 if values.shape[0] >= size else 0
    out = np.empty(count, np.int64)
    in_values, in_folds = np.empty(size, np.int64), np.empty(size, np.int64)
    out_values, out_folds = np.empty(size, np.int64), np.empty(size, np.int64)
    n_in = n_out = 0
    w = 0
    for i in range(values.shape[0]):
        if w == count:
            break
        if i < slide * w:
            continue  # between two windows that do not touch
        x = np.int64(values[i])
        in_folds[n_in] = x if n_in == 0 else _of(in_folds[n_in - 1], x, operation)
        in_values[n_in] = x
        n_in += 1
        if n_in + n_out < size:
            continue
        if n_out == 0:
            out[w] = in_folds[n_in - 1]
        elif n_in == 0:
            out[w] = out_folds[n_out - 1]
        else:
            out[w] = _of(out_folds[n_out - 1], in_folds[n_in - 1], operation)
        w += 1
        for _ in range(min(slide, size)):
            if n_out == 0:
                while n_in > 0:
                    n_in -= 1
                    y = in_values[n_in]
                    if not lean:
                        out_values[n_out] = y
                    out_folds[n_out] = y if n_out == 0 else _of(y, out_folds[n_out - 1], operation)
                    n_out += 1
            n_out -= 1
    return out


@nb.njit(_TUPLES, cache=True, nogil=True)
def per_tuple_sums(values: Values, size: int, slide: int, lean: bool) -> I64:
    out: I64 = _per_tuple(values, size, slide, lean, SUM)
    return out


@nb.njit(_TUPLES, cache=True, nogil=True)
def per_tuple_minima(values: Values, size: int, slide: int, lean: bool) -> I64:
    out: I64 = _per_tuple(values, size, slide, lean, MIN)
    return out


def per_tuple(values: Values, size: int, slide: int, operation: int, *, lean: bool = False) -> I64:
    out: I64 = (per_tuple_sums if operation == SUM else per_tuple_minima)(values, size, slide, lean)
    return out
