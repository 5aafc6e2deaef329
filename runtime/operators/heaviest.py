"""Which part of a task's combinations is of one key: whether a cut of its range of hashes would help (or only a split).

Of every match the key with most combinations is added up, so a key that is heavy in many of them is found; one that is
never the heaviest of a match is no hot key. A task keeps a few dozen keys. Cost: a look at the hash of every pair of
entries.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from runtime.operators.matches import Match

MOST = 64


class Heaviest:
    def __init__(self) -> None:
        self._keys: dict[int, int] = {}

    def add(self, match: Match, combinations: npt.NDArray[Any]) -> None:
        """`combinations` per pair of entries, which come in the order of their hashes."""
        if not len(combinations):
            return
        hashes = match.left.index.hashes[match.l_entries]
        begins = np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1]]))
        sums = np.add.reduceat(combinations, begins)
        at = int(np.argmax(sums))
        key = int(hashes[begins[at]])
        self._keys[key] = self._keys.get(key, 0) + int(sums[at])
        if len(self._keys) > MOST:
            kept = sorted(self._keys.items(), key=lambda item: (-item[1], item[0]))[: MOST // 2]
            self._keys = dict(kept)

    @property
    def combinations(self) -> int:
        return max(self._keys.values(), default=0)
