"""Bytes on all executors: a Spark broadcast that workers map into memory instead of each making a copy.

Spark keeps a broadcast of Python as a file with the pickled value on each executor's own disk and tells every Python
worker the path. The public way to the value, `Broadcast.value`, unpickles it: a copy per worker, again for every new
broadcast. PySpark has no public way to the file, so this module, and only this one, looks at the attribute `_path`.

A pickled `bytes` of some size holds the bytes themselves, in one piece. Ours begin with a mark and their length, so
they are recognised wherever pickle puts them; zeros before the mark let them start at a multiple of 64 in the file, as
arrays like it. What does not look like that (small values, encrypted ones, another PySpark) is unpickled by Spark as
usual: the outcome is the same. tests/runtime/test_exchange.py fails if that happens to a large value.
"""

from __future__ import annotations

import mmap
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np

ALIGNMENT = 64
MARK = b"bytes of ajoin: "
LENGTH = 8
SEARCHED = 256
"""The mark is among the first bytes of the file, or not there."""


class BroadcastBytes:
    """A Spark broadcast of what `enclosed` made."""

    def __init__(self, broadcast: Any) -> None:
        self._broadcast = broadcast
        self._data: memoryview | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return BroadcastBytes, (self._broadcast,)

    @property
    def data(self) -> memoryview:
        if self._data is None:
            self._data = self.mapped() or self._copied()
        return self._data

    def mapped(self) -> memoryview | None:
        """The bytes where they lie in the file; None: they are not there as expected."""
        path = getattr(self._broadcast, "_path", None)
        if path is None:
            return None
        with open(path, "rb") as file:
            whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        at = whole.find(MARK, 0, SEARCHED)
        start = at + len(MARK) + LENGTH
        end = start + int.from_bytes(whole[start - LENGTH : start], "little")
        return memoryview(whole)[start:end] if at >= 0 and start % ALIGNMENT == 0 and end <= len(whole) else None

    def _copied(self) -> memoryview:
        """In memory of our own, because bytes in the middle of others are not aligned."""
        value = self._broadcast.value
        return np.frombuffer(value, np.uint8, offset=value.index(MARK) + len(MARK) + LENGTH).copy().data

    def drop(self) -> None:
        self._broadcast.destroy()


def enclosed(pieces: Sequence[bytes]) -> bytes:
    """What to broadcast, so that workers find the pieces, end to end, in the file."""
    sample = MARK + bytes(1 << 17)
    before = pickle.dumps(sample, pickle.HIGHEST_PROTOCOL).index(MARK)
    padding = -(before + len(MARK) + LENGTH) % ALIGNMENT
    return b"".join((bytes(padding), MARK, sum(map(len, pieces)).to_bytes(LENGTH, "little"), *pieces))
