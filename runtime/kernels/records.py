"""Kafka's record format (version 2), read without a Python object per record.

    record    length | attributes | time delta | offset delta | key length | key | value length | value
              | number of headers | (key length | key | value length | value) ...

All numbers but the attributes are variable-length and zigzag-encoded. Lengths below zero mean null. The bytes come from
outside, so every length is checked before it is used; bytes that do not add up give -1 and are never read past.
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]

_BREAK, _OPEN, _CLOSE = 10, 123, 125


@nb.njit(cache=True, nogil=True, inline="always")
def _number(data: U8, at: int, end: int):  # type: ignore[no-untyped-def]
    """(value, place after it); the place is -1 if the number does not end in time."""
    value = np.uint64(0)
    shift = np.uint64(0)
    while at < end and shift < 64:
        byte = np.uint64(data[at])
        value |= (byte & np.uint64(127)) << shift
        at += 1
        if byte < 128:
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), at
        shift += np.uint64(7)
    return np.int64(0), -1


@nb.njit(cache=True, nogil=True)
def unpack(data: U8, at: int, count: int):  # type: ignore[no-untyped-def]
    """Of `count` records that begin at `at`: offset delta, start and length (-1: null) of the value.

    And the place after the last one, -1 if the bytes are not that.
    """
    deltas = np.empty(count, np.int64)
    starts = np.empty(count, np.int64)
    lengths = np.empty(count, np.int64)
    for i in range(count):
        length, at = _number(data, at, data.shape[0])
        if at < 0 or length < 1 or length > data.shape[0] - at:
            return deltas, starts, lengths, -1
        end = at + length
        _, at = _number(data, at + 1, end)  # after the attributes: the time
        if at < 0:
            return deltas, starts, lengths, -1
        deltas[i], at = _number(data, at, end)
        if at < 0:
            return deltas, starts, lengths, -1
        for part in range(2):  # key, value
            size, at = _number(data, at, end)
            if at < 0 or size > end - at:
                return deltas, starts, lengths, -1
            if part == 1:
                starts[i] = at
                lengths[i] = max(size, -1)
            at += max(size, 0)
        headers, at = _number(data, at, end)
        if at < 0 or headers < 0:
            return deltas, starts, lengths, -1
        for part in range(2 * min(headers, end)):
            size, at = _number(data, at, end)
            if at < 0 or size > end - at or (size < 0 and part % 2 == 0):
                return deltas, starts, lengths, -1
            at += max(size, 0)
        if at != end:
            return deltas, starts, lengths, -1
    return deltas, starts, lengths, at


@nb.njit(cache=True, nogil=True)
def object_lines(data: U8, starts: I64, lengths: I64):  # type: ignore[no-untyped-def]
    """The values with a line break after each, if each begins with '{', ends with '}' and holds no line break.

    Else nothing at all: an empty array.
    """
    total = 0
    for i in range(starts.shape[0]):
        if lengths[i] < 2 or data[starts[i]] != _OPEN or data[starts[i] + lengths[i] - 1] != _CLOSE:
            return np.empty(0, np.uint8)
        total += lengths[i] + 1
    out = np.empty(total, np.uint8)
    at = 0
    for i in range(starts.shape[0]):
        broken = False
        for place in range(starts[i], starts[i] + lengths[i]):
            broken |= data[place] == _BREAK
            out[at] = data[place]
            at += 1
        if broken:
            return np.empty(0, np.uint8)
        out[at] = _BREAK
        at += 1
    return out
