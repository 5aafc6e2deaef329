"""Jobs that are done again and again on a thread of their own: the periodic optimizer, reading the control topic.

A job that fails is logged and tried again after the next pause; only `stop` ends it. What it depends on (a broker, the
store) may come back, and the job must then go on without a restart of the platform.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from optimizer.errors import AJoinError

log = logging.getLogger("ajoin.periodic")


class Periodic:
    """Waits `pause()` seconds, does `job`, and so on. `wait(seconds)` returns True when the end has come earlier."""

    def __init__(
        self,
        name: str,
        job: Callable[[], None],
        pause: Callable[[], float],
        wait: Callable[[float], bool] | None = None,
    ) -> None:
        self._name = name
        self._job = job
        self._pause = pause
        self._stopped = threading.Event()
        self._wait = wait or self._stopped.wait
        self._thread = threading.Thread(target=self.run, name=f"ajoin-{name.replace(' ', '-')}", daemon=True)

    @property
    def stopped(self) -> bool:
        """A job that takes long looks at this and returns."""
        return self._stopped.is_set()

    def run(self) -> None:
        while not self._wait(self._pause()):
            try:
                self._job()
            except AJoinError as failure:
                log.warning("%s, next try in %.1f s: %s", self._name, self._pause(), failure)
            except Exception:
                log.exception("%s failed, next try in %.1f s", self._name, self._pause())

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float | None = None) -> None:
        """Wait until the running job has returned, `timeout` seconds at most."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def __enter__(self) -> Periodic:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
