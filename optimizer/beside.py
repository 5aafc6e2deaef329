"""Optimizing beside the running platform: on a snapshot, with a result that may come late.

A `Situation` is everything an optimization needs, as values nobody changes: it can be searched by another optimizer on
another thread, for as long as that takes, while query batches and epochs go on. What was `Found` says from which plan
and memory it set out. `adopted` brings it into the present:

- Each part of it is made if everything that it moves is still where it was, and is not pinned meanwhile (parts are
  independent, so others being void does not matter). A part that moves a query which is gone is void too, because its
  gain was counted with it.
- What was remembered since (queries that came and went) is added to what the optimization wants to remember. If another
  optimization was made in between, somebody asked for one; then nothing of this one is kept.

What is thrown away is found again by the next optimization, if it still is worth anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from optimizer.model.parts import combined, fitted
from optimizer.model.pins import NO_PINS, Pins
from optimizer.model.plan import Plan, RunningQuery
from optimizer.optimize import Behind, CostBasedOptimizer, Mode, OptimizerConfig, Proposal
from optimizer.policy.memory import Memory
from optimizer.statistics.model import StatisticsModel


@dataclass(frozen=True)
class Situation:
    """`statistics` is a view (`StatisticsModel.view`), which no report changes."""

    plan: Plan
    queries: Mapping[str, RunningQuery]
    statistics: StatisticsModel
    memory: Memory
    config: OptimizerConfig
    behind: Behind
    pins: Pins

    def search(self, optimizer: CostBasedOptimizer, mode: Mode = "incremental") -> Found:
        """`optimizer` belongs to the caller; it only adds caches."""
        optimizer.config = self.config
        proposal = optimizer.optimize(
            self.plan, self.queries, self.statistics, self.memory, mode, False, self.behind, self.pins
        )
        return Found(self.plan, self.memory, proposal)


@dataclass(frozen=True)
class Found:
    """What an optimization of this plan, with this memory, proposes."""

    plan: Plan
    memory: Memory
    proposal: Proposal


@dataclass(frozen=True, slots=True)
class Adopted:
    """The plan and memory from now on; so many parts were void."""

    plan: Plan
    memory: Memory
    void: int = 0


def adopted(found: Found, plan: Plan, memory: Memory, pins: Pins = NO_PINS) -> Adopted:
    base, proposal = found.memory, found.proposal
    if _optimized_since(base, memory):
        return Adopted(plan, memory, len(proposal.parts))
    now = [(part, fitted(part, plan)) for part in proposal.parts]
    valid = [p for part, p in now if p is not None and len(p.moves) == len(part.moves) and pins.allow(p)]
    after = _merged(base, proposal.memory, memory)
    void = len(proposal.parts) - len(valid)
    if void:  # then nobody has become restless by them
        after = replace(after, hysteresis=memory.hysteresis)
    return Adopted(combined(plan, valid), after, void)


def _optimized_since(base: Memory, now: Memory) -> bool:
    return (base.calls, base.hysteresis, base.achieved) != (now.calls, now.hysteresis, now.achieved) or (
        base.seen is not now.seen and base.seen != now.seen
    )


def _merged(base: Memory, found: Memory, now: Memory) -> Memory:
    """What the optimization remembers, and what has happened since it set out."""
    settled, released = base.created - found.created, found.created - base.created
    return replace(
        found,
        created=(now.created - settled) | released,
        deleted=(now.deleted - base.deleted) | found.deleted,
        drifted=found.drifted | (now.drifted - base.drifted),
        changes=found.changes + now.changes - base.changes,
        quiet=now.quiet,
    )
