"""What a query that folds delivers, epoch by epoch.

    after every epoch, for every group and window with something in it, of all that was accepted so far
        not closed                                       ->  nothing
        closed, and as it was when last delivered        ->  nothing
        closed, HAVING is not TRUE                       ->  nothing
        closed                                           ->  a row

Everything is computed anew from the tuples, and compared with what was delivered before: the bounds of the window and
which tuples are in it, not their values, because a change that leaves all values equal is a delivery too.

Revisions number deliveries. A row is the next revision of what it *replaces*: of the row of its group whose window had
the same start; for a session, of all rows of its group whose tuples it has swallowed, and then its number is one above
the highest of theirs. Of count windows only those with the same start count whose tuples are in the same run now:
without STATE_TTL all of a group are; with it, tuples of two runs can be in one later, never the other way round, and so
there may be several. A row that replaces nothing has revision 0. What HAVING holds back was not delivered, so it
neither has a number nor replaces anything. For time windows all this says: first 0, then one more whenever a late
tuple comes. A late punctuation makes a window with a known start and one with a new one; where the first edge
moves back because a tuple comes before it, the start is new.

At the end of a scenario all watermarks go to infinity (unless it is not flushed): one more look at everything.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from optimizer.model.expressions import GroupRef
from optimizer.model.query import Query
from optimizer.model.windows import CountWindow, FixedWindow, PeriodicWindow, SessionWindow
from tests.oracle.aggregates import aggregate
from tests.oracle.join import Combination, combinations, selected
from tests.oracle.rows import ResultRow, freeze, freeze_value
from tests.oracle.values import evaluate
from tests.oracle.windows import Bounds, Tuple, panes

REVISION = "revision"
"""A row of a query that folds is frozen together with its revision, under this name."""

Identity = frozenset[tuple[tuple[str, int], ...]]
"""Which combinations, whatever their values: each as its tuples' places in the order of arrival."""


@dataclass(frozen=True, slots=True)
class Content:
    """A group and window with something in it. `members` in order of event time, ties by arrival, if of one stream.
    `run`: of a count window, everything that is counted together."""

    group: tuple[Any, ...]
    bounds: Bounds
    members: tuple[Combination, ...]
    closes: int
    run: Identity = frozenset()

    @property
    def identity(self) -> Identity:
        return identity_of(self.members)

    @property
    def key(self) -> tuple[Hashable, ...]:
        return tuple(freeze_value(v) for v in self.group)


def identity_of(members: Sequence[Combination]) -> Identity:
    return frozenset(tuple((alias, t.arrival) for alias, t in sorted(m.items())) for m in members)


@dataclass(frozen=True, slots=True)
class Delivered:
    bounds: Bounds
    identity: Identity
    revision: int


def fold_rows(
    query: Query,
    tuples: Mapping[str, Sequence[Tuple]],
    active_from: int | None,
    watermarks: Mapping[int, int | None],
    flushed: bool,
) -> Counter[ResultRow]:
    """All deliveries. `tuples` is per stream; `watermarks`: the query's, as each epoch left it."""
    log = _Log(query)
    of_time = isinstance(query.window, PeriodicWindow | FixedWindow)
    # A combination is there from the epoch of its last tuple on. To look for all of them once saves time, no thought.
    found = list(combinations(query, tuples, active_from)) if of_time else []

    def contents(epoch: float) -> list[Content]:
        if of_time:
            return list(_of_time(query, [f for f in found if max(t.epoch for t in f[1].values()) <= epoch]))
        seen = [t for t in tuples[query.sources[0].stream] if t.epoch <= epoch]
        return list(_by_data(query, [t for t in seen if active_from is None or t.time >= active_from]))

    for epoch, watermark in sorted(watermarks.items()):
        if watermark is not None:
            log.look(contents(epoch), watermark)
    if flushed:
        log.look(contents(math.inf), math.inf)
    return log.rows


