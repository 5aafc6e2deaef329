"""Tells other threads that the engine thread may have changed something; they then look for themselves."""

from __future__ import annotations

import threading
from collections.abc import Callable


class ChangeNotifier:
    """Any thread may wait or listen; the engine thread notifies."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._listeners: list[Callable[[], None]] = []

    def notify(self) -> None:
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
