"""A plan change that rebuilds much state is prepared beside the running plan, a portion after each epoch.

To run another order, or a query in another group, an epoch needs views and joined buckets that the old plan did not
keep. Made all at once, that takes as long as everything that is open, which is what a 10-minute window holds. So the
old plan goes on, and after every epoch a portion of the open buckets is taken through the joins of the new plan,
delivering nothing: first what came since the last portion, then as much of what is older as there is time for. When
nothing is left, the change is decided, and the next epoch is given what it would have had to make.

Why it is exact. A portion is what `RebuildStage` does, of some buckets instead of all: they meet those of earlier
portions and each other, so each pair of open buckets meets once, whatever the order. Nothing of it is in the log and
nobody reads it before the change is: a crash, a repair or a failure only throws it away. Users go on creating and
deleting queries meanwhile; what was decided is kept as moves of queries (optimizer.policy.moves), done anew on every
plan that comes. Buckets that were prepared stay right as long as their bits mean the same queries and their outputs
expose the same leaves (`_fits`); else preparation begins anew.

What it costs: a portion takes at most about `SHARE` of the time of an epoch, but always what came since the last one,
which takes no longer than that epoch's own joins. Old buckets go when their windows are over. So preparation ends
after one window length at the latest, and usually much sooner.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from optimizer.model.plan import Leaf, Plan
from optimizer.policy.moves import Moves
from runtime.buckets.refs import JoinedRef, SourceRef, ViewRef
from runtime.control.state import State
from runtime.engine.exchange import Exchange
from runtime.engine.join_stage import Output
from runtime.engine.open_buckets import OpenBuckets
from runtime.engine.rebuild_stage import Given, RebuildStage
from runtime.engine.stage_context import StageContext
from runtime.execution.physical import Physical
from runtime.execution.transition import Transition, plan_transition

SHARE = 0.5
"""Of the time of an epoch, for a portion."""

AT_ONCE = 4
"""Epochs whose buckets are open, up to which a change is not worth preparing."""


class ViewAt(NamedTuple):
    bucket: int
    leaf: Leaf
    group: int


@dataclass(frozen=True, slots=True)
class _Goal:
    """What is prepared: the plan that the running one would become, and what its transition asks for. `exposed`: per
    output, the leaves its items expose."""

    plan: Plan
    moves: Moves
    physical: Physical
    outputs: frozenset[Output]
    exposed: Mapping[Output, frozenset[Leaf]]


class Preparation:
    """Owned by the engine's thread. `mark` is in the names of its files; no other preparation has the same."""

    def __init__(self, moves: Moves, exchange: Exchange, mark: str) -> None:
        self.moves, self.mark = moves, mark
        self._exchange = exchange
        self._goal: _Goal | None = None
        self._views: dict[ViewAt, ViewRef] = {}
        self._joined: dict[int, JoinedRef] = {}
        self._bits: dict[tuple[int, int], str] = {}
        self._covered: set[int] = set()
        self._head = -1
        self._more = AT_ONCE
        self.next_bucket = 0
        """Numbers of buckets below it are given away."""
        self.portions = 0

    @property
    def files(self) -> frozenset[str]:
        """No log lists them yet, but they are no debris."""
        return frozenset((*(v.file for v in self._views.values()), *(j.file for j in self._joined.values())))

    # -- portions -------------------------------------------------------------------------------------------------

    def step(self, context: StageContext, before: Physical, goal: tuple[Plan, Moves, Physical], budget: float) -> bool:
        """One portion, of about `budget` seconds; is everything that is open prepared now? `context`: the state after
        an epoch, with the plan it ran with (`before`) in it; its plan is the goal's."""
        began = time.perf_counter()
        state = context.state
        self._aim(state, before, *goal)
        assert self._goal is not None
        self._let_go(state)
        kept = self._kept(state)
        opened: dict[int, SourceRef | JoinedRef] = {**state.sources, **kept}
        epochs = {id: ref.epoch for id, ref in opened.items() if id not in self._covered}
        portion = self._portion(epochs, state.epoch)
        if portion:
            self._prepare(context, before, kept, portion)
            self._covered |= portion
            self.portions += 1
            spent = (time.perf_counter() - began) / len({epochs[id] for id in portion})
            self._more = max(0, min(int(budget / max(spent, 1e-9)) - 1, 2 * self._more + 1))
        self._head = state.epoch
        return len(portion) == len(epochs)

    def _portion(self, epochs: Mapping[int, int], now: int) -> set[int]:
        """All that came since the last one, and the newest of what is older: the oldest may go by itself."""
        head = self._head if self._head >= 0 else now - 1
        older = sorted({e for e in epochs.values() if e <= head}, reverse=True)[: self._more]
        return {id for id, epoch in epochs.items() if epoch > head or epoch in older}

    def _prepare(
        self, context: StageContext, before: Physical, kept: Mapping[int, JoinedRef], portion: set[int]
    ) -> None:
        goal, state = self._goal, context.state
        assert goal is not None
        now = replace(
            state,
            plan=goal.plan,
            slots={**state.slots, goal.plan.version: _slots(goal.plan)},
            sources={id: replace(ref, views=self._seen(id, ref.views)) for id, ref in state.sources.items()},
            joined={**kept, **self._joined},
        )
        mine = replace(now, sources={id: ref for id, ref in now.sources.items() if id in portion})
        views = plan_transition(mine, before, goal.physical).views
        buckets = OpenBuckets(now, self.next_bucket)
        buckets.aside = frozenset(now.sources.keys() | kept.keys()) - self._covered - portion
        stage = RebuildStage(replace(context, state=now), buckets, state.epoch, self.mark)
        stage.portion(views, goal.outputs, portion)
        for task in views:
            view = buckets.sources[task.bucket.id].view(task.leaf, task.group)
            assert view is not None
            self._views[ViewAt(task.bucket.id, task.leaf, task.group)] = view
        self._joined |= {id: ref for id, ref in buckets.joined.items() if id not in now.joined}
        self.next_bucket = buckets.next_bucket

    def _seen(self, bucket: int, views: Iterable[ViewRef]) -> tuple[ViewRef, ...]:
        """A bucket's views, with those that were prepared in place of old ones."""
        mine = {(at.leaf, at.group): view for at, view in self._views.items() if at.bucket == bucket}
        return tuple(({(v.leaf, v.group): v for v in views} | mine).values())

    # -- what it is for -------------------------------------------------------------------------------------------

    def _aim(self, state: State, before: Physical, plan: Plan, moves: Moves, physical: Physical) -> None:
        """The running plan may have changed, and with it what is to become of it."""
        if self._goal is not None and self._goal.plan == plan:
            return
        then = replace(state, plan=plan, slots={**state.slots, plan.version: _slots(plan)})
        outputs = plan_transition(then, before, physical).outputs
        exposed = {(j.name, o.key): frozenset(o.exposed) for j in physical.joins for o in j.outputs}
        if self._goal is not None and not self._fits(plan, outputs, exposed):
            self.discard()
        if self._goal is not None:
            outputs |= {at for at in self._goal.outputs if at in _with_a_past(state, physical)}
        self._goal = _Goal(plan, moves, physical, outputs, exposed)
        self.moves = moves
        self._bits |= {(p.group, p.slot): p.uid for p in plan.placements}
        version = plan.version
        self._views = {at: replace(view, version=version) for at, view in self._views.items()}
        self._joined = {id: replace(ref, version=version) for id, ref in self._joined.items()}

    def _fits(self, plan: Plan, outputs: Collection[Output], exposed: Mapping[Output, frozenset[Leaf]]) -> bool:
        """Does what was prepared mean the same in this plan, and is nothing more asked for?"""
        goal = self._goal
        assert goal is not None
        for p in plan.placements:
            if self._bits.get((p.group, p.slot), p.uid) != p.uid:
                return False  # the bit of a query that is gone
        here = {(p.group, p.slot) for p in plan.placements}
        if any(uid in plan.by_uid and at not in here for at, uid in self._bits.items()):
            return False
        return all(at in goal.outputs for at in outputs) and all(
            exposed[at] == goal.exposed[at] for at in goal.outputs if at in exposed
        )

    def _kept(self, state: State) -> dict[int, JoinedRef]:
        """Joined buckets that the new plan takes over as they are."""
        assert self._goal is not None
        here = _with_a_past(state, self._goal.physical) - self._goal.outputs
        return {id: ref for id, ref in state.joined.items() if (ref.node, ref.key) in here}

    def _let_go(self, state: State) -> None:
        """Of buckets that are no longer open, and of outputs that nobody wants any more."""
        assert self._goal is not None
        users = {node.name: uids for node, uids in self._goal.plan.nodes.items()}
        for at in [at for at in self._views if at.bucket not in state.sources]:
            self._exchange.drop(self._views.pop(at).file)
        for id, ref in list(self._joined.items()):
            starts = [state.floors.get(uid) for uid in users.get(ref.node, ())]
            over = all(start is not None and ref.max_lo < start for start in starts)
            if over or (ref.node, ref.key) not in self._goal.outputs:
                self._exchange.drop(self._joined.pop(id).file)
        self._covered &= state.sources.keys() | state.joined.keys()

    # -- the end --------------------------------------------------------------------------------------------------

    def given(self, context: StageContext, transition: Transition) -> tuple[Transition, Given] | None:
        """For the epoch that changes the plan: what its transition is then, and what is there of it; None if something
        is missing, so that it has to be made as if nothing had been prepared."""
        goal, state, plan, physical = self._goal, context.state, context.plan, context.physical
        exposed = {(j.name, o.key): frozenset(o.exposed) for j in physical.joins for o in j.outputs}
        if goal is None or not self._fits(plan, transition.outputs, exposed):
            return None
        outputs = goal.outputs & _with_a_past(state, physical)
        kept = self._kept(state).keys()
        lacking = {ViewAt(v.bucket.id, v.leaf, v.group) for v in transition.views} - self._views.keys()
        if lacking or not (state.sources.keys() | kept) <= self._covered:
            return None
        views: dict[int, list[ViewRef]] = {}
        for at, view in self._views.items():
            if at.bucket in state.sources:
                views.setdefault(at.bucket, []).append(replace(view, version=plan.version))
        joined = tuple(
            replace(ref, version=plan.version) for ref in self._joined.values() if (ref.node, ref.key) in outputs
        )
        stale = {id for id, ref in state.joined.items() if (ref.node, ref.key) in outputs}
        stale |= set(transition.stale)
        return Transition(transition.views, outputs, tuple(sorted(stale))), Given(views, joined)

    def discard(self) -> None:
        """Nothing of it is used; it may begin anew."""
        for name in sorted(self.files):
            self._exchange.drop(name)
        self._views, self._joined, self._bits, self._covered = {}, {}, {}, set()
        self._goal, self._head, self._more = None, -1, AT_ONCE


def _slots(plan: Plan) -> dict[int, Mapping[int, str]]:
    return {group: plan.slots(group) for group in plan.groups}


def _with_a_past(state: State, physical: Physical) -> frozenset[Output]:
    """Outputs that some query uses which ran already; what others use begins empty."""
    had = set(state.executed.by_uid)
    return frozenset(at for at, uids in physical.uses.items() if uids & had)
