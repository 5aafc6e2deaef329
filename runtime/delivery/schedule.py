"""When deliveries work, and on which thread.

`OnThreads` is how a platform runs: a daemon thread for every sink that ever had a row, so a sink that is slow, waits
for a broker or hangs holds up neither epochs nor other sinks. A thread that has nothing to do waits on its own
condition; it is woken by an announcement and by the end, and while its sink fails also by the clock. It costs about
50 KB of memory while it waits (and 8 MB of addresses); a thousand sinks are a thousand threads.

`InStep` is for callers that must know that sinks have everything before the next step: replay, and tests that kill a
process at a named point. Deliveries work on the calling thread, one after the other, each until it has everything or
fails; what failed is tried again with the next announcement. A failing sink holds up no other one here either, but a
slow one does.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from runtime.delivery.delivery import Delivery, Outcome
from runtime.delivery.progress import SinkId

logger = logging.getLogger("ajoin.delivery")

FLUSH_SECONDS = 5.0
"""How long a graceful end waits for sinks that do not fail."""


class Schedule(Protocol):
    def work(self, deliveries: Mapping[SinkId, Delivery]) -> None:
        """These are all; some of them have something new to do. Raises what ended a delivering thread, if anything."""
        ...

    def finish(self) -> None:
        """Hand over what was announced, within a bounded time; then close all sinks."""
        ...

    def abandon(self) -> None:
        """As if the process died: at once, whatever hangs."""
        ...


class OnThreads:
    """`clock` gives seconds, for delays."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, flush_seconds: float = FLUSH_SECONDS) -> None:
        self._clock, self._flush_seconds = clock, flush_seconds
        self._workers: dict[SinkId, _Worker] = {}

    def work(self, deliveries: Mapping[SinkId, Delivery]) -> None:
        self._raise_deaths()
        for id in [id for id in self._workers if id not in deliveries]:
            self._workers.pop(id).stop()
        for id, delivery in deliveries.items():
            if delivery.has_work:
                try:
                    worker = self._workers.get(id) or _Worker(delivery, self._clock)
                except RuntimeError as failure:
                    logger.warning("no thread for %s until the next epoch: %s", delivery, failure)
                    return
                self._workers[id] = worker
                worker.wake()

    def finish(self) -> None:
        for worker in self._workers.values():
            worker.finish()
        deadline = self._clock() + self._flush_seconds
        for worker in self._workers.values():
            worker.thread.join(max(0.0, deadline - self._clock()))
        late = [str(w.delivery) for w in self._workers.values() if w.thread.is_alive()]
        if late:
            logger.warning("not waiting any longer for %s; the next start goes on there", ", ".join(late))
        self.abandon()
        self._raise_deaths()

    def abandon(self) -> None:
        for worker in self._workers.values():
            worker.stop()

    def _raise_deaths(self) -> None:
        for worker in self._workers.values():
            if worker.died is not None:
                raise worker.died


class _Worker:
    """One delivery and its thread. `died`: what ended the thread, if that was no end of its own."""

    def __init__(self, delivery: Delivery, clock: Callable[[], float]) -> None:
        self.delivery, self._clock = delivery, clock
        self.died: BaseException | None = None
        self._changed = threading.Condition()
        self._finishing = self._stopped = False
        name = f"ajoin-sink-{delivery.id.uid}-{delivery.id.number}"
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.thread.start()

    def wake(self) -> None:
        with self._changed:
            self._changed.notify()

    def finish(self) -> None:
        with self._changed:
            self._finishing = True
            self._changed.notify()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def _run(self) -> None:
        try:
            outcome = Outcome.IDLE
            while outcome is not Outcome.OVER and self._wait(outcome):
                outcome = self.delivery.step()
            self.delivery.close()
        except BaseException as death:
            self.died = death

    def _wait(self, last: Outcome) -> bool:
        """Until there is something to do and the delay after a failure is over; False: no more."""
        due = self._clock() + (self.delivery.delay if last is Outcome.FAILED else 0.0)
        with self._changed:
            while not self._stopped:
                left = due - self._clock()
                if left <= 0 and self.delivery.has_work:
                    return True
                if self._finishing:
                    return False
                self._changed.wait(left if left > 0 else None)
        return False


class InStep:
    def __init__(self) -> None:
        self._deliveries: Mapping[SinkId, Delivery] = {}

    def work(self, deliveries: Mapping[SinkId, Delivery]) -> None:
        self._deliveries = deliveries
        for delivery in deliveries.values():
            while delivery.has_work and delivery.step() is Outcome.DELIVERED:
                pass

    def finish(self) -> None:
        self.work(self._deliveries)
        self.abandon()

    def abandon(self) -> None:
        for delivery in self._deliveries.values():
            delivery.close()
