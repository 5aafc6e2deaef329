"""Key hashes: 64 bits that order an index and decide a key's partition.

One integer, timestamp, boolean or double key goes through a bijection (the splitmix64 finalizer), so equal hashes mean
equal keys and nothing has to be compared again. Strings and composite keys are hashed for real; there an equal hash is
only a candidate, and the sink compares the key columns themselves before a row leaves. So a collision can cost time but
never join two different keys.
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]

CANDIDATE_MASK = np.uint64(0xFFFFFFFFFFFFFFFF)
"""Bits kept of string and composite hashes. Tests set it to a few bits to make collisions common."""


@nb.njit(cache=True, nogil=True)
def _mix(values: U64) -> U64:
    out = np.empty(values.shape[0], np.uint64)
    for i in range(values.shape[0]):
        z = values[i] + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        out[i] = z ^ (z >> np.uint64(31))
    return out


@nb.njit(cache=True, nogil=True)
def _hash_bytes(offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]) -> U64:
    n = offsets.shape[0] - 1
    out = np.empty(n, np.uint64)
    for i in range(n):
        h = np.uint64(0xCBF29CE484222325)
        for j in range(offsets[i], offsets[i + 1]):
            h = (h ^ np.uint64(data[j])) * np.uint64(0x100000001B3)
        out[i] = h
    return out


def hash_integers(values: npt.NDArray[np.int64]) -> U64:
    hashed: U64 = _mix(np.ascontiguousarray(values).view(np.uint64))
    return hashed


def hash_doubles(values: npt.NDArray[np.float64]) -> U64:
    """0.0 and -0.0 are equal, so they hash alike. NaN equals nothing: the caller leaves it out of the index."""
    hashed: U64 = _mix((values + 0.0).view(np.uint64))
    return hashed


def hash_strings(offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]) -> U64:
    """One hash per string of an Arrow-style (offsets, bytes) pair."""
    hashed: U64 = _mix(_hash_bytes(offsets, data)) & CANDIDATE_MASK
    return hashed


def combine(parts: list[U64]) -> U64:
    """Hash of a composite key; the order of the parts matters."""
    h = parts[0]
    if len(parts) == 1:
        return h
    for part in parts[1:]:
        h = _mix(h * np.uint64(0x9E3779B97F4A7C15) + part)
    return h & CANDIDATE_MASK
