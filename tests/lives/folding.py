"""Random queries of the other kinds, as SQL text: aggregates over one stream and over joins, every window, rows of one
stream with a window and without.

Nothing drawn here is refused. So a window BETWEEN begins after everything that its streams can have accepted when the
query is created: what has a time at all counts, also if it was dropped later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from tests.lives import folds
from tests.lives.bound import rows_at_most
from tests.lives.draw import chance, pick, weighted
from tests.lives.predicates import selection
from tests.lives.profile import Profile
from tests.lives.queries import (
    Query,
    join_clauses,
    join_edges,
    joined_sources,
    length,
    named,
    periodic_window,
    select_list,
    window_clause,
    written_columns,
)
from tests.lives.streams import POISON, Event, Stream, World

ATTEMPTS = 6


def make_folding(
    rng: Random,
    profile: Profile,
    world: World,
    streams: Mapping[str, Stream],
    events: Mapping[str, Sequence[Event]],
    rows: int,
    created: int = 0,
    rest: float = 1.0,
) -> Query | None:
    """A query created before the epoch `created`; otherwise as `make_query`."""
    draw = _Draw(rng, profile, world, streams, events, created, rest)
    kind = weighted(rng, (("folded", 9), ("folded join", 5), ("rows", 2), ("unwindowed", 2), ("joined", 1)))
    for attempt in range(ATTEMPTS):
        query = draw.join(attempt, kind == "folded join") if "join" in kind else draw.one(kind)
        if query.rows <= rows:
            return query
    return None


class _Draw:
    """One query in the making, and all it must fit to."""

    def __init__(
        self,
        rng: Random,
        profile: Profile,
        world: World,
        streams: Mapping[str, Stream],
        events: Mapping[str, Sequence[Event]],
        created: int,
        rest: float,
    ) -> None:
        self.rng, self.profile, self.world = rng, profile, world
        self.streams, self.events, self.created, self.rest = streams, events, created, rest

    # -- one stream -----------------------------------------------------------------------------------------------

    def one(self, kind: str) -> Query:
        rng = self.rng
        sources = joined_sources(rng, list(self.streams), 1)
        ((alias, stream),) = sources.items()
        columns = written_columns(self.streams, sources)
        text = named(rng, alias, stream)
        if chance(rng, 2 * self.profile.selective):
            text += f" WHERE {selection(rng, self.world, columns[alias])}"
        tuples = len(self.events[stream])
        if kind == "unwindowed":
            chosen = select_list(rng, columns)
            while "window_" in chosen:
                chosen = select_list(rng, columns)
            return Query(f"SELECT {chosen} FROM {text}", sources, (), tuples)
        window, per_tuple = self._window(sources, columns[alias], by_data=kind == "folded")
        if kind == "rows":
            return Query(f"SELECT {select_list(rng, columns)} FROM {text} {window}", sources, (), tuples * per_tuple)
        return Query(self._folded(columns, sources, text, window), sources, (), tuples * per_tuple)

    def _window(self, sources: Mapping[str, str], columns: Mapping[str, str], by_data: bool) -> tuple[str, int]:
        """A WINDOW clause for one stream, and in how many windows a tuple can be."""
        rng = self.rng
        weight = 4 * self.profile.by_data if by_data else 0.0
        kind = weighted(
            rng,
            (
                ("periodic", 6),
                ("session", weight),
                ("count", weight),
                ("punctuated", weight),
                ("between", 1.5),
            ),
        )
        match kind:
            case "session":
                gap = rng.randint(1, 3) if not chance(rng, 0.7) else rng.randint(3, 12)
                ttl = self._ttl(0.15, gap)
                return f"WINDOW SESSION ({length(gap * self.world.tick)}){ttl}", 1
            case "count":
                size = rng.randint(1, 5)
                advance = weighted(rng, ((size, 3), (rng.randint(1, size), 3), (size + rng.randint(1, 2), 1)))
                by = "" if advance == size and chance(rng, 0.7) else f" ADVANCE BY {advance}"
                return f"WINDOW COUNT (SIZE {size}{by}){self._ttl(0.25, 1)}", -(-size // advance)
            case "punctuated":
                return f"WINDOW PUNCTUATED BY ({self._punctuation(columns)})", 1
            case "between":
                return self._between(sources)[0], 1
        size, advance = periodic_window(rng, self.world, self.rest * self._part())
        return window_clause(size, advance), -(-size // advance)

    def _ttl(self, probability: float, least: int) -> str:
        """Mostly so short that many groups pause for longer."""
        if not chance(self.rng, probability):
            return ""
        ticks = least + weighted(self.rng, ((self.rng.randint(0, 12), 4), (0, 1), (self.rng.randint(12, 40), 1)))
        return f" STATE_TTL {length(ticks * self.world.tick)}"

    def _punctuation(self, columns: Mapping[str, str]) -> str:
        """Few tuples should be one, or windows hold nothing else."""
        key = next(c for c in columns if c.endswith(".k"))
        if chance(self.rng, 0.4):
            return selection(self.rng, self.world, columns)
        return f"{key} = {pick(self.rng, self.world.keys)}"

    # -- joins ----------------------------------------------------------------------------------------------------

    def join(self, attempt: int, folded: bool) -> Query:
        rng = self.rng
        ways = 2 if attempt > ATTEMPTS // 2 else weighted(rng, self.profile.ways)
        sources = joined_sources(rng, list(self.streams), ways)
        edges = join_edges(rng, self.streams, sources, composite=0.2 + 0.15 * attempt)
        if not folded or chance(rng, 0.15):
            window, size = self._between(sources)
            advance = size
        else:
            size, advance = periodic_window(rng, self.world, self.rest * self._part() / (1 + attempt))
            window = window_clause(size, advance)
        times = {s.name: s.time for s in self.streams.values()}
        bound = rows_at_most(sources, edges, size, advance, self.events, times)
        columns = written_columns(self.streams, sources)
        text = join_clauses(rng, self.profile, self.world, columns, sources, edges)
        return Query(self._selected(columns, sources, text, window, folded), sources, tuple(edges), bound)

    def _selected(
        self,
        columns: Mapping[str, Mapping[str, str]],
        sources: Mapping[str, str],
        text: str,
        window: str,
        folded: bool,
    ) -> str:
        if folded:
            return self._folded(columns, sources, text, window)
        emit = " EMIT FACTORIZED" if chance(self.rng, self.profile.factorized) else ""
        return f"SELECT {select_list(self.rng, columns)} FROM {text} {window}{emit}"

    # -- both -----------------------------------------------------------------------------------------------------

    def _folded(
        self, columns: Mapping[str, Mapping[str, str]], sources: Mapping[str, str], text: str, window: str
    ) -> str:
        rng = self.rng
        every = {c: t for own in columns.values() for c, t in own.items()}
        times = frozenset(f"{a}.{self.streams[s].time}" for a, s in sources.items())
        if self.profile.alike and chance(rng, self.profile.alike):
            by = [next(c for c in every if c.endswith(".k"))]
        else:
            by = folds.groups(rng, every, times)
        chosen = folds.items(rng, self.world, every, times, by, ordered=len(sources) == 1)
        group = f" GROUP BY {', '.join(by)}" if by else ""
        if chance(rng, 0.25):
            group += f" HAVING {folds.having(rng, self.world, every, by)}"
        return f"SELECT {chosen} FROM {text}{group} {window}"

    def _part(self) -> float:
        """Mostly short windows: only what has closed can be revised."""
        return weighted(self.rng, ((0.15, 2), (0.3, 3), (1.0, 1)))

    def _between(self, sources: Mapping[str, str]) -> tuple[str, int]:
        """The clause and the length of its window."""
        rng, tick = self.rng, self.world.tick
        times = [
            e.row.get(self.streams[s].time) for s in sources.values() for e in self.events[s] if e.epoch < self.created
        ]
        seen = [t for t in times if type(t) is int and t < POISON]
        begin = max(seen) + 1 if seen else self.world.base
        start = begin + weighted(rng, ((0, 3), (rng.randint(0, 8) * tick, 3)))
        size = rng.randint(2, max(3, int(self.world.span * self.rest))) * tick
        return f"WINDOW BETWEEN {start} AND {start + size}", size
