"""Windows that follow one another without gaps and are numbered in order, of whatever lengths.

Months are such windows: no two neighbours need to be equally long. A kind of them says two things, about many times at
once: the number of the window that holds a time, and where the window of a number starts. A window ends where the next
one starts; everything else follows, here for single times and in runtime.windows.consecutive for arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]


class ConsecutiveWindow(ABC):
    """To be derived from by a frozen dataclass, which also has `length_ms` and `sql` (optimizer.model.windows.base)."""

    __slots__ = ()

    @abstractmethod
    def numbers_of(self, times: I64) -> I64:
        """For each time, the number of the last window that starts at or before it."""

    @abstractmethod
    def starts_of(self, numbers: I64) -> I64:
        """Where the windows with these numbers start; never less for a larger number."""

    @property
    def most_per_tuple(self) -> int:
        return 1

    def first_start_at_or_after(self, time: int) -> int:
        number = self._number(time)
        start = self._start(number)
        return start if start >= time else self._start(number + 1)

    def end(self, start: int) -> int:
        return self._start(self._number(start) + 1)

    def closed(self, start: int, watermark: int) -> bool:
        return self.end(start) <= watermark

    def first_alive(self, horizon: int) -> int:
        return self._start(self._number(horizon))

    def _number(self, time: int) -> int:
        return int(self.numbers_of(np.array([time], np.int64))[0])

    def _start(self, number: int) -> int:
        return int(self.starts_of(np.array([number], np.int64))[0])
