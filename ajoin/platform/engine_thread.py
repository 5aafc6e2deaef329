"""The thread that owns the engine, and how everybody else hears of what it did.

It repeats: take what the mailbox holds, do the commands, apply the controls as one query batch (at most one
changelog), run an epoch, tell everybody who listens. All changes therefore happen between two epochs and in
one order. An epoch starts `epoch_interval` seconds after the one before. While no source has anything to read
and the plan stays as it is, no epoch is run and the time until the next look doubles, up to `idle_interval`;
anything that happens at the door makes it short again.

An epoch that fails ends the thread: the state is FAILED, the message says why, and everything that waits or
comes later is answered with InternalError. Going on with a state nobody vouches for would be worse; what was
committed can still be read, and a restart recovers from there. A command that fails only fails its own
request.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ajoin.platform.batch import Latencies, apply_batch
from ajoin.platform.catalog import Limits
from ajoin.platform.mailbox import Command, Controls, Mailbox
from ajoin.platform.statistics import EpochStatistics, History
from optimizer.errors import AJoinError, InternalError, Unavailable
from runtime.engine.engine import Engine

log = logging.getLogger("ajoin.platform")


LONGEST_WAIT = 10.0
"""Seconds between two attempts at an epoch that something outside keeps from running."""


class State(StrEnum):
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


class News:
    """Tells waiting threads and listeners that something may have changed; what, they find out by looking."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._listeners: list[Callable[[], None]] = []

    def tell(self) -> None:
        with self._changed:
            self._changed.notify_all()
            listeners = list(self._listeners)
        for listener in listeners:
            listener()

    def add_listener(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` from the engine thread (it must not block); returns how to take it away again."""

        def remove() -> None:
            with self._changed:
                if listener in self._listeners:
                    self._listeners.remove(listener)

        with self._changed:
            self._listeners.append(listener)
        return remove

    def wait_until(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        with self._changed:
            return self._changed.wait_for(condition, timeout)


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
        self.mailbox = Mailbox(pace.batch_interval, monotonic)
        self.history = History()
        self.latencies = Latencies(4 * limits.queries)
        self.news = News()
        self.state = State.STARTING
        self.message = ""

    def start(self) -> None:
        self._enter(State.RUNNING)
        self._thread.start()

    def stop(self, graceful: bool) -> None:
        """Finish the running epoch, answer what waits with Unavailable, and (graceful) close the engine."""
        if self.state in (State.STARTING, State.RUNNING):
            self._graceful = graceful
            self._enter(State.STOPPING)
        self.mailbox.close(Unavailable("the platform is stopping", reason="STOPPING", hint="try again when it is back"))
        if self._thread.ident is not None:
            self._thread.join()
        elif self.state == State.STOPPING:
            self._end()
        if self.state == State.FAILED and not self._abandoned:
            self._abandoned = True
            self._engine.abandon()

    def _run(self) -> None:
        pause = self._pace.epoch_interval
        started = self._monotonic()
        changed = False  # does a change of plan wait for its first epoch?
        try:
            while self.mailbox.wait(started + pause):
                commands, controls = self.mailbox.take()
                if commands or controls:
                    self._do(commands)
                    self._apply(controls)
                    changed, pause = True, self._pace.epoch_interval
                    self.news.tell()
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
                        self.news.tell()
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
        if self.message != str(outage):
            log.warning("epoch waits: %s", outage, extra={"epoch": self._engine.epoch + 1})
        self.message = str(outage)
        self.news.tell()
        return min(max(2 * pause, 0.05), LONGEST_WAIT)

    def _resumed(self) -> None:
        if self.message:
            log.info("epochs go on", extra={"epoch": self._engine.epoch})
            self.message = ""

    def _longer(self, pause: float) -> float:
        return min(max(2 * pause, 0.01), max(self._pace.idle_interval, self._pace.epoch_interval))

    def _watches_idle_streams(self) -> bool:
        """Only an epoch finds out that a stream has become idle, so then there are epochs without data."""
        return any(s.idle_timeout_ms is not None for s in self._engine.schemas().values())

    def _run_epoch(self) -> None:
        report = self._engine.run_epoch()
        now = self._clock()
        self.history.record(
            EpochStatistics(
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

    def _do(self, commands: Sequence[Command]) -> None:
        for command in commands:
            try:
                command.future.set_result(command.run())
            except AJoinError as refused:
                command.future.set_exception(refused)
            except Exception as failure:
                log.exception("a command failed")
                command.future.set_exception(InternalError(f"{type(failure).__name__}: {failure}"))

    def _apply(self, controls: Sequence[Controls]) -> None:
        if not controls:
            return
        try:
            answers = apply_batch(self._engine, controls, self._clock, self._limits, self.latencies)
        except Unavailable as outage:  # nothing was changed, and nothing is wrong with what is there
            for request in controls:
                request.future.set_exception(outage)
            return
        except Exception as failure:
            error = InternalError(f"the query batch failed: {failure}", reason="BATCH_FAILED")
            for request in controls:
                request.future.set_exception(error)
            raise
        for request, outcomes in answers:
            request.future.set_result(outcomes)

    def _fail(self, failure: Exception) -> None:
        said = str(failure) if isinstance(failure, AJoinError) else f"{type(failure).__name__}: {failure}"
        self.message = f"failed after epoch {self._engine.epoch}: {said}"
        self.mailbox.close(
            InternalError(
                f"the platform has {self.message}",
                reason="PLATFORM_FAILED",
                hint="see the server's log; a restart recovers from the last committed epoch",
            )
        )
        self._enter(State.FAILED)

    def _end(self) -> None:
        try:
            self._engine.close() if self._graceful else self._engine.abandon()
        except Exception as failure:
            log.exception("closing the engine failed")
            self.message = f"closing the engine failed: {failure}"
        self._enter(State.STOPPED)

    def _enter(self, state: State) -> None:
        self.state = state
        log.info("the platform is %s", state.lower(), extra={"state": state.value, "epoch": self._engine.epoch})
        self.news.tell()
