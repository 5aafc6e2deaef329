"""No window: a query over one stream that delivers each tuple that passes, once, in the epoch it arrives in."""

from __future__ import annotations

from dataclasses import dataclass

from optimizer.model.windows.base import NEVER


@dataclass(frozen=True, slots=True)
class Unwindowed:
    @property
    def length_ms(self) -> int:
        return 0

    @property
    def most_per_tuple(self) -> int:
        return 1

    @property
    def sql(self) -> str:
        return ""

    def first_start_at_or_after(self, time: int) -> int:
        return time

    def first_alive(self, horizon: int) -> int:
        """Nothing is kept for later."""
        return NEVER
