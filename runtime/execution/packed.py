"""What every stage of a plan version needs again: pickled once on the driver, unpickled once per worker.

The specifications of a thousand queries take tens of milliseconds to pickle and again to unpickle, and they only
change with the plan. A Packed value travels as its bytes and a key; a worker that has seen the key uses what it
already has.
"""

from __future__ import annotations

import pickle
import uuid
from collections import OrderedDict
from typing import Any, Generic, TypeVar

T = TypeVar("T")

KEPT = 8
_SEEN: OrderedDict[str, Any] = OrderedDict()


class Packed(Generic[T]):
    """Immutable, like the value it holds."""

    def __init__(self, value: T) -> None:
        self.value = value
        self._key = uuid.uuid4().hex
        self._bytes: bytes | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        if self._bytes is None:
            self._bytes = pickle.dumps(self.value)
        return _unpack, (self._key, self._bytes)


def _unpack(key: str, data: bytes) -> Packed[Any]:
    if key not in _SEEN:
        packed: Packed[Any] = Packed(pickle.loads(data))
        packed._key, packed._bytes = key, data
        _SEEN[key] = packed
        while len(_SEEN) > KEPT:
            _SEEN.popitem(last=False)
    found: Packed[Any] = _SEEN[key]
    return found
