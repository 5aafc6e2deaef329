"""Periodic windows: tumbling and hopping, of one length, starting at regular times."""

from __future__ import annotations

from dataclasses import dataclass

from optimizer.model.windows.base import duration


@dataclass(frozen=True, slots=True)
class PeriodicWindow:
    """Half-open windows [k*advance, k*advance + size), aligned to the Unix epoch; tumbling when both are equal.

    If `advance_ms` is larger than `size_ms` there are gaps between the windows, and tuples in a gap are in no window.
    """

    size_ms: int
    advance_ms: int

    @property
    def length_ms(self) -> int:
        return self.size_ms

    @property
    def most_per_tuple(self) -> int:
        return -(-self.size_ms // self.advance_ms)

    @property
    def sql(self) -> str:
        if self.size_ms == self.advance_ms:
            return f"TUMBLING (SIZE {duration(self.size_ms)})"
        return f"HOPPING (SIZE {duration(self.size_ms)}, ADVANCE BY {duration(self.advance_ms)})"

    def first_start_at_or_after(self, time: int) -> int:
        return -(-time // self.advance_ms) * self.advance_ms

    def end(self, start: int) -> int:
        return start + self.size_ms

    def closed(self, start: int, watermark: int) -> bool:
        return start + self.size_ms <= watermark

    def first_alive(self, horizon: int) -> int:
        return ((horizon - self.size_ms) // self.advance_ms + 1) * self.advance_ms
