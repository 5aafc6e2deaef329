"""Arrays that are what their writer wrote: every one is checked against its checksum before it is used.

The check happens at the first access in a process and not on opening: a task that needs two columns of a wide bucket
reads two columns, also from disk, so state may be larger than memory. After that an array costs nothing more. XXH3 is
not cryptographic: it finds damage by disks, file systems and mistakes, not by an attacker. It runs at memory
speed; docs/decisions/0009-checksums-and-repair.md has the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from optimizer.errors import InternalError


def checksum(data: Any) -> int:
    """Of anything that is contiguous bytes."""
    return int(xxhash.xxh3_64_intdigest(data))


class Checksum:
    """The same, piece by piece."""

    def __init__(self) -> None:
        self._sum = xxhash.xxh3_64()

    def update(self, data: Any) -> None:
        self._sum.update(data)

    def digest(self) -> int:
        return int(self._sum.intdigest())


def damaged(name: str, what: str) -> InternalError:
    return InternalError(f"bucket file {name} is damaged: {what}", reason="BUCKET_DAMAGED")


class Placed(NamedTuple):
    """Where an array lies in its file, counted from the start, and what its bytes must hash to."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    at: int
    checksum: int

    @property
    def items(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.items * self.dtype.itemsize


class Checked(Mapping[str, npt.NDArray[Any]]):
    """The arrays of one bucket by name. Asking whether there is one, or how large, touches no data."""

    __slots__ = ("_data", "_name", "_places", "_prefetch", "_seen")

    def __init__(
        self,
        name: str,
        data: memoryview,
        places: Mapping[str, Placed],
        prefetch: Callable[[int, int], None] | None = None,
    ) -> None:
        self._name, self._data, self._places, self._prefetch = name, data, places, prefetch
        self._seen: dict[str, npt.NDArray[Any]] = {}

    def __getitem__(self, key: str) -> npt.NDArray[Any]:
        array = self._seen.get(key)
        if array is None:
            array = self._seen[key] = self._checked(key, self._places[key])
        return array

    def _checked(self, key: str, place: Placed) -> npt.NDArray[Any]:
        if not place.items:
            return np.empty(place.shape, place.dtype)
        if self._prefetch is not None:
            self._prefetch(place.at, place.nbytes)
        raw = self._data[place.at : place.at + place.nbytes]
        if checksum(raw) != place.checksum:
            raise damaged(self._name, f"the checksum of array {key!r} does not match")
        return np.frombuffer(raw, place.dtype).reshape(place.shape)

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    @property
    def nbytes(self) -> int:
        return sum(p.nbytes for p in self._places.values())
