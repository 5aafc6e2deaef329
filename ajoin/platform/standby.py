"""Standing by: everything is started but the engine, and the engine when its platform is gone.

    watch       until the platform of the store shows no sign of life (runtime.store.watch)
    take over   open the engine: it claims the store, which fences the old owner, and recovers

Several may stand by and all may try: the store has one owner, and whoever finds out that it is another one goes on
standing by. So does one that cannot reach the store in the middle of it.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from ajoin.platform.engine_thread import is_taken
from optimizer.errors import FailedPrecondition, Unavailable
from runtime.store.watch import Watch

log = logging.getLogger("ajoin.platform")

T = TypeVar("T")


def stand_by(watch: Watch, interval: float, wait: Callable[[float], bool], take_over: Callable[[], T]) -> T | None:
    """What `take_over` gives when it is our turn; None: `wait(seconds)` said that the end has come."""
    ended, waits_for = False, ""
    while not ended:
        if watch.look():
            if not waits_for:
                log.info("the platform is gone; taking over")
            try:
                return take_over()
            except FailedPrecondition as lost:
                if not is_taken(lost):
                    raise
                log.info("another one has taken over: %s", lost)
            except Unavailable as outage:
                if waits_for != outage.reason:
                    log.warning("cannot take over now: %s", outage)
                waits_for = outage.reason
        ended = wait(interval)
    return None


@contextmanager
def told_to_stop() -> Iterator[threading.Event]:
    """Set by SIGTERM and SIGINT, as long as the block lasts. Only on the main thread."""
    told = threading.Event()
    before = {number: signal.signal(number, lambda *_: told.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
