"""When a change of the plan is prepared, and when it is made; see runtime.engine.preparation for how.

One change at a time. A change that rebuilds little is made at once: its first portion is everything. Whatever goes
wrong costs the preparation and nothing else: the old plan goes on, and the optimizer may want the change again.
"""

from __future__ import annotations

import logging
import statistics
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from optimizer.errors import AJoinError, Unavailable
from optimizer.model.plan import Plan
from optimizer.policy.moves import Moves
from runtime.control.state import State
from runtime.crashpoints import reach
from runtime.engine.compiled import CompiledPlans
from runtime.engine.parts import Parts
from runtime.engine.preparation import SHARE, Preparation
from runtime.engine.stage_context import StageContext
from runtime.execution.physical import Physical

logger = logging.getLogger("ajoin.engine")

REMEMBERED = 9
"""Epochs whose median says how long a portion may take."""


class Preparing:
    """Owned by the engine's thread. `switch` decides, records and handles the change when all is prepared."""

    def __init__(self, parts: Parts, compiled: CompiledPlans, switch: Callable[[Moves], None]) -> None:
        self._parts, self._compiled, self._switch = parts, compiled, switch
        self._seconds: deque[float] = deque(maxlen=REMEMBERED)
        self._goal: tuple[Plan, Moves, Physical] | None = None
        self._switched = False
        self._began = 0
        self._begun = 0
        self.current: Preparation | None = None

    @property
    def prepared(self) -> Preparation | None:
        """What the next epoch has to change to, if all of it is there."""
        return self.current if self._switched else None

    @property
    def next_bucket(self) -> int:
        """Numbers of buckets below it are given away."""
        return 0 if self.current is None else self.current.next_bucket

    @property
    def files(self) -> frozenset[str]:
        """That are needed, although no record lists them."""
        return frozenset() if self.current is None else self.current.files

    def begin(self, moves: Moves) -> None:
        """Instead of what was being prepared."""
        self.discard()
        state = self._parts.coordinator.state
        self._switched = False
        self._began, self._begun = state.epoch, self._begun + 1
        # epochs tell openings apart: what one has left and the log lists was begun in an earlier epoch
        self.current = Preparation(moves, self._parts.exchange, f"p{state.epoch}x{self._begun}")
        self._step(state)

    def after_epoch(self, state: State, seconds: float) -> None:
        """An epoch of so many seconds has been committed."""
        self._seconds.append(seconds)
        prepared = self.current
        if prepared is None:
            return
        if self._switched:
            self._done(prepared, state)
        else:
            self._step(state)

    def discard(self) -> None:
        if self.current is not None:
            self.current.discard()
        self.current, self._goal, self._switched = None, None, False

    def _step(self, state: State) -> None:
        prepared = self.current
        assert prepared is not None
        try:
            goal = self._aim(prepared, state)
            if goal is None:
                logger.info("a change of the plan is not prepared any further: the plan has moved on")
                self.discard()
                return
            plan, _, physical = goal
            parts = self._parts
            instance = f"{parts.instance}-{prepared.mark}-{state.plan.version}"
            context = StageContext(state, plan, physical, parts.exchange, parts.sources.opened, parts.sharing, instance)
            budget = SHARE * statistics.median(self._seconds) if self._seconds else 0.0
            ready = prepared.step(context, self._compiled.of(state.executed, state), goal, budget)
        except Unavailable as outage:
            logger.warning("preparing a change of the plan waits: %s", outage)
            return
        except Exception as failure:
            logger.warning("a change of the plan could not be prepared: %s", failure, exc_info=not _known(failure))
            self.discard()
            return
        reach("preparation.portion")
        if ready:
            self._finish(prepared)

    def _finish(self, prepared: Preparation) -> None:
        try:
            self._switch(prepared.moves)
        except Unavailable as outage:
            logger.warning("a change of the plan that is prepared waits: %s", outage)
            return
        self._switched = True
        logger.info("a change of the plan was prepared in %d portions since epoch %d", prepared.portions, self._began)

    def _aim(self, prepared: Preparation, state: State) -> tuple[Plan, Moves, Physical] | None:
        """What would become of the running plan now."""
        applied = prepared.moves.applied(state.plan, state.plan_pins)
        if applied is None:
            return None
        plan, moves = applied
        if self._goal is None or self._goal[0] != plan:
            compiled = CompiledPlans(self._parts.sharing)  # its version may be that of another plan tomorrow
            self._goal = plan, moves, compiled.of(plan, replace(state, plan=plan))
        return self._goal

    def _done(self, prepared: Preparation, state: State) -> None:
        """What the log does not list by now, it never will."""
        for name in sorted(prepared.files - state.bucket_files):
            self._parts.exchange.drop(name)
        self.current, self._goal, self._switched = None, None, False


def _known(failure: Exception) -> bool:
    return isinstance(failure, AJoinError)
