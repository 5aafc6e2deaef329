"""The periodic optimizer: searches for a better plan beside the epochs, on the thread of who calls it.

Three steps. The engine thread says what the situation is, which takes no longer than a read. The search takes what it
takes, with an optimizer of its own, on values that nobody changes; query batches and epochs go on. What it has found
joins the next query batch, and is made as far as the plan has not moved on in a way that touches it (optimizer.beside).
So a batch never waits for a search, and the plan changes in one place only.
"""

from __future__ import annotations

import sys

from ajoin.platform.platform import Platform, PlatformState, only
from optimizer.beside import Found, Situation
from optimizer.optimize import CostBasedOptimizer
from runtime.api import Adopt

SWITCH = 0.0002
"""Seconds."""


class Optimizing:
    """Owned by the thread that calls `once`."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._optimizer = CostBasedOptimizer()

    def pause(self) -> float:
        """Seconds until the next run; where the optimizer is off, until it is asked whether it still is."""
        return self._platform.steering().optimize_period or 1.0

    def once(self) -> None:
        """Does nothing while the platform does not run, or the optimizer is off."""
        if self._platform.state != PlatformState.RUNNING or not self._platform.steering().optimize_period:
            return
        situation = self._platform.situation().result()
        found = None if situation is None else self.search(situation)
        only(self._platform.control(Adopt(found)).result())

    def search(self, situation: Situation) -> Found:
        """A search is Python all the way, and epochs let go of the interpreter's lock a thousand times: each time they
        would wait for it as long as the switch interval. So that is short while a search runs."""
        before = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH)
        try:
            return situation.search(self._optimizer)
        finally:
            sys.setswitchinterval(before)
