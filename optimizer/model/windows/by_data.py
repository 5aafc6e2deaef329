"""Windows whose bounds follow from the tuples; they aggregate one stream.

Nobody can say from the clock which tuples a later one will need, so what is kept is decided where the tuples are
(runtime.operators.close), and `first_alive` gives no time from which on anything could go.
"""

from __future__ import annotations

from dataclasses import dataclass

from optimizer.model.expressions import Expr
from optimizer.model.windows.base import NEVER, duration


@dataclass(frozen=True, slots=True)
class _ByData:
    @property
    def most_per_tuple(self) -> int:
        return 1

    def first_start_at_or_after(self, time: int) -> int:
        return time

    def first_alive(self, horizon: int) -> int:
        return -NEVER


@dataclass(frozen=True, slots=True)
class SessionWindow(_ByData):
    """Per group, maximal runs of tuples whose neighbours are at most `gap_ms` apart; [first, last + gap)."""

    gap_ms: int

    @property
    def length_ms(self) -> int:
        return 2 * self.gap_ms

    @property
    def sql(self) -> str:
        return f"SESSION ({duration(self.gap_ms)})"


@dataclass(frozen=True, slots=True)
class CountWindow(_ByData):
    """Per group, positions [k*advance, k*advance + size) of the tuples in order of event time, ties in order of
    arrival."""

    size: int
    advance: int

    @property
    def length_ms(self) -> int:
        return 0

    @property
    def most_per_tuple(self) -> int:
        return -(-self.size // self.advance)

    @property
    def sql(self) -> str:
        return (
            f"COUNT (SIZE {self.size})"
            if self.size == self.advance
            else (f"COUNT (SIZE {self.size} ADVANCE BY {self.advance})")
        )


@dataclass(frozen=True, slots=True)
class PunctuatedWindow(_ByData):
    """Between neighbouring edges: the time of the first tuple, and of every tuple for which `condition` is TRUE,
    whatever WHERE and GROUP BY say. `text` is the condition as it was written."""

    condition: Expr
    text: str

    @property
    def length_ms(self) -> int:
        return 0

    @property
    def sql(self) -> str:
        return f"PUNCTUATED BY ({self.text})"
