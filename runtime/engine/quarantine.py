"""An epoch that fails: find what makes it fail, queries or tuples, and what to record so that everybody else goes on.

A probe runs the planned epoch over the state as it would be with some queries suspended, and without some of the
tuples it reads. That state is a value made by the same decision and the same fold as a real suspension, and a run is
only files until it is committed; so a probe changes nothing. What probes write is removed afterwards. The searches
themselves are runtime.control.quarantine (queries) and runtime.control.killers (tuples).

Who is to blame, if a tuple and a query kill only together? Suspending a query can be taken back and harms nobody else;
a tuple that is left out is lost for everybody. So queries are asked first, and a tuple that makes one query crash
suspends that query. Tuples are to blame

- if the epoch fails even without any query;
- if queries alone do not explain it: more than half of them would have to go, or more than a few and leaving out a
  handful of rows helps them all. If the plan has never run an epoch, at most one row in ten: it may be the plan itself
  that cannot run;
- if there is only one query, which is all there is to lose, and a handful of rows, at most one in ten, explains it.
  More than that is what a query that dies of everything looks like, and it is suspended.

Where tuples do not explain it either, any number of queries is suspended, all of them if need be: whoever wants to harm
others can create more queries than they have, or come when there are none. A broken machine must not look like that, so
before anything is looked for, a task that does nothing has to run (`workers_run`).

What is found is recorded before the epoch is run again. So after a crash the epoch runs without it at once, and nobody
searches again.

Cost: a failing epoch is run again at most log2 n + 3 times for one culprit among n queries, or log2 n + log2 m + 6
times for one among n reads of m rows. No probe is run twice.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from optimizer.errors import AJoinError, InternalError
from optimizer.model.plan import id_of
from runtime.aggregates.plugins import PLUGIN_FAILED
from runtime.api import SuspendQuery
from runtime.control.batch import BatchDecision
from runtime.control.coordinator import Coordinator
from runtime.control.events import EpochPlanned, SkippedTuples, TuplesSkipped
from runtime.control.fold import handle
from runtime.control.killers import ReadName, find_killers
from runtime.control.quarantine import find_culprits
from runtime.control.state import State
from runtime.engine.exchange import Exchange
from runtime.operators.source import SourceReport

logger = logging.getLogger("ajoin.quarantine")

STAGE_FAILED = "STAGE_FAILED"

COULD_NOT_END = "an epoch could not end with it"
"""How the reason of a suspension begins; what follows is what the failed task said."""

KILLS = "kills the task that reads it"
"""The same for a tuple."""

FEW_QUERIES = 3
"""Culprits among queries before tuples are looked at as well."""

TENTH = 10

Run = Callable[[State, EpochPlanned], Sequence[SourceReport]]
"""The epoch over a state, without committing it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to record before the epoch is run again; nothing, if it was a failure that passes."""

    suspension: BatchDecision | None = None
    skipped: TuplesSkipped | None = None


def may_be_a_query(failure: Exception) -> bool:
    """A task that died, be it of a query, of the plug-in that it uses, or of a tuple. Outages pass, damage is repaired,
    and a lost store or log is nobody's fault."""
    if isinstance(failure, AJoinError):
        return isinstance(failure, InternalError) and failure.reason in (STAGE_FAILED, PLUGIN_FAILED)
    return True


def _last_line(failure: Exception) -> str:
    said = str(failure).strip().splitlines()
    return said[-1][:300] if said else type(failure).__name__


def workers_run(exchange: Exchange, epoch: int) -> bool:
    """Can tasks run at all?"""
    try:
        exchange.run(f"epoch {epoch}: a task that does nothing", operator.is_not, None, [0])
    except Exception as broken:
        logger.error("not even a task that does nothing runs: %s", broken)
        return False
    return True


