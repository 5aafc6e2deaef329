"""One query batch being decided: controls in their order, at most one changelog for all of them.

Nothing outside changes while a batch is decided. The plan, who runs, and what the optimizer remembers are working
copies that move on control by control; a control that is refused leaves them as they were. What they have become is the
decision, a frozen value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from optimizer.beside import Found, adopted
from optimizer.errors import AJoinError, AlreadyExists, FailedPrecondition, InvalidRequest, NotFound, ResourceExhausted
from optimizer.model import changelog
from optimizer.model.pins import NO_PINS, Pins
from optimizer.model.plan import Plan, RunningQuery, uid_of
from optimizer.model.windows.base import NEVER
from optimizer.optimize import Proposal
from optimizer.policy.memory import Memory
from optimizer.policy.moves import Moves
from optimizer.policy.scaling import Decision
from optimizer.search import forced
from runtime.api import (
    Adopt,
    Budget,
    Control,
    CreateQuery,
    DeleteQuery,
    ForceGroups,
    ForceOrder,
    MoveQueries,
    Optimize,
    QueryState,
    ResumeQuery,
    ScaleTo,
    SplitPartition,
    SuspendQuery,
    Unpin,
)
from runtime.control.events import BatchApplied, QueryAdded, QueryEnded, Saving
from runtime.control.state import State

if TYPE_CHECKING:
    from runtime.control.coordinator import Coordinator


Outcome = str | AJoinError | None
"""Of one control: the uid of the query that was created or deleted, why it was refused, or None."""


@dataclass(frozen=True, slots=True)
class BatchDecision:
    """What a batch leads to. It takes effect only with its record in the log.

    - `event`: what to log and handle; None when the batch changes neither the plan nor who runs.
    - `outcomes`: one per control, in their order.
    - `memory`: what the planner remembers from now on, if the event could be logged.
    - `proposal`: what the optimizer found, if the batch asked it; of several the last.
    - `moves`: what the optimizer has found by itself, to be made when the state it needs is prepared.
    - `rescaling`: what scaling said, likewise.
    """

    event: BatchApplied | None
    outcomes: tuple[Outcome, ...]
    memory: Memory
    proposal: Proposal | None
    moves: Moves | None
    rescaling: Decision | None = None


class Batch:
    """The working copies of one decision, thrown away with it."""

    def __init__(self, coordinator: Coordinator, state: State) -> None:
        self.coordinator, self.state = coordinator, state
        self.plan: Plan = state.plan
        self.running = dict(state.running)
        self.names = {r.query.id: uid for uid, r in state.queries.items() if r.running}
        self.suspended = {r.query.id: uid for uid, r in state.queries.items() if r.state == QueryState.SUSPENDED}
        self.requests = {r.request: uid for uid, r in state.queries.items() if r.request}
        self.added: dict[str, QueryAdded] = {}
        self.ended: list[QueryEnded] = []
        self.memory: Memory = coordinator.planner.memory
        self.pins = state.plan_pins
        self.behind = state.epochs_behind
        self.proposal: Proposal | None = None
        self.moves: Moves | None = None
        self.rescaling: Decision | None = None
        self.now_ms = 0

    def decide(self, controls: Sequence[Control | AJoinError], now_ms: int) -> BatchDecision:
        self.now_ms = now_ms
        outcomes = tuple(self._outcome(control) for control in controls)
        return BatchDecision(self._event(now_ms), outcomes, self.memory, self.proposal, self.moves, self.rescaling)

    def _outcome(self, control: Control | AJoinError) -> Outcome:
        if isinstance(control, AJoinError):
            return control
        try:
            return self._apply(control)
        except AJoinError as refused:
            return refused

    def _apply(self, control: Control) -> str | None:
        match control:
            case CreateQuery():
                return self._create(control)
            case DeleteQuery(id):
                return self._forget_suspended(id) or self._end(id, "")
            case SuspendQuery(id, reason):
                return self._end(id, reason)
            case ResumeQuery(id):
                return self._resume(id)
            case ForceOrder(id, order):
                rq = self.running[self._uid(id)]
                self.plan = forced.force_order(self.plan, rq, order)
                self.pins = self.pins.with_order(rq.uid)
            case ForceGroups(groups):
                wanted = {self._uid(id): group for id, group in groups}
                self.plan = forced.force_groups(self.plan, self.running, wanted)
                self.pins = self.pins.with_groups(wanted)
            case ScaleTo(partitions):
                self.plan = forced.scale_to(self.plan, partitions)
                self.pins = replace(self.pins, scale=True)
            case SplitPartition(partition, ways):
                self.plan = forced.split(self.plan, partition, ways)
                self.pins = replace(self.pins, scale=True)
            case Unpin(ids, scale):
                self._unpin(ids, scale)
            case Adopt(found):
                self._adopt(found)
            case Optimize(mode, force, rescale):
                self._optimize(mode, force, rescale)
            case MoveQueries(moves):
                applied = moves.applied(self.plan, self.pins)
                if applied is None:
                    raise FailedPrecondition("what was prepared is for a plan that is gone", reason="PLAN_MOVED_ON")
                self.plan = applied[0]
        return None

    def _uid(self, id: str) -> str:
        uid = self.names.get(id)
        if uid is None:
            raise self._missing(id)
        return uid

    def _missing(self, id: str) -> AJoinError:
        if id in self.suspended:
            return FailedPrecondition(
                f"query {id!r} is suspended", reason="QUERY_SUSPENDED", hint="resume it, or delete it"
            )
        if id in self.state.names:
            return FailedPrecondition(f"query {id!r} was deleted already", reason="QUERY_DELETED")
        return NotFound(f"there is no query {id!r}", reason="QUERY_NOT_FOUND")

    def _create(self, control: CreateQuery) -> str:
        if control.request in self.requests:
            return self._repeated(control)
        if control.id in self.names:
            raise AlreadyExists(
                f"query {control.id!r} is running already", reason="QUERY_EXISTS", hint="choose another id"
            )
        if control.id in self.suspended:
            raise AlreadyExists(
                f"query {control.id!r} is suspended",
                reason="QUERY_EXISTS",
                hint="resume it, delete it, or choose another id",
            )
        streams = [self.coordinator.stream(s) for s in sorted(control.query.streams)]
        seen = [s.max_time for s in streams if s.max_time is not None]
        active_from = control.query.window.first_start_at_or_after(1 + max(seen)) if seen else None
        if active_from == NEVER:
            raise InvalidRequest(
                f"WINDOW {control.query.window.sql} began before the query: tuples up to {max(seen)} have been "
                "accepted, so its result could not be complete",
                reason="WINDOW_IN_PAST",
                hint=f"let it begin after {max(seen)}",
            )
        uid = uid_of(control.id, self.state.serial + len(self.added) + 1)
        rq = RunningQuery(uid, control.id, control.query, active_from)
        planner = self.coordinator.planner
        step = planner.create_delete(self.plan, self.running, [rq], (), self.memory, self.behind)
        self._admit(rq, step.plan)
        self.plan, self.memory = step.plan, step.memory
        self.running[uid], self.names[control.id] = rq, uid
        self.added[uid] = QueryAdded(query=rq, sinks=control.sinks, budget=control.budget, request=control.request)
        if control.request:
            self.requests[control.request] = uid
        return uid

    def _repeated(self, control: CreateQuery) -> str:
        """Its first answer got lost, perhaps with the process that gave it: it is the same query, whatever became of
        it since."""
        uid = self.requests[control.request]
        created = self.added.get(uid) or self.state.queries[uid]
        if created.query.query != control.query:
            raise InvalidRequest(
                f"the request that created query {created.query.id!r} was a different one",
                reason="REQUEST_ID_REUSED",
                hint="give every request an id of its own; repeat an id only to repeat the request",
            )
        return uid

    def _admit(self, rq: RunningQuery, plan: Plan) -> None:
        """Admission control: refuse a query that would push the estimated cost of the plan over the limit."""
        limit = self.coordinator.max_cost
        if limit is None:
            return
        cost = self.coordinator.planner.estimate(plan, self.running | {rq.uid: rq}).cost
        if cost > limit:
            raise ResourceExhausted(
                f"query {rq.id!r} would raise the estimated cost to {cost:,.3g} a second; {limit:,.3g} is allowed",
                reason="COST_LIMIT",
                hint="select less, join fewer streams, delete another query, or raise max_cost",
            )

    def _forget_suspended(self, id: str) -> str | None:
        """It is not suspended any more, but gone: deleted, or about to come back under another uid."""
        uid = self.suspended.pop(id, None)
        if uid is not None:
            known = {uid: r.active_until for uid, r in self.state.queries.items()}
            known |= {e.uid: e.active_until for e in self.ended}
            self.ended.append(QueryEnded(uid=uid, active_until=known[uid]))
        return uid

    def _resume(self, id: str) -> str:
        uid = self._forget_suspended(id)
        if uid is None:
            self._uid(id)  # or there is no such query
            raise FailedPrecondition(f"query {id!r} is running", reason="QUERY_RUNNING")
        before = self.added.get(uid) or self.state.queries[uid]
        try:
            return self._create(CreateQuery(id, before.query.query, before.sinks, before.budget))
        except AJoinError:
            self.suspended[id] = uid
            self.ended.pop()
            raise

    def _end(self, id: str, suspended: str) -> str:
        """Delete it; with a reason, suspend it."""
        uid = self._uid(id)
        step = self.coordinator.planner.create_delete(self.plan, self.running, (), [uid], self.memory, self.behind)
        self.plan, self.memory = step.plan, step.memory
        until = self.state.watermark(self.running[uid])
        self.ended.append(QueryEnded(uid=uid, active_until=until, suspended=suspended))
        self.pins = self.pins.without([uid])
        del self.running[uid], self.names[id]
        if suspended:
            self.suspended[id] = uid
        return uid

    def _optimize(self, mode: str, force: bool, rescale: bool) -> None:
        planner = self.coordinator.planner
        proposal = planner.optimize(self.plan, self.running, mode, self.memory, self.behind, self.pins, force=force)
        self.plan, self.memory, self.proposal = proposal.plan, proposal.memory, proposal
        if rescale:
            self._rescale()

    def _adopt(self, found: Found | None) -> None:
        """What was found beside is brought into the present; what it moves is prepared before the plan changes."""
        if found is not None:
            after = adopted(found, self.plan, self.memory, self.pins)
            self.memory, self.proposal = after.memory, found.proposal
            if after.plan is not self.plan:
                self.moves = Moves.between(self.plan, after.plan)
        self._rescale()

    def _rescale(self) -> None:
        if self.pins.scale:
            return
        budgets = {uid: self._budget(uid).latency for uid in self.running}
        allowed = {uid: age for uid, age in budgets.items() if age is not None}
        machines, now = self.coordinator.machines, self.now_ms / 1000
        planner = self.coordinator.planner
        rescaling = planner.rescale(self.plan, self.running, machines, allowed, self.memory, now, self.behind)
        self.plan, self.memory, self.rescaling = rescaling.plan, rescaling.memory, rescaling.decision

    def _budget(self, uid: str) -> Budget:
        return (self.added.get(uid) or self.state.queries[uid]).budget

    def _unpin(self, ids: Sequence[str], scale: bool) -> None:
        """The next optimization looks at the queries that are released, whatever their statistics say."""
        if not ids and not scale:
            released, self.pins = self.pins, NO_PINS
        else:
            uids = [self._uid(id) for id in ids]
            released = Pins(self.pins.orders.intersection(uids), self.pins.groups.intersection(uids))
            self.pins = replace(self.pins.without(uids), scale=self.pins.scale and not scale)
        self.memory = replace(self.memory, drifted=self.memory.drifted | released.orders | released.groups)

    def _event(self, now_ms: int) -> BatchApplied | None:
        plan = forced.one_step(self.state.plan, self.plan)
        pinned = self.pins != self.state.plan_pins
        if plan == self.state.plan and not self.added and not self.ended and not pinned:
            return None
        savings = self.coordinator.savings(plan, self.running)
        return BatchApplied(
            at_ms=now_ms,
            added=tuple(self.added.values()),
            ended=tuple(self.ended),
            changelog=changelog.diff(self.state.plan, plan),
            savings=tuple(Saving(uid, part) for uid, part in sorted(savings.items())),
            plan_pins=self.pins if pinned else None,
        )
