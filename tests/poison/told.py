"""What the platform was told so far, in the oracle's words, and the tuples that wait for the next step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from ajoin.client.client import Client
from ajoin.platform.launch import wall_clock
from tests.lives.streams import AHEAD

Line = dict[str, Any]
DAY = 86_400_000
"""How far ahead of the clock a tuple may be in streams that say nothing else (setting max_ahead)."""


class Told:
    """`streams`: the good ones, by name. `readers`: whose client reads a query's rows, after every step. `owed`: the
    queries whose rows must be the oracle's."""

    def __init__(self, good: Client) -> None:
        self._good = good
        self.lines: list[Line] = []
        self.streams: dict[str, Line] = {}
        self.readers: dict[str, Client] = {}
        self.owed: set[str] = set()
        self.rows: dict[str, list[Line]] = defaultdict(list)
        self.waiting: dict[str, list[tuple[Any, Any]]] = defaultdict(list)
        self.watermarks: list[tuple[str, int]] = []
        self._greatest: dict[str, int] = {}

    def declared(self, name: str, columns: Mapping[str, str], time: str, **given: Any) -> None:
        judged = ("watermark_delay_ms", "allowed_lateness_ms")
        known = {key: value for key, value in given.items() if key in judged}
        if (ahead := given.get("max_ahead_ms", DAY)) != 0:  # the oracle's clock stands at 0
            known["max_ahead_ms"] = ahead + wall_clock()
        self.lines.append({"stream": name, "schema": dict(columns), "time": time, **known})

    @property
    def declared_streams(self) -> list[str]:
        """The good ones and those of the attacks."""
        return [line["stream"] for line in self.lines if "stream" in line]

    def created(self, id: str, sql: str, owner: Client | None = None) -> None:
        self.lines.append({"create": id, "sql": sql})
        self.readers[id] = owner or self._good
        self.owed.add(id)

    def deleted(self, id: str) -> None:
        self.lines.append({"delete": id})

    def push(self, stream: str, rows: Sequence[Any], judged_as: Sequence[Any] | None = None) -> None:
        """`judged_as`: what the oracle is told instead."""
        self.waiting[stream] += zip(rows, rows if judged_as is None else judged_as, strict=True)
        column = self.streams[stream]["time"] if stream in self.streams else "ts"
        times = [t for r in rows if isinstance(r, dict) and type(t := r.get(column)) is int and t < AHEAD]
        self._greatest[stream] = max([*times, self._greatest.get(stream, -(1 << 62))])

    def greatest(self, stream: str) -> int:
        return self._greatest[stream]

    def raise_watermark(self, stream: str, ts: int) -> None:
        self.watermarks.append((stream, ts))

    def step(self) -> tuple[dict[str, list[Any]], list[tuple[str, int]]]:
        """What waits is handed over, and is an epoch to the oracle."""
        waiting, marks = self.waiting, self.watermarks
        self.waiting, self.watermarks = defaultdict(list), []
        judged = set(self.declared_streams)
        self.lines += [
            {"event": stream, "row": row} for stream in waiting if stream in judged for _, row in waiting[stream]
        ]
        self.lines += [{"watermark": stream, "ts": ts} for stream, ts in marks]
        self.lines.append({"epoch": True})
        return {stream: [row for row, _ in own] for stream, own in waiting.items()}, marks
