"""One sink of one query: from the result log to the sink, epoch by epoch, in order.

The result log is the truth; a sink is a copy of it. A delivery has its own progress, its own failures and its own
thread (schedule.py), and shares nothing with other deliveries that one of them could hold up.

- **Once per epoch.** Progress moves after the sink took an epoch; until then the epoch is handed over again. A sink
  replaces what it has of an epoch, so it ends up with every row exactly once.
- **Failures** are tried again after a delay that doubles from `FIRST_DELAY` to `LONGEST_DELAY` seconds. The log gets
  one line when a sink begins to fail and one when it works again; in between `status` tells.
- **Retention does not wait.** Rows that left the result log before the sink took them are skipped, counted in
  `lost_epochs`, and said once.
- **A deleted query's** sink gets everything up to the last row, then it is closed. If it fails, it is tried
  `ATTEMPTS_AFTER_END` more times, and then its rows are given up.

Rows that cannot be read (a damaged segment) are a failure like any other: if the file is put back in time, nothing is
lost.

What should be in the sink comes as a frozen `Wanted`, replaced by the engine's thread after every commit; everything
else belongs to the thread that calls `step`. Memory: the rows of one epoch of one query, while they are written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from optimizer.errors import AJoinError
from runtime.api import SinkStatus
from runtime.connectors.base import ConnectorSpec, Sink
from runtime.crashpoints import reach
from runtime.delivery.progress import Progress, ProgressFile, SinkId
from runtime.results.log import QueryTable, ResultLog
from runtime.results.segment import Segment

logger = logging.getLogger("ajoin.delivery")

FIRST_DELAY, LONGEST_DELAY = 0.5, 60.0
ATTEMPTS_AFTER_END = 10
LONGEST_ERROR = 500


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a sink should have after epoch `committed`: its query's rows up to epoch `last`.

    `rows`: how many these are. `gone`: rows up to this epoch have left the result log. `ended`: the query was deleted,
    no row comes after `last`. `segments`: what the result log keeps.
    """

    committed: int
    last: int
    rows: int
    gone: int
    ended: bool
    segments: Mapping[int, Sequence[Segment]]


class Outcome(Enum):
    """Of one step: an epoch was handed over; there was nothing to do; it failed; the delivery has ended."""

    DELIVERED = "delivered"
    IDLE = "idle"
    FAILED = "failed"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class Trouble:
    since_ms: int
    attempts: int
    error: str


