"""What every stage of a plan version needs again: pickled once on the driver, unpickled once per worker.

The specifications of a thousand queries take tens of milliseconds to pickle and again to unpickle, and they only
change with the plan. A ShippedOnce travels as its bytes and a key; a worker that has seen the key uses what it
already has.
"""

from __future__ import annotations

import pickle
import uuid
from typing import Any, Generic, TypeVar

from runtime.machine.cache import BoundedCache

T = TypeVar("T")


class ShippedOnce(Generic[T]):
    """Immutable, like the value it holds."""

    def __init__(self, value: T) -> None:
        self.value = value
        self._key = uuid.uuid4().hex
        self._bytes: bytes | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        if self._bytes is None:
            self._bytes = pickle.dumps(self.value)
        return _arrived, (self._key, self._bytes)


_SEEN: BoundedCache[str, ShippedOnce[Any]] = BoundedCache(8)


def _arrived(key: str, data: bytes) -> ShippedOnce[Any]:
    def unpickled() -> ShippedOnce[Any]:
        shipped: ShippedOnce[Any] = ShippedOnce(pickle.loads(data))
        shipped._key, shipped._bytes = key, data
        return shipped

    return _SEEN.get_or_make(key, unpickled)
