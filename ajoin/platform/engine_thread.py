"""The thread that owns the engine.

It repeats: take what the mailbox holds, make the calls, apply the query batch (at most one changelog), run an epoch,
notify everybody who waits. All changes therefore happen between two epochs and in one order. An epoch starts
`epoch_interval` seconds after the one before. While no source has anything to read and the plan stays as it is, no
epoch is run and the time until the next look doubles, up to `idle_interval`; a request makes it short again.

An epoch that something outside keeps from running (a broker that is away, a full disk) is tried again until it runs.
An epoch that fails in any other way ends the thread: the state is FAILED, the message says why, and everything that
waits or comes later is answered with `failure`. The state in memory may then be wrong, so it is not used any more;
what was committed can still be read, and a restart recovers from there. A call that fails only fails its own request.
That another platform has taken the store (STATE_TAKEN) is a failure like others, but said as it is: callers can
go on there.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ajoin.platform.batch import Latencies, apply_batch
from ajoin.platform.catalog import Limits
from ajoin.platform.change_notifier import ChangeNotifier
from ajoin.platform.mailbox import BatchRequest, EngineCall, Mailbox
from ajoin.platform.statistics import EpochSummary, History
from optimizer.errors import AJoinError, InternalError, Unavailable
from runtime.engine.engine import Engine

log = logging.getLogger("ajoin.platform")


LONGEST_WAIT = 10.0
"""Seconds between two attempts at an epoch that something outside keeps from running."""


class PlatformState(StrEnum):
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds: how long a batch is collected, and the least and greatest time between two epoch starts."""

    batch_interval: float = 1.0
    epoch_interval: float = 0.5
    idle_interval: float = 2.0


