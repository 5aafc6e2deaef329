"""Result segments in a store that cannot be mapped in place: tasks put them, readers get the parts they want.

A reader looks for its rows in the index at the segment's end and reads their bytes, both through the cache of the
driver's machine, because many readers follow the newest segments. Bytes that are not what was written (the checksums of
index and rows tell) are fetched once more. A store that is a path needs none of this.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from runtime.buckets.checked import CHUNK
from runtime.buckets.runs import Run
from runtime.crashpoints import reach
from runtime.results.log import ResultLog
from runtime.results.segment import Segment
from runtime.store.cache import Cache, CachedObject
from runtime.store.objects import objects_at

FOLDER = "results"


@dataclass(frozen=True, slots=True)
class ObjectSegments:
    """Where tasks of one run put their segments. Until it is complete, a segment is a file without a name."""

    uri: str
    platform: str
    run: Run

    def named(self, name: str) -> str:
        return self.run.named(name)

    def begin(self, name: str) -> BinaryIO:
        return tempfile.TemporaryFile()

    def publish(self, name: str, file: BinaryIO) -> None:
        with file:
            file.seek(0)
            data = file.read()
        reach("segment.written")
        objects_at(self.uri).put(f"{FOLDER}/{self.named(name)}", data, sync=False)
        reach("segment.renamed")


class ObjectResults(ResultLog):
    """`discard` deletes segments, later."""

    def __init__(self, uri: str, cache: Cache, discard: Callable[[str], None]) -> None:
        super().__init__(Path())
        self._objects, self._cache, self._discard = objects_at(uri), cache, discard

    def _read(self, segment: Segment, at: int, length: int) -> memoryview:
        object, pieces = f"{FOLDER}/{segment.file}", -(-segment.bytes // CHUNK)
        handle = self._cache.open(object)
        if handle is None:
            handle = self._cache.create(object, b"", segment.bytes, pieces)
        cached = CachedObject(self._objects, object, self._cache, handle, 0, segment.bytes, CHUNK)
        first, end = at // CHUNK * CHUNK, min(segment.bytes, -(-(at + length) // CHUNK) * CHUNK)
        cached.bring([(first, end - first)])
        return cached.data[at : at + length]

    def _refetch(self, name: str) -> bool:
        self._cache.drop(f"{FOLDER}/{name}")
        return True

    def _names(self) -> Collection[str]:
        start = f"{FOLDER}/"
        return {name.removeprefix(start) for name in self._objects.list(FOLDER)}

    def _remove(self, name: str) -> None:
        self._cache.drop(f"{FOLDER}/{name}")
        self._discard(name)


class PathResults(ResultLog):
    """Segments in a store that is a path: read in place."""

    def __init__(self, directory: Path, discard: Callable[[str], None]) -> None:
        super().__init__(directory)
        self._discard = discard

    def _names(self) -> Collection[str]:
        return {str(path.relative_to(self.directory)) for path in self.directory.rglob("*.segment")}

    def _remove(self, name: str) -> None:
        self._discard(name)
