"""A durable tier seen from outside: the state its log tells and where the newest copy of each file is.

Nothing is claimed and nothing written: the owner, if there is one, does not notice. So what is seen is a moment of a
tier that may be in use; whoever finds something missing must look again before believing it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from optimizer.errors import NotFound
from runtime.control.coordinator import Coordinator
from runtime.control.state import State
from runtime.durable.claim import OWNER, Claim, truth_of
from runtime.durable.keeper import FOLDERS, places_of
from runtime.durable.log_objects import read
from runtime.durable.shelf import Place, tier_at
from runtime.durable.tier import DurableTier
from runtime.log.codec import decode


@dataclass(frozen=True, slots=True)
class Seen:
    """`places` by name as in the state directory: "buckets/b7.bucket"."""

    tier: DurableTier
    state: State
    number: int
    records: int
    places: Mapping[str, Place]


def look(uri: str) -> Seen:
    """LOG_CORRUPT or STATE_NOT_FOUND where a platform could not go on from this tier."""
    tier = tier_at(uri)
    raw = tier.get(OWNER)
    objects = tier.list()
    truth = truth_of(objects, json.loads(raw) if raw else {})
    if truth is None:
        raise NotFound(
            f"{uri} holds no state: it has no snapshot", reason="STATE_NOT_FOUND", hint="is it the right place?"
        )
    claim = Claim(tier, "", "", truth, objects)
    number, snapshot, records = read(claim, map)
    coordinator = Coordinator(State.from_json(snapshot))
    for record in records:
        coordinator.handle(decode(record))
    found = places_of(claim)
    places = {f"{folder}/{name}": place for folder in FOLDERS for name, place in found[folder].items()}
    return Seen(tier, coordinator.state, number, len(records), places)
