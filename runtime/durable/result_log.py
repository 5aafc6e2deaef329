"""The result log in two tiers: segments are read from the fast one, and fetched from the durable one when they are not
there. A reader that comes back after the machine was lost finds every row behind its cursor that retention has left.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import BinaryIO

from runtime.durable.cached_folder import CachedFolder
from runtime.results.log import ResultLog, read_tail
from runtime.results.segment import Segment

_ATTEMPTS = 3


class TieredResults(ResultLog):
    def __init__(self, folder: CachedFolder, discard: Callable[[list[str]], None]) -> None:
        """`discard`: deletes the durable copies of these files."""
        super().__init__(folder.directory)
        self._folder, self._discard = folder, discard

    def _open(self, name: str) -> BinaryIO:
        for _ in range(_ATTEMPTS):
            try:
                return super()._open(name)
            except FileNotFoundError:
                if not self._folder.fetch(name):
                    raise
        return super()._open(name)

    def _names(self) -> Collection[str]:
        return {*super()._names(), *self._folder.objects}

    def _refetch(self, name: str) -> bool:
        return self._folder.fetch(name)

    def _tail(self, segment: Segment) -> bytes:
        """Read in place: a reader that looks for its rows need not fetch the whole segment."""
        try:
            with open(self.directory / segment.file, "rb") as file:
                return read_tail(file, segment)
        except FileNotFoundError:
            return self._folder.read(segment.file, segment.bytes - segment.index, segment.index)

    def drop(self, files: Iterable[str]) -> None:
        names = list(files)
        self._discard(names)
        super().drop(names)
