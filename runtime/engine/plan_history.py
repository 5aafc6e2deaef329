"""Changelogs as people read them: made from the facts in the state on request.

The state holds the latest changelogs and the plan they start from. An earlier plan is found by applying them in
order; its text is made once per version.
"""

from __future__ import annotations

import threading

from optimizer.explain.describe import describe
from optimizer.explain.explain import explain_plan
from optimizer.model import changelog
from optimizer.model.plan import Plan, id_of
from runtime.api import PlanEvent
from runtime.control.state import PlanChange, State

SHOWN_QUERIES = 100


class PlanHistory:
    """May be asked from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: dict[int, PlanEvent] = {}
        self._plans: dict[int, Plan] = {}

    def events(self, state: State, after_version: int) -> list[PlanEvent]:
        with self._lock:
            self._walk(state)
            return [self._event(state, c) for c in state.plans if c.version > after_version]

    def _walk(self, state: State) -> None:
        """Find the plan of every version there is; forget those that are no longer there."""
        before, plans = state.oldest_plan, dict[int, Plan]()
        for change in state.plans:
            known = self._plans.get(change.version)
            before = changelog.apply(before, change.changelog) if known is None else known
            plans[change.version] = before
        self._plans = plans
        self._events = {v: e for v, e in self._events.items() if v in plans}

    def _event(self, state: State, change: PlanChange) -> PlanEvent:
        known = self._events.get(change.version)
        if known is None:
            plan = self._plans[change.version]
            lines = describe_change(change, plan)
            known = PlanEvent(change.version, change.epoch, lines, summary(plan, state))
            self._events[change.version] = known
        return known


def describe_change(change: PlanChange, plan: Plan) -> tuple[str, ...]:
    """`plan`: the one the change leads to."""
    uids = {p.uid for p in plan.placements} | {e.uid for e in change.changelog.entries if hasattr(e, "uid")}
    return describe(change.changelog, {uid: id_of(uid) for uid in uids}, plan, dict(change.savings))


def summary(plan: Plan, state: State) -> str:
    """A very large plan is only counted, and so is one whose queries are forgotten; `explain` shows the running one."""
    uids = [p.uid for p in plan.placements]
    if len(uids) <= SHOWN_QUERIES and all(uid in state.queries for uid in uids):
        return explain_plan(plan, {uid: state.queries[uid].query for uid in uids}, "text")
    return f"plan version {plan.version} · {len(uids)} queries · {len(plan.groups)} groups"
