"""Many messages in one piece of memory: where each value begins and how long it is, as arrays.

No Python object is made of a message until one is asked for, so cutting, joining and parsing cost per batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import numpy.typing as npt

from runtime.kernels.records import object_lines

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PackedMessages(Sequence[bytes | None]):
    """Value i is `data[starts[i] : starts[i] + lengths[i]]`; length -1: the message has no value."""

    data: npt.NDArray[np.uint8]
    offsets: I64
    starts: I64
    lengths: I64

    @staticmethod
    def of(values: Sequence[bytes | None], offsets: Iterable[int]) -> PackedMessages:
        lengths = np.array([-1 if v is None else len(v) for v in values], np.int64)
        ends = np.cumsum(np.maximum(lengths, 0))
        data = np.frombuffer(bytearray(b"".join(v or b"" for v in values)), np.uint8)
        return PackedMessages(data, np.array(list(offsets), np.int64), ends - np.maximum(lengths, 0), lengths)

    def between(self, start: int, end: int) -> PackedMessages:
        """Those with offsets in [start, end)."""
        if not len(self) or (self.offsets[0] >= start and self.offsets[-1] < end):
            return self
        keep = (self.offsets >= start) & (self.offsets < end)
        return PackedMessages(self.data, self.offsets[keep], self.starts[keep], self.lengths[keep])

    def object_lines(self) -> bytes | None:
        """One value a line, if every value looks like a JSON object and holds no line break."""
        lines = object_lines(self.data, self.starts, self.lengths)
        return lines[:-1].tobytes() if len(lines) else None

    def __len__(self) -> int:
        return len(self.offsets)

    @overload
    def __getitem__(self, i: int) -> bytes | None: ...
    @overload
    def __getitem__(self, i: slice) -> list[bytes | None]: ...
    def __getitem__(self, i: int | slice) -> bytes | list[bytes | None] | None:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        if self.lengths[i] < 0:
            return None
        return self.data[self.starts[i] : self.starts[i] + self.lengths[i]].tobytes()


def join_messages(parts: Sequence[PackedMessages]) -> PackedMessages:
    if len(parts) == 1:
        return parts[0]
    shift = np.cumsum([0, *(len(p.data) for p in parts)])
    none = np.empty(0, np.int64)
    return PackedMessages(
        np.concatenate([p.data for p in parts] or [np.empty(0, np.uint8)]),
        np.concatenate([p.offsets for p in parts] or [none]),
        np.concatenate([p.starts + at for p, at in zip(parts, shift, strict=False)] or [none]),
        np.concatenate([p.lengths for p in parts] or [none]),
    )
