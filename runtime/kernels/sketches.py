"""HyperLogLog: how many distinct values, in a few bytes, with a known error.

A value's hash picks one of 2**11 registers by its first 11 bits, and the register keeps the longest run of leading
zeros (plus one) seen in the 30 bits after them. Merging takes the larger register, so it matters neither how often
nor in which order a value is seen. The estimate is Ertl's (New cardinality estimation algorithms for HyperLogLog
sketches, 2017), which needs no tables of corrections and is right from one value to 10**12.

Only registers that are not zero are kept, as codes `register * 32 + rank`, ascending: a list of at most 2,048 codes
of two bytes in a file, and of few for a group of few values. The standard error is 1.04 / sqrt(2048) = 2.3 %.
"""

from __future__ import annotations

import math

import numba as nb
import numpy as np
import numpy.typing as npt

from runtime.kernels.kinds import INTS, MASK, SHORTS, WORDS

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]

BITS = 11
REGISTERS = 1 << BITS
_ZEROS = 30
_DENSE = 512
"""From so many codes on a group is merged in an array of all registers instead of by sorting."""


@nb.njit([(WORDS,)], cache=True, nogil=True)
def codes_of(hashes: U64) -> I32:
    """The code of each value."""
    out = np.empty(hashes.shape[0], np.int32)
    for i in range(hashes.shape[0]):
        register = np.int32(hashes[i] >> np.uint64(64 - BITS))
        rest = hashes[i] << np.uint64(BITS)
        rank = 1
        while rank <= _ZEROS and (rest >> np.uint64(63)) == 0:
            rest <<= np.uint64(1)
            rank += 1
        out[i] = register * 32 + rank
    return out


@nb.njit(cache=True, nogil=True)
def _merged(codes: I32, n: int, registers: I32, out: I32) -> int:
    """The first n of `codes` (overwritten) as a list in `out`; returns its length. `registers` is all zeros and is
    left so."""
    size = 0
    if n >= _DENSE:
        for i in range(n):
            r = codes[i] >> 5
            registers[r] = max(registers[r], codes[i])
        for r in range(REGISTERS):
            if registers[r] > 0:
                out[size] = registers[r]
                size += 1
                registers[r] = 0
        return size
    if n > 1:
        codes[:n].sort()
    for i in range(n):
        if i + 1 == n or codes[i] >> 5 != codes[i + 1] >> 5:
            out[size] = codes[i]
            size += 1
    return size


@nb.njit([(SHORTS, INTS, SHORTS, MASK)], cache=True, nogil=True)
def sketches_of(order: I32, offsets: I64, codes: I32, keep: Mask):  # type: ignore[no-untyped-def]
    """(starts, codes) of each group of single values. `keep` empty: all have a value."""
    groups = offsets.shape[0] - 1
    largest = np.int64(0)
    total = np.int64(0)
    for g in range(groups):
        size = offsets[g + 1] - offsets[g]
        largest = max(largest, size)
        total += min(size, np.int64(REGISTERS))
    starts = np.zeros(groups + 1, np.int64)
    out = np.empty(total, np.int32)
    scratch = np.empty(largest, np.int32)
    registers = np.zeros(REGISTERS, np.int32)
    for g in range(groups):
        n = 0
        for i in range(offsets[g], offsets[g + 1]):
            if keep.shape[0] == 0 or keep[order[i]]:
                scratch[n] = codes[order[i]]
                n += 1
        starts[g + 1] = starts[g] + _merged(scratch, n, registers, out[starts[g] :])
    return starts, out[: starts[groups]].copy()


@nb.njit([(SHORTS, INTS, INTS, SHORTS)], cache=True, nogil=True)
def merge_sketches(order: I32, offsets: I64, starts: I64, codes: I32):  # type: ignore[no-untyped-def]
    """(starts, codes): the sketches of each group's entries as one."""
    groups = offsets.shape[0] - 1
    largest = np.int64(0)
    total = np.int64(0)
    for g in range(groups):
        size = np.int64(0)
        for i in range(offsets[g], offsets[g + 1]):
            size += starts[order[i] + 1] - starts[order[i]]
        largest = max(largest, size)
        total += min(size, np.int64(REGISTERS))
    out_starts = np.zeros(groups + 1, np.int64)
    out = np.empty(total, np.int32)
    scratch = np.empty(largest, np.int32)
    registers = np.zeros(REGISTERS, np.int32)
    for g in range(groups):
        n = 0
        for i in range(offsets[g], offsets[g + 1]):
            for k in range(starts[order[i]], starts[order[i] + 1]):
                scratch[n] = codes[k]
                n += 1
        out_starts[g + 1] = out_starts[g] + _merged(scratch, n, registers, out[out_starts[g] :])
    return out_starts, out[: out_starts[groups]].copy()


@nb.njit(cache=True, nogil=True)
def _sigma(x: float) -> float:
    y = 1.0
    z = x
    while True:
        x *= x
        before = z
        z += x * y
        y += y
        if z == before:
            return z


@nb.njit(cache=True, nogil=True)
def _tau(x: float) -> float:
    if x == 0.0 or x == 1.0:
        return 0.0
    y = 1.0
    z = 1.0 - x
    while True:
        x = math.sqrt(x)
        before = z
        y *= 0.5
        z -= (1.0 - x) ** 2 * y
        if z == before:
            return z / 3.0


@nb.njit([(INTS, SHORTS)], cache=True, nogil=True)
def estimates(starts: I64, codes: I32) -> I64:
    """The number of distinct values of each entry, rounded; 0 for an empty one."""
    out = np.zeros(starts.shape[0] - 1, np.int64)
    with_rank = np.empty(_ZEROS + 2, np.int64)
    for e in range(out.shape[0]):
        if starts[e] == starts[e + 1]:
            continue
        with_rank[:] = 0
        with_rank[0] = REGISTERS - (starts[e + 1] - starts[e])
        for k in range(starts[e], starts[e + 1]):
            with_rank[codes[k] & 31] += 1
        z = REGISTERS * _tau(1.0 - with_rank[_ZEROS + 1] / REGISTERS)
        for rank in range(_ZEROS, 0, -1):
            z = 0.5 * (z + with_rank[rank])
        z += REGISTERS * _sigma(with_rank[0] / REGISTERS)
        out[e] = np.int64(np.rint(REGISTERS * (REGISTERS / z) / (2.0 * math.log(2.0))))
    return out
