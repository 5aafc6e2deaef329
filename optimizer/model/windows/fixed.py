"""One window between two times."""

from __future__ import annotations

from dataclasses import dataclass

from optimizer.model.windows.base import NEVER


@dataclass(frozen=True, slots=True)
class FixedWindow:
    """[start_ms, end_ms), once. A query created when tuples at or after `start_ms` were accepted already could not give
    its complete result, and is refused (WINDOW_IN_PAST)."""

    start_ms: int
    end_ms: int

    @property
    def length_ms(self) -> int:
        return self.end_ms - self.start_ms

    @property
    def most_per_tuple(self) -> int:
        return 1

    @property
    def sql(self) -> str:
        return f"BETWEEN {self.start_ms} AND {self.end_ms}"

    def first_start_at_or_after(self, time: int) -> int:
        """`NEVER` if the window begins before `time`."""
        return self.start_ms if self.start_ms >= time else NEVER

    def end(self, start: int) -> int:
        return self.end_ms

    def closed(self, start: int, watermark: int) -> bool:
        return self.end_ms <= watermark

    def first_alive(self, horizon: int) -> int:
        return self.start_ms if horizon < self.end_ms else NEVER
