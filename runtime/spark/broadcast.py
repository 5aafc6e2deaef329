"""Bytes on all executors: a Spark broadcast, memory-mapped where it lies.

Spark keeps a broadcast of Python as a file with the pickled value on each executor's own disk and tells every Python
worker the path. Unpickling it would give each worker a copy of its own. But a pickled `bytes` of more than 64 KB is
eleven bytes of preamble and then the bytes themselves, so the file can be mapped like a bucket file: workers of an
executor share the pages. With LEAD bytes before them, ours start at a multiple of 64 in the file. What does not look
like that (small values, encrypted ones) is unpickled by Spark as usual.
"""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

PREAMBLE = b"\x80\x05\x8e"
"""Pickle protocol 5; a `bytes` whose length follows in eight bytes."""
LEAD = 64 - len(PREAMBLE) - 8


class Spread:
    """A Spark broadcast of LEAD zeros and our bytes."""

    def __init__(self, broadcast: Any) -> None:
        self._broadcast = broadcast
        self._data: memoryview | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Spread, (self._broadcast,)

    @property
    def data(self) -> memoryview:
        if self._data is None:
            self._data = self._mapped() or self._copied()
        return self._data

    def _mapped(self) -> memoryview | None:
        path = getattr(self._broadcast, "_path", None)
        if path is None:
            return None
        with open(path, "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        length = int.from_bytes(mapped[len(PREAMBLE) : len(PREAMBLE) + 8], "little")
        if mapped[: len(PREAMBLE)] != PREAMBLE or length > len(mapped):
            return None
        return memoryview(mapped)[64 : 64 + length - LEAD]

    def _copied(self) -> memoryview:
        """Into memory of our own, because bytes in the middle of others are not aligned."""
        return np.frombuffer(self._broadcast.value, np.uint8, offset=LEAD).copy().data

    def drop(self) -> None:
        self._broadcast.destroy()
