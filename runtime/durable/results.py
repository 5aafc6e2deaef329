"""The result log in two tiers: segments are read from the fast one, and fetched from the durable one when they are not
there. A reader that comes back after the machine was lost finds every row behind its cursor that retention has left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import BinaryIO

from runtime.durable.keeper import Keeper
from runtime.operators.segment import Segment
from runtime.results import ResultLog

_ATTEMPTS = 3


class TieredResults(ResultLog):
    def __init__(self, keeper: Keeper) -> None:
        self._keeper, self._shelf = keeper, keeper.shelves["results"]
        super().__init__(self._shelf.directory)

    def _open(self, name: str) -> BinaryIO:
        for _ in range(_ATTEMPTS):
            try:
                return super()._open(name)
            except FileNotFoundError:
                if not self._shelf.fetch(name):
                    raise
        return super()._open(name)

    def _refetch(self, name: str) -> bool:
        return self._shelf.fetch(name)

    def has(self, segments: Sequence[Segment]) -> bool:
        return any(s.file in self._shelf.places for s in segments)

    def drop(self, files: Iterable[str]) -> None:
        names = list(files)
        self._keeper.discard("results", names)
        super().drop(names)
