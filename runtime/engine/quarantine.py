"""An epoch that fails: find the queries that make it fail, and what to record so that the others go on.

A probe runs the planned epoch over the state as it would be with some queries suspended. That state is a value made by
the same decision and the same fold as a real suspension, and a run is only files until it is committed; so a probe
changes nothing. What probes write is removed afterwards. The search itself is runtime.control.quarantine.

Cost: a failing epoch is run again at most log2 n + 3 times for one culprit among n queries.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from optimizer.errors import AJoinError, InternalError
from optimizer.model.plan import id_of
from runtime.api import SuspendQuery
from runtime.control.batch import BatchDecision
from runtime.control.coordinator import Coordinator
from runtime.control.fold import handle
from runtime.control.quarantine import find_culprits
from runtime.control.state import State

logger = logging.getLogger("ajoin.quarantine")

STAGE_FAILED = "STAGE_FAILED"

COULD_NOT_END = "an epoch could not end with it"
"""How the reason of a suspension begins; what follows is what the failed task said."""


def may_be_a_query(failure: Exception) -> bool:
    """A task that died. Outages pass, damage is repaired, and a lost tier or log is no query's fault."""
    if isinstance(failure, AJoinError):
        return isinstance(failure, InternalError) and failure.reason == STAGE_FAILED
    return True


def decide(
    coordinator: Coordinator, failure: Exception, run: Callable[[State], object], now_ms: int
) -> BatchDecision | None:
    """The suspension of the culprits, to be recorded; None: no query is to blame. `run`: the epoch over a state,
    without committing it."""
    said = str(failure).strip().splitlines()
    reason = f"{COULD_NOT_END}: {said[-1][:300] if said else type(failure).__name__}"

    def suspension(uids: Sequence[str]) -> BatchDecision:
        return coordinator.decide_batch([SuspendQuery(id_of(uid), reason) for uid in uids], now_ms)

    def runs(kept: Sequence[str]) -> bool:
        decision = suspension([uid for uid in coordinator.state.running if uid not in kept])
        state = coordinator.state if decision.event is None else handle(coordinator.state, decision.event).state
        try:
            run(state)
        except Exception as again:
            if not may_be_a_query(again):
                raise
            logger.info("with %d queries it fails: %s", len(kept), again)
            return False
        logger.info("with %d queries it ends", len(kept))
        return True

    culprits = find_culprits(list(coordinator.state.running), runs)
    if culprits is None:
        return None
    for uid in culprits:
        logger.error("query %s is suspended: %s", id_of(uid), reason)
    return suspension(culprits)