class EngineThread:
    """`clock` gives wall-clock milliseconds, `monotonic` seconds for pacing."""

    def __init__(
        self,
        engine: Engine,
        *,
        clock: Callable[[], int],
        monotonic: Callable[[], float],
        pace: Pace,
        limits: Limits,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._monotonic = monotonic
        self._pace = pace
        self._limits = limits
        self._thread = threading.Thread(target=self._run, name="ajoin-engine", daemon=True)
        self._graceful = True
        self._abandoned = False
        self.mailbox = Mailbox(pace.batch_interval, monotonic, limits.mailbox_requests, limits.mailbox_bytes)
        self.history = History()
        self.latencies = Latencies(4 * limits.queries)
        self.changes = ChangeNotifier()
        self.state = PlatformState.STARTING
        self.message = self._waits_for = ""
        self.failure: AJoinError | None = None

    def start(self) -> None:
        self._enter(PlatformState.RUNNING)
        self._thread.start()

    def stop(self, graceful: bool) -> None:
        """Finish the running epoch, answer what waits with Unavailable, and (graceful) close the engine."""
        if self.state in (PlatformState.STARTING, PlatformState.RUNNING):
            self._graceful = graceful
            self._enter(PlatformState.STOPPING)
        self.mailbox.close(Unavailable("the platform is stopping", reason="STOPPING", hint="try again when it is back"))
        if self._thread.ident is not None:
            self._thread.join()
        elif self.state == PlatformState.STOPPING:
            self._end()
        if self.state == PlatformState.FAILED and not self._abandoned:
            self._abandoned = True
            self._engine.abandon()

    def _run(self) -> None:
        pause = self._pace.epoch_interval
        started = self._monotonic()
        changed = False  # does a change of plan wait for its first epoch?
        try:
            while self.mailbox.wait(started + pause):
                calls, batch = self.mailbox.take()
                if calls or batch:
                    self._make(calls)
                    self._apply(batch)
                    changed, pause = True, self._pace.epoch_interval
                    self.changes.notify()
                if self._monotonic() >= started + pause:
                    started = self._monotonic()
                    try:
                        busy = self._engine.has_input()
                        if due := busy or changed or self._watches_idle_streams():
                            self._run_epoch()
                    except Unavailable as outage:
                        pause, changed = self._wait_out(outage, pause), True
                        continue
                    if due:
                        self._resumed()
                        self.mailbox.epoch_ended()
                        self.changes.notify()
                    pause = self._pace.epoch_interval if busy or changed else self._longer(pause)
                    changed = False
        except Exception as failure:
            log.exception("the engine failed; the platform stops", extra={"epoch": self._engine.epoch})
            self._fail(failure)
        else:
            self._end()

    def _wait_out(self, outage: Unavailable, pause: float) -> float:
        """Something outside is missing (a broker, room on the disk): the planned epoch is tried again, less and less
        often.
        """
        if self._waits_for != outage.reason:  # every attempt may meet it at another object
            log.warning("epoch waits: %s", outage, extra={"epoch": self._engine.epoch + 1})
        self._waits_for = outage.reason
        self.message = str(outage)
        self.changes.notify()
        return min(max(2 * pause, 0.05), LONGEST_WAIT)

    def _resumed(self) -> None:
        if self.message:
            log.info("epochs go on", extra={"epoch": self._engine.epoch})
            self.message = self._waits_for = ""

    def _longer(self, pause: float) -> float:
        return min(max(2 * pause, 0.01), max(self._pace.idle_interval, self._pace.epoch_interval))

    def _watches_idle_streams(self) -> bool:
        """Only an epoch finds out that a stream has become idle, so then there are epochs without data."""
        return any(s.idle_timeout_ms is not None for s in self._engine.schemas().values())

    def _run_epoch(self) -> None:
        report = self._engine.run_epoch()
        now = self._clock()
        self.history.record(
            EpochSummary(
                report.epoch,
                now,
                report.tuples,
                report.rows,
                dict(report.seconds),
                report.latency_seconds,
                report.throttled,
            )
        )
        if self.history.wants_snapshot(now):
            self.history.snapshot(now, self._engine.streams(), self._engine.queries())

    def _make(self, calls: Sequence[EngineCall]) -> None:
        for call in calls:
            try:
                call.future.set_result(call.run())
            except AJoinError as refused:
                call.future.set_exception(refused)
            except Exception as failure:
                log.exception("a call of the engine failed")
                call.future.set_exception(InternalError(f"{type(failure).__name__}: {failure}"))

    def _apply(self, batch: Sequence[BatchRequest]) -> None:
        if not batch:
            return
        try:
            answers = apply_batch(self._engine, batch, self._clock, self._limits, self.latencies)
        except Unavailable as outage:  # nothing was changed, and nothing is wrong with what is there
            for request in batch:
                request.future.set_exception(outage)
            return
        except Exception as failure:
            error = (
                failure
                if is_taken(failure)
                else InternalError(f"the query batch failed: {failure}", reason="BATCH_FAILED")
            )
            for request in batch:
                request.future.set_exception(error)
            raise
        for request, outcomes in answers:
            request.future.set_result(outcomes)

    def _fail(self, failure: Exception) -> None:
        said = str(failure) if isinstance(failure, AJoinError) else f"{type(failure).__name__}: {failure}"
        self.message = f"failed after epoch {self._engine.epoch}: {said}"
        self.failure = (
            failure
            if isinstance(failure, AJoinError) and is_taken(failure)
            else InternalError(
                f"the platform has {self.message}",
                reason="PLATFORM_FAILED",
                hint="see the server's log; a restart recovers from the last committed epoch",
            )
        )
        self.mailbox.close(self.failure)
        self._engine.fall_silent()
        self._enter(PlatformState.FAILED)

    def _end(self) -> None:
        try:
            self._engine.close() if self._graceful else self._engine.abandon()
        except Exception as failure:
            log.exception("closing the engine failed")
            self.message = f"closing the engine failed: {failure}"
        self._enter(PlatformState.STOPPED)

    def _enter(self, state: PlatformState) -> None:
        self.state = state
        log.info("the platform is %s", state.lower(), extra={"state": state.value, "epoch": self._engine.epoch})
        self.changes.notify()


def is_taken(failure: Exception | None) -> bool:
    """Has another platform taken the store?"""
    return isinstance(failure, AJoinError) and failure.reason == "STATE_TAKEN"
