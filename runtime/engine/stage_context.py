"""What every stage needs to know: one plan over one state, and the means to run tasks.

The source stage of an epoch, its joins, a plan change and a repair differ in which plan they run and over which
buckets; the rest is here. An epoch runs with the state's plan, a repair with the plan that was executed last, and the
next epoch's reads with the plan of the epoch before. Nothing here changes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from optimizer.model.plan import Plan, changelog_set
from optimizer.model.types import StreamSchema
from runtime.columns.querysets import bitset
from runtime.connectors.base import Source
from runtime.control.state import State
from runtime.engine.exchange import Exchange
from runtime.execution.physical import Physical
from runtime.execution.sharing import Sharing
from runtime.operators.floors import Floor


@dataclass(frozen=True)
class StageContext:
    """`physical`: `plan` as tasks run it. `instance` names this opening of the engine: workers cache by it."""

    state: State
    plan: Plan
    physical: Physical
    exchange: Exchange
    sources: Mapping[str, Source]
    sharing: Sharing
    instance: str

    @property
    def key(self) -> str:
        """Under this key workers cache what they compile for this plan version."""
        return f"{self.instance}/{self.physical.version}"

    @property
    def schemas(self) -> Mapping[str, StreamSchema]:
        return {name: st.schema for name, st in self.state.streams.items()}

    def floors(self, which: Callable[[str], bool] = lambda uid: True) -> tuple[Floor, ...]:
        """Of the queries of the plan."""
        placed = self.plan.by_uid
        return tuple(
            Floor(placed[uid].group, placed[uid].slot, floor)
            for uid, floor in self.state.floors.items()
            if uid in placed and which(uid)
        )

    @cached_property
    def source_floors(self) -> tuple[Floor, ...]:
        """Floors that a source must heed: those of queries one of whose streams can come back from idling."""
        can_idle = {name for name, schema in self.schemas.items() if schema.idle_timeout_ms is not None}
        if not can_idle:
            return ()
        return self.floors(lambda uid: bool(self.state.queries[uid].query.query.streams & can_idle))

    def alive(self, group: int, version: int) -> tuple[int, ...]:
        """The changelog set of a bucket written under plan `version`: which bits still mean the same query."""
        known = self._alive.get((group, version))
        if known is None:
            then = self.state.slots[version].get(group, {})
            words = bitset(changelog_set(then, self.plan.slots(group)), self.plan.words(group))
            known = self._alive[(group, version)] = tuple(int(w) for w in words)
        return known

    @cached_property
    def _alive(self) -> dict[tuple[int, int], tuple[int, ...]]:
        """A cache of what follows from the plan and the state."""
        return {}