class Delivery:
    """`now` gives wall-clock milliseconds. `wanted` is set by the engine's thread (`tell`), `over` by the delivering
    one."""

    def __init__(
        self,
        id: SinkId,
        spec: ConnectorSpec,
        open_sink: Callable[[ConnectorSpec], Sink],
        results: ResultLog,
        progress: ProgressFile,
        begin: Progress,
        wanted: Wanted,
        now: Callable[[], int],
    ) -> None:
        self.id, self.wanted, self.over = id, wanted, False
        self._spec, self._open_sink, self._results, self._progress, self._now = spec, open_sink, results, progress, now
        self._done = begin
        self._empty_until = 0
        self._sink: Sink | None = None
        self._trouble: Trouble | None = None
        self._tries_left = ATTEMPTS_AFTER_END
        self._succeeded_ms: int | None = None
        self._lost = 0
        self._loss_told = False

    def tell(self, wanted: Wanted) -> None:
        """From the engine's thread. If the sink had everything so far, earlier epochs need not be searched again."""
        if self._done.epoch >= self.wanted.last:
            self._empty_until = self.wanted.committed
        self.wanted = wanted

    # -- any thread -----------------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        return not self.over and (self._done.epoch < self.wanted.last or self.wanted.ended)

    @property
    def _position(self) -> int:
        """Everything up to this epoch is in the sink."""
        return max(self._done.epoch, self._empty_until)

    @property
    def delay(self) -> float:
        """Seconds to wait before the next attempt."""
        attempts = 0 if self._trouble is None else self._trouble.attempts
        return min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(attempts - 1, 30)) if attempts else 0.0

    @property
    def query_id(self) -> str:
        return self.id.uid.rpartition("#")[0]

    def status(self) -> SinkStatus:
        done, wanted, trouble = self._done, self.wanted, self._trouble
        behind = done.epoch < wanted.last
        return SinkStatus(
            self.query_id,
            self.id.uid,
            self.id.number,
            self._spec.kind,
            wanted.committed - self._position if behind else 0,
            max(0, wanted.rows - done.rows) if behind else 0,
            "" if trouble is None else trouble.error,
            None if trouble is None else trouble.since_ms,
            0 if trouble is None else trouble.attempts,
            self._succeeded_ms,
            self._lost,
        )

    # -- the delivering thread ------------------------------------------------------------------------------------

    def step(self) -> Outcome:
        """Hand over the next epoch that has rows for this sink."""
        wanted = self.wanted
        if self._done.epoch < wanted.gone:
            self._lose(wanted.gone, "left the result log before the sink took them")
        if self._done.epoch >= wanted.last:
            return self._end() if wanted.ended else Outcome.IDLE
        for epoch in range(self._position + 1, wanted.last + 1):
            try:
                rows_of_epoch = self._results.of_query(epoch, wanted.segments.get(epoch, ()), self.id.uid)
            except Exception as failure:
                gone = epoch <= self.wanted.gone  # by a newer announcement: the next step leaves it out
                return Outcome.DELIVERED if gone else self._failed(epoch, failure)
            if rows_of_epoch is not None:
                return self._hand_over(epoch, rows_of_epoch)
        self._move(wanted.last, 0)
        return Outcome.DELIVERED

    def close(self) -> None:
        sink, self._sink = self._sink, None
        if sink is not None:
            try:
                sink.close()
            except Exception as failure:
                logger.warning("closing %s: %s", self, _said(failure))

    def _hand_over(self, epoch: int, rows_of_epoch: QueryTable) -> Outcome:
        reach("delivery.begun")
        try:
            if self._sink is None:
                self._sink = self._open_sink(self._spec)
            self._sink.write(self.query_id, epoch, rows_of_epoch.table)
        except Exception as failure:
            return self._failed(epoch, failure)
        reach("delivery.sink")
        if self._trouble is not None:
            logger.info("%s works again after %d failed attempts", self, self._trouble.attempts)
        self._trouble, self._loss_told, self._succeeded_ms = None, False, self._now()
        self._move(epoch, rows_of_epoch.rows)
        return Outcome.DELIVERED

    def _move(self, epoch: int, rows: int) -> None:
        """All rows count as done with the last epoch, also those that were lost on the way there."""
        wanted = self.wanted
        self._done = Progress(epoch, wanted.rows if epoch >= wanted.last else self._done.rows + rows)
        self._progress.put(self.id, self._done)

    def _failed(self, epoch: int, failure: Exception) -> Outcome:
        before = self._trouble or Trouble(self._now(), 0, "")
        if self._trouble is None:
            logger.warning("%s failed in epoch %d and is tried again: %s", self, epoch, _said(failure))
        self._trouble = Trouble(before.since_ms, before.attempts + 1, _said(failure))
        if self.wanted.ended:
            self._tries_left -= 1
            if not self._tries_left:
                self._lose(self.wanted.last, "are given up: their query is deleted and the sink keeps failing")
                return self._end()
        return Outcome.FAILED

    def _lose(self, until: int, why: str) -> None:
        if not self._loss_told:
            logger.warning("%s: rows of epochs %d to %d %s", self, self._position + 1, until, why)
        self._loss_told = True
        self._lost += until - self._position
        self._move(until, 0)

    def _end(self) -> Outcome:
        self.close()
        self.over = True
        return Outcome.OVER

    def __str__(self) -> str:
        return f"sink {self.id.number} ({self._spec.kind}) of query {self.query_id!r}"


def _said(failure: Exception) -> str:
    text = str(failure) if isinstance(failure, AJoinError) else f"{type(failure).__name__}: {failure}"
    return text[:LONGEST_ERROR]
