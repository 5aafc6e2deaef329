"""What explain has to say about overlapping windows of a fold: from what each is combined, and why.

    HOPPING (SIZE 1 HOUR, ADVANCE BY 1 SECOND) of Q9: blocks, about 27 entries instead of 3,600 slices
    HOPPING (SIZE 9 SECONDS, ADVANCE BY 1 SECOND) of Q7: all 9 slices, because 9 steps are few
    COUNT (SIZE 1000 ADVANCE BY 100) of Q8: pieces, about 10 entries instead of 1,000 tuples, where none is late
    where 7 or more windows close in one epoch: count and sum by subtracting, max by two stacks,
    because more than 6 pieces a window are many

The decisions are those of optimizer.model.combining. Entries are per group and query set. How many windows an epoch
closes is not known here, so the last line, about windows that share work, is a rule and not a fact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from optimizer.explain.describe import first_few
from optimizer.model.aggregates import BUILT_IN
from optimizer.model.combining import FEW, SHARED, Way, entries_of, in_pieces, is_long, is_short, pieces_of, way_of
from optimizer.model.folds import slices_a_minute
from optimizer.model.plan import RunningQuery
from optimizer.model.windows import CountWindow, PeriodicWindow

SHOWN = 3
TOGETHER = max(SHARED, FEW) + 1
"""So many windows that close in one epoch have more than FEW pieces each, and entries are in more than SHARED."""

_SAID: dict[Way, str] = {"combine": "all pieces", "subtract": "by subtracting", "stacks": "by two stacks"}


@dataclass(frozen=True, slots=True)
class CombinedWindow:
    """`queries`: ids. `parts`: what a window has of the fold's slices or tuples (`unit`), None where that follows from
    the data. `entries`: what it is combined from instead, if it has blocks or pieces (`way`); else `why` not."""

    window: str
    queries: tuple[str, ...]
    parts: int | None
    unit: str
    entries: int | None = None
    why: str = ""
    way: Literal["all", "blocks", "pieces"] = "all"

    @property
    def sentence(self) -> str:
        parts = self.unit if self.parts is None else f"{self.parts:,} {self.unit}"
        whose = f"{self.window} of {first_few(self.queries, SHOWN)}"
        if self.entries is not None:
            where = ", where none is late" if self.way == "pieces" else ""
            return f"{whose}: {self.way}, about {self.entries:,} entries instead of {parts}{where}"
        return f"{whose}: all {parts}, because {self.why}"


@dataclass(frozen=True, slots=True)
class Combining:
    """`windows`: those that overlap, the longest first. `kinds`: per query (id), the kinds of partials that its windows
    share if they close together."""

    windows: tuple[CombinedWindow, ...] = ()
    kinds: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def lines(self, of: str | None = None) -> list[str]:
        """For people; `of`: only what concerns this query (id)."""
        mine = [w for w in self.windows if of is None or of in w.queries]
        said = [w.sentence for w in mine[:SHOWN]]
        if len(mine) > SHOWN:
            said.append(f"and {len(mine) - SHOWN} more windows that overlap")
        ways: dict[Way, list[str]] = {}
        for kind, way in self._ways(of).items():
            ways.setdefault(way, []).append(kind)
        if ways:
            how = ", ".join(f"{_and(kinds)} {_SAID[way]}" for way, kinds in ways.items())
            why = f"because more than {FEW} pieces a window are many"
            said.append(f"where {TOGETHER} or more windows close in one epoch: {how}, {why}")
        return said

    def _ways(self, of: str | None = None) -> dict[str, Way]:
        kinds = sorted({kind for id, kinds in self.kinds if of in (None, id) for kind in kinds})
        return {kind: way_of(kind, TOGETHER) for kind in kinds}

    @property
    def document(self) -> dict[str, Any]:
        windows = [asdict(w) for w in self.windows]
        ways = self._ways()
        return {"windows": windows, "together": {"from": TOGETHER, "ways": ways} if ways else None}


def combining(queries: Sequence[RunningQuery]) -> Combining:
    """Of queries that fold together, as if they were alone."""
    per_minute = slices_a_minute(rq.query.window for rq in queries)
    steps = [w.advance_ms for rq in queries if is_long(rq) and isinstance(w := rq.query.window, PeriodicWindow)]
    unit = min(steps, default=0)
    found: dict[CombinedWindow, list[str]] = {}
    kinds: list[tuple[str, tuple[str, ...]]] = []
    for rq in sorted(queries, key=lambda rq: -rq.query.window.most_per_tuple):
        if rq.query.window.most_per_tuple > 1:
            found.setdefault(_window(rq, per_minute, unit), []).append(rq.id)
            kinds.append((rq.id, _sliding(rq)))
    return Combining(tuple(replace(w, queries=tuple(ids)) for w, ids in found.items()), tuple(kinds))


def _window(rq: RunningQuery, per_minute: float, unit: int) -> CombinedWindow:
    """Without its queries."""
    window = rq.query.window
    match window:
        case CountWindow(size):
            if in_pieces(window, _kinds(rq)):
                return CombinedWindow(window.sql, (), size, "tuples", pieces_of(window), way="pieces")
            few = window.most_per_tuple < SHARED
            why = f"{window.most_per_tuple} windows per tuple are few" if few else "all values are needed"
            return CombinedWindow(window.sql, (), size, "tuples", why=why)
        case PeriodicWindow(size, _):
            parts = round(per_minute * size / 60_000)
            if is_long(rq):
                entries = round(entries_of(size // unit, per_minute * unit / 60_000))
                return CombinedWindow(window.sql, (), parts, "slices", entries, way="blocks")
            return CombinedWindow(window.sql, (), parts, "slices", why=_why(rq))
        case _:
            return CombinedWindow(window.sql, (), None, "slices", why="blocks are for HOPPING windows")


def _why(rq: RunningQuery) -> str:
    if len(rq.query.sources) > 1:
        return "joined rows reach over slices"
    return f"{rq.query.window.most_per_tuple} steps are few"


def _sliding(rq: RunningQuery) -> tuple[str, ...]:
    """Kinds of partials. Joined rows of different spans share nothing; of a plug-in only its code knows the way."""
    if isinstance(rq.query.window, CountWindow) or len(rq.query.sources) > 1 or is_short(rq):
        return ()
    return _kinds(rq)


def _kinds(rq: RunningQuery) -> tuple[str, ...]:
    functions = [a.function for a in rq.query.aggregates]
    return tuple(kind for f in functions for kind in (BUILT_IN[f].keeps if f in BUILT_IN else ()))


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
