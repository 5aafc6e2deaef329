"""A bucket that its writer still has in memory: what is in the file, without opening it.

A task that goes on with what it has just made (runtime.operators.join) need not read it again, which in a store would
be a request. Arrays are read-only like those of a file, so that compiled kernels are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt


class Held(dict[str, npt.NDArray[Any]]):
    """The arrays of one bucket by name, all at hand; see runtime.buckets.checked.Checked."""

    whole = True

    def shape(self, key: str) -> tuple[int, ...]:
        return self[key].shape

    def part(self, key: str, first: int, end: int) -> npt.NDArray[Any]:
        return self[key]

    def at_rows(self, key: str, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return self[key]

    def bring(self, parts: Iterable[tuple[str, int, int]]) -> None:
        """Nothing to do."""

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.values())


def held(arrays: Mapping[str, npt.NDArray[Any]]) -> Held:
    """As they would be read."""
    frozen = Held({key: np.ascontiguousarray(array).view() for key, array in arrays.items()})
    for array in frozen.values():
        array.setflags(write=False)
    return frozen