class Investigation:
    """Of one failure of the planned epoch. `reads`: what the epoch reads."""

    def __init__(
        self,
        coordinator: Coordinator,
        planned: EpochPlanned,
        reads: Sequence[ReadName],
        failure: Exception,
        run: Run,
        now_ms: int,
    ) -> None:
        self._coordinator, self._planned, self._run, self._now = coordinator, planned, run, now_ms
        known = {ReadName(skip.stream, skip.read) for skip in planned.skipped if skip.what.end is None}
        self._reads = [read for read in reads if read not in known]
        self._said = _last_line(failure)
        self._said_with: dict[frozenset[str], str] = {}
        self._probed: dict[tuple[frozenset[str], tuple[SkippedTuples, ...]], Mapping[ReadName, int] | None] = {}

    def verdict(self) -> Verdict | None:
        """None: neither queries nor tuples are to blame, and the failure stands."""
        uids = list(self._coordinator.state.running)
        if self._ends(uids):
            return Verdict()
        if not self._ends(()):
            return self._blame_tuples((), only_rows=False)
        tenth = self._rows(()) // TENTH
        if len(uids) == 1:
            return self._blame_tuples(uids, only_rows=True, at_most=tenth) or self._blame(uids)
        few = find_culprits(uids, self._ends, min(FEW_QUERIES, max(1, len(uids) // 2)))
        state = self._coordinator.state
        has_run = state.executed.version == state.plan.version
        return (
            self._blame(few)
            or self._blame_tuples(uids, only_rows=True, at_most=None if has_run else tenth)
            or self._blame(find_culprits(uids, self._ends, len(uids)))
        )

    def _blame(self, culprits: Sequence[str] | None) -> Verdict | None:
        if not culprits:
            return None
        for uid in culprits:
            logger.error("query %s is suspended: %s", id_of(uid), self._reason(uid))
        return Verdict(suspension=self._suspension(culprits))

    def _blame_tuples(self, uids: Sequence[str], *, only_rows: bool, at_most: int | None = None) -> Verdict | None:
        """Tuples without which the epoch ends with these queries."""
        reason = f"{KILLS}: {self._said}"
        found = find_killers(self._reads, lambda skips: self._probe(uids, skips), reason, only_rows=only_rows)
        if not found or (at_most is not None and len(found) > at_most):
            return None
        for skip in found:
            where = "whole" if skip.what.end is None else f"row {skip.what.first}"
            logger.error("stream %s, read %d, %s is skipped: %s", skip.stream, skip.read, where, reason)
        return Verdict(skipped=TuplesSkipped(epoch=self._planned.epoch, skipped=found))

    def _suspension(self, uids: Sequence[str]) -> BatchDecision:
        return self._coordinator.decide_batch([SuspendQuery(id_of(uid), self._reason(uid)) for uid in uids], self._now)

    def _reason(self, uid: str) -> str:
        """With the words of the smallest run that failed with this query: if there are several culprits, its own."""
        runs = [kept for kept in self._said_with if uid in kept]
        said = self._said_with[min(runs, key=len)] if runs else self._said
        return f"{COULD_NOT_END}: {said}"

    # -- probes -----------------------------------------------------------------------------------------------------

    def _ends(self, kept: Sequence[str]) -> bool:
        return self._probe(kept, ()) is not None

    def _rows(self, kept: Sequence[str]) -> int:
        return sum((self._probe(kept, ()) or {}).values())

    def _probe(self, kept: Sequence[str], skipped: Sequence[SkippedTuples]) -> Mapping[ReadName, int] | None:
        """Rows per read, if the epoch ends with these queries and without these tuples."""
        key = (frozenset(kept), tuple(skipped))
        if key not in self._probed:
            self._probed[key] = self._try(kept, skipped)
        return self._probed[key]

    def _try(self, kept: Sequence[str], skipped: Sequence[SkippedTuples]) -> Mapping[ReadName, int] | None:
        now = self._coordinator.state
        decision = self._suspension([uid for uid in now.running if uid not in kept])
        state = now if decision.event is None else handle(now, decision.event).state
        try:
            reports = self._run(state, replace(self._planned, skipped=(*self._planned.skipped, *skipped)))
        except Exception as again:
            if not may_be_a_query(again):
                raise
            logger.info("with %d queries and %d parts left out it fails: %s", len(kept), len(skipped), again)
            if not skipped:
                self._said_with[frozenset(kept)] = _last_line(again)
            return None
        logger.info("with %d queries and %d parts left out it ends", len(kept), len(skipped))
        rows: dict[ReadName, int] = {}
        for report in reports:
            read = ReadName(report.stream, report.read)
            rows[read] = max(report.rows, rows.get(read, 0))
        return rows
