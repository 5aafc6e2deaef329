"""Plans as tasks run them, compiled once per plan version. Two are held: the one executed last, and the next."""

from __future__ import annotations

from optimizer.model.plan import Plan
from runtime.control.state import State
from runtime.execution.compile import compile_plan
from runtime.execution.physical import Physical
from runtime.execution.sharing import Sharing


class CompiledPlans:
    """Owned by the engine's thread."""

    def __init__(self, sharing: Sharing) -> None:
        self._sharing = sharing
        self._held: dict[int, Physical] = {}

    def of(self, plan: Plan, state: State) -> Physical:
        held = self._held.get(plan.version)
        if held is None:
            queries = {uid: r.query for uid, r in state.queries.items()}
            schemas = {name: st.schema for name, st in state.streams.items()}
            held = compile_plan(plan, queries, schemas, closed_lists=self._sharing.closed_lists)
            needed = (state.executed.version, state.plan.version)
            self._held = {v: p for v, p in self._held.items() if v in needed} | {plan.version: held}
        return held
