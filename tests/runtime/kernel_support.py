"""Small helpers to call kernels as the join operator does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from runtime.kernels.csr import Csr, Entries
from runtime.kernels.intersect import Shapes

FAR = 1 << 40


def everything(left: Csr, right: Csr) -> tuple[Any, ...]:
    """Arguments of `intersect` for two whole indexes, with one window that holds all of time and all slots alive."""
    words = left.query_sets.shape[1]
    alive = np.full(words, 0xFFFFFFFFFFFFFFFF, np.uint64)
    return arguments(left, right, alive, [(2 * FAR, FAR)], alive.reshape(1, -1))


def arguments(
    left: Csr,
    right: Csr,
    alive: Any,
    shapes: Sequence[tuple[int, int]],
    shape_sets: Any,
    l_range: tuple[int, int] | None = None,
    r_range: tuple[int, int] | None = None,
) -> tuple[Any, ...]:
    """Arguments of `intersect`; ranges are of entries, by default all."""

    def side(index: Csr, entries: tuple[int, int] | None) -> Entries:
        return index.entries(*(entries or (0, len(index.hashes))))

    sizes = np.array([s for s, _ in shapes], np.int64)
    advances = np.array([a for _, a in shapes], np.int64)
    return side(left, l_range), side(right, r_range), alive, Shapes(sizes, advances, shape_sets)