def _of_time(query: Query, found: Sequence[tuple[Bounds, Combination]]) -> Iterator[Content]:
    together: dict[Any, list[tuple[tuple[Any, ...], Bounds, Combination]]] = {}
    for bounds, combination in found:
        group = _group(query, combination, bounds)
        key = (tuple(freeze_value(v) for v in group), bounds)
        together.setdefault(key, []).append((group, bounds, combination))
    for alike in together.values():
        group, bounds, _ = alike[0]
        members = sorted((c for _, _, c in alike), key=lambda c: [t.order for t in c.values()])
        yield Content(group, bounds, tuple(members), closes=bounds[1])


def _by_data(query: Query, visible: Sequence[Tuple]) -> Iterator[Content]:
    (source,) = query.sources
    together: dict[Any, list[Tuple]] = {}
    for t in selected(query, source, visible):
        group = _group(query, {source.alias: t}, None)
        together.setdefault(tuple(freeze_value(v) for v in group), []).append(t)
    for alike in together.values():
        group = _group(query, {source.alias: alike[0]}, None)
        for pane in panes(query.window, alike, visible, source.alias, query.state_ttl_ms):
            members = tuple({source.alias: t} for t in pane.tuples)
            run = identity_of([{source.alias: t} for t in pane.run])
            yield Content(group, pane.bounds, members, pane.closes, run)


def _group(query: Query, combination: Combination, bounds: Bounds | None) -> tuple[Any, ...]:
    """0.0 and -0.0 are one group, shown as 0.0."""
    rows = {alias: t.row for alias, t in combination.items()}
    values = [evaluate(g, rows, bounds) for g in query.groups]
    return tuple(0.0 if isinstance(v, float) and v == 0.0 else v for v in values)


@dataclass(slots=True)
class _Log:
    """What was delivered (`rows`), and of that what nothing has replaced yet (`standing`, per group)."""

    query: Query
    rows: Counter[ResultRow] = field(default_factory=Counter)
    standing: dict[tuple[Hashable, ...], list[Delivered]] = field(default_factory=dict)

    def look(self, contents: Sequence[Content], watermark: float) -> None:
        for content in contents:
            if watermark >= content.closes:
                self._closed(content)

    def _closed(self, content: Content) -> None:
        standing = self.standing.setdefault(content.key, [])
        identity = content.identity
        replaced = [d for d in standing if self._replaces(content, identity, d)]
        if any((d.bounds, d.identity) == (content.bounds, identity) for d in replaced):
            return
        folded = self._folded(content)
        if self.query.having is not None and evaluate(self.query.having, {}, content.bounds, folded) is not True:
            return
        revision = 1 + max((d.revision for d in replaced), default=-1)
        row = {o.name: evaluate(o.expr, {}, content.bounds, folded) for o in self.query.outputs}
        self.rows[freeze(*content.bounds, {**row, REVISION: revision})] += 1
        kept = [d for d in standing if d not in replaced]
        self.standing[content.key] = [*kept, Delivered(content.bounds, identity, revision)]

    def _replaces(self, content: Content, identity: Identity, delivered: Delivered) -> bool:
        """Of the same group."""
        if isinstance(self.query.window, SessionWindow):
            return delivered.identity <= identity
        if isinstance(self.query.window, CountWindow) and not delivered.identity <= content.run:
            return False
        return delivered.bounds[0] == content.bounds[0]

    def _folded(self, content: Content) -> dict[Any, Any]:
        """The value of every aggregate and group item, for SELECT and HAVING to compute with."""
        rows = [{alias: t.row for alias, t in m.items()} for m in content.members]
        values: dict[Any, Any] = {a: aggregate(a, rows, content.bounds) for a in self.query.aggregates}
        for index, (expr, value) in enumerate(zip(self.query.groups, content.group, strict=True)):
            values[GroupRef(index, expr.type)] = value
        return values
