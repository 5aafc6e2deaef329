"""A store read from outside: the state its log tells, and which objects there are.

Nothing is claimed and nothing written: the owner, if there is one, does not notice. So this is a moment of a store that
may be in use; a caller that finds something missing must read again before it reports that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from optimizer.errors import NotFound
from runtime.control.fold import handle
from runtime.control.state import State
from runtime.log.codec import decode
from runtime.store.claim import OWNER, Claim, truth_of
from runtime.store.log import read
from runtime.store.objects import Objects, objects_at, shown


@dataclass(frozen=True, slots=True)
class StoreContents:
    """`objects` with their sizes. `number` counts snapshots. `truth`: the term whose log this is."""

    store: Objects
    state: State
    truth: str
    number: int
    records: int
    objects: Mapping[str, int]

    @property
    def snapshot_bytes(self) -> int:
        return self.objects.get(f"{self.truth}/log/{self.number}/snapshot.json", 0)

    @property
    def log_bytes(self) -> int:
        """Of the records since."""
        start = f"{self.truth}/log/{self.number}/"
        return sum(size for name, size in self.objects.items() if name.startswith(start)) - self.snapshot_bytes


def read_store(uri: str) -> StoreContents:
    """LOG_CORRUPT or STATE_NOT_FOUND where a platform could not go on from this store."""
    store = objects_at(uri)
    raw = store.get(OWNER)
    objects = store.list()
    truth = truth_of(objects, json.loads(raw) if raw else {})
    if truth is None:
        raise NotFound(
            f"{shown(uri)} holds no state: it has no snapshot", reason="STATE_NOT_FOUND", hint="is it the right place?"
        )
    found = read(Claim(store, "", "", truth, objects), map)
    state = State.from_json(found.contents.snapshot)
    for record in found.contents.records:
        state = handle(state, decode(record)).state
    return StoreContents(store, state, truth, found.number, len(found.contents.records), objects)
