"""Random columns as pure functions: value i depends on (key, i) and on nothing else.

`bits(key, a, b)` is a counter-based generator: it scrambles key + i * gamma with the SplitMix64 finaliser, a
bijection on 64 bits with good avalanche. No state runs along, so any range [a, b) costs b - a, wherever it
lies, and two ranges laid end to end are the range of both. Everything else is arithmetic on those bits.
"""

from __future__ import annotations

import functools
import hashlib
import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from optimizer.model.types import ColumnType
from runtime.connectors.base import ARROW_TYPES

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX1, _MIX2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def derive_key(*path: object) -> int:
    """An independent key for each path, e.g. (seed, stream, column)."""
    text = "\x1f".join(map(str, path)).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def bits(key: int, a: int, b: int) -> U64:
    x = np.arange(a, b, dtype=np.uint64)
    x *= _GAMMA
    x += np.uint64(key)
    x ^= x >> np.uint64(30)
    x *= _MIX1
    x ^= x >> np.uint64(27)
    x *= _MIX2
    x ^= x >> np.uint64(31)
    return x


def unit(key: int, a: int, b: int) -> F64:
    """Uniform in [0, 1), 53 bits."""
    return (bits(key, a, b) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def below(key: int, a: int, b: int, n: int) -> I64:
    """Uniform in 0..n-1; the bias is below n / 2^32 of a value's probability (n / 2^64 for large n)."""
    x = bits(key, a, b)
    if n <= 2**32:
        return (((x >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32)).astype(np.int64)
    return (x % np.uint64(n)).astype(np.int64) if n < 2**64 else x.view(np.int64)


class Distribution(Protocol):
    def draw(self, key: int, a: int, b: int, type: ColumnType) -> pa.Array:
        """The values of rows [a, b)."""
        ...


@dataclass(frozen=True, slots=True)
class Seq:
    start: int = 0

    def draw(self, key: int, a: int, b: int, type: ColumnType) -> pa.Array:
        values = np.arange(a, b, dtype=np.int64) + self.start
        return _whole(values % 2**31 if type is ColumnType.INT else values, type)


@dataclass(frozen=True, slots=True)
class Uniform:
    low: int
    high: int

    def draw(self, key: int, a: int, b: int, type: ColumnType) -> pa.Array:
        return _whole(below(key, a, b, self.high - self.low + 1) + self.low, type)


@dataclass(frozen=True, slots=True)
class UniformReal:
    low: float
    high: float

    def draw(self, key: int, a: int, b: int, type: ColumnType) -> pa.Array:
        return pa.array(unit(key, a, b) * (self.high - self.low) + self.low)


@dataclass(frozen=True, slots=True)
class Zipf:
    n: int
    s: float

    def draw(self, key: int, a: int, b: int, type: ColumnType) -> pa.Array:
        # side="right" and the clip keep k within 1..n even if rounding leaves the last step below 1.
        ranks = np.searchsorted(_zipf_steps(self.n, self.s), unit(key, a, b), side="right")
        return _whole(np.minimum(ranks, self.n - 1).astype(np.int64) + 1, type)


@functools.lru_cache(maxsize=32)
def _zipf_steps(n: int, s: float) -> F64:
    steps = np.cumsum(np.arange(1, n + 1, dtype=np.float64) ** -s)
    return np.asarray(steps / steps[-1])


@dataclass(frozen=True, slots=True)
class Choice:
    """`steps` are the cumulated shares, the last one 1; empty when all values are equally likely."""

    values: tuple[Any, ...]
    steps: tuple[float, ...] = ()

    def draw(self, key: int, a: int, b: int, type: ColumnType) -> pa.Array:
        if self.steps:
            picks = np.searchsorted(np.array(self.steps[:-1]), unit(key, a, b), side="right")
        else:
            picks = below(key, a, b, len(self.values))
        return _literals(self.values, type).take(pa.array(picks))


@dataclass(frozen=True, slots=True)
class Const:
    value: Any

    def draw(self, key: int, a: int, b: int, type: ColumnType) -> pa.Array:
        return pa.repeat(_literals((self.value,), type)[0], b - a)


@dataclass(frozen=True, slots=True)
class Bool:
    p: float

    def draw(self, key: int, a: int, b: int, type: ColumnType) -> pa.Array:
        return pa.array(unit(key, a, b) < self.p)


@dataclass(frozen=True, slots=True)
class Normal:
    mean: float
    std: float

    def draw(self, key: int, a: int, b: int, type: ColumnType) -> pa.Array:
        radius = np.sqrt(-2.0 * np.log1p(-unit(key, a, b)))  # Box-Muller; 1 - u is never 0
        angle = 2.0 * math.pi * unit(derive_key(key, "angle"), a, b)
        values = radius * np.cos(angle) * self.std + self.mean
        if type is ColumnType.DOUBLE:
            return pa.array(values)
        edge = 2.0**31 - 1 if type is ColumnType.INT else 2.0**53
        return _whole(np.rint(np.clip(values, -edge, edge)).astype(np.int64), type)


@dataclass(frozen=True, slots=True)
class Null:
    p: float
    of: Distribution

    def draw(self, key: int, a: int, b: int, type: ColumnType) -> pa.Array:
        missing = pa.array(unit(derive_key(key, "null"), a, b) < self.p)
        values = self.of.draw(key, a, b, type)
        return pc.if_else(missing, pa.scalar(None, values.type), values)


def _whole(values: I64, type: ColumnType) -> pa.Array:
    if type is ColumnType.INT:
        return pa.array(values.astype(np.int32))
    array = pa.array(values)
    return array if type is ColumnType.BIGINT else array.cast(ARROW_TYPES[type], safe=False)


def _literals(values: tuple[Any, ...], type: ColumnType) -> pa.Array:
    if type is ColumnType.TIMESTAMP:
        return pa.array(values, pa.int64()).cast(ARROW_TYPES[type])
    return pa.array(values, ARROW_TYPES[type])
