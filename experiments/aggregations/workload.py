"""The queries of the aggregation experiments, in the words of every system. Standard library only: Flink's worker,
which runs in an environment of its own, imports it.

Stream S has BIGINT columns: k (100,000 values), w (10,000), five small group columns, c (1,000 values, for conditions),
v; and ts, the event time in milliseconds, in order, 200,000 tuples a second (A3: 10,000).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

DENSITY = 200_000
COLUMNS: Mapping[str, int] = {
    "k": 100_000, "w": 10_000, "g": 100, "h": 10, "x": 50, "y": 20, "z": 1_000, "c": 1_000, "v": 1_000_000,
}  # fmt: skip
"""Column -> how many values it has, uniform."""


@dataclass(frozen=True, slots=True)
class Aggregation:
    """Groups by `key`; `values`: of SUM(v), COUNT(*), MAX(v), the first so many. A tumbling window of `size` seconds,
    a hopping one that advances by `hop` seconds, or sessions with a gap of `size` seconds. `condition`: c in [from,
    to)."""

    id: str
    key: str
    values: int
    size: int
    session: bool = False
    condition: tuple[int, int] | None = None
    hop: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return ("s", "n", "m")[: self.values]

    @property
    def outputs(self) -> str:
        calls = {"s": "SUM(v)", "n": "COUNT(*)", "m": "MAX(v)"}
        return ", ".join(f"{calls[name]} AS {name}" for name in self.names)

    @property
    def where(self) -> str:
        return "" if self.condition is None else f" WHERE c >= {self.condition[0]} AND c < {self.condition[1]}"

    def ajoin(self) -> str:
        window = f"TUMBLING (SIZE {self.size} SECONDS)"
        if self.session:
            window = f"SESSION (GAP {self.size} SECONDS)"
        elif self.hop is not None:
            window = f"HOPPING (SIZE {self.size} SECONDS, ADVANCE BY {self.hop} SECONDS)"
        return f"SELECT {self.key}, {self.outputs} FROM S{self.where} GROUP BY {self.key} WINDOW {window}"

    def flink(self) -> str:
        size = f"INTERVAL '{self.size}' SECOND({len(str(self.size))})"
        function = "SESSION" if self.session else "TUMBLE"
        if self.hop is not None:
            function, size = "HOP", f"INTERVAL '{self.hop}' SECOND, {size}"
        partition = f" PARTITION BY {self.key}" if self.session else ""
        table = f"TABLE({function}(TABLE S{partition}, DESCRIPTOR(rt), {size}))"
        grouping = f"GROUP BY window_start, window_end, {self.key}"
        return f"SELECT window_end, {self.key}, {self.outputs} FROM {table}{self.where} {grouping}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Aggregation:
        given = value["condition"]
        return Aggregation(**{**value, "condition": None if given is None else (given[0], given[1])})


def grouped() -> list[Aggregation]:
    """A1."""
    return [Aggregation("q0", "k", 3, 1)]


def windows(count: int) -> list[Aggregation]:
    """A2: sizes from 1 to 20 seconds, as many of each as possible."""
    return [Aggregation(f"q{i}", "g", 1, 1 + i % 20) for i in range(count)]


def long_windows() -> list[Aggregation]:
    """A3."""
    return [Aggregation("q0", "w", 3, 3600, hop=1)]


def sessions() -> list[Aggregation]:
    """A6."""
    return [Aggregation("q0", "k", 3, 1, session=True)]


def conditions(count: int) -> list[Aggregation]:
    """A7: every query wants another tenth of the tuples; five groupings, windows of 1 to 3 seconds."""
    draw = Random(7)
    made = []
    for i in range(count):
        low = draw.randrange(0, 900)
        made.append(Aggregation(f"q{i}", "ghxyz"[i % 5], 2, 1 + i % 3, condition=(low, low + 100)))
    return made
