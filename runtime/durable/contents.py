"""A durable tier read from outside: the state its log tells and where the newest copy of each file is.

Nothing is claimed and nothing written: the owner, if there is one, does not notice. So this is a moment of a tier that
may be in use; a caller that finds something missing must read again before it reports that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from optimizer.errors import NotFound
from runtime.control.fold import handle
from runtime.control.state import State
from runtime.durable.cached_folder import StoredObject, tier_at
from runtime.durable.claim import OWNER, Claim, truth_of
from runtime.durable.log_objects import read
from runtime.durable.tier import DurableTier
from runtime.durable.tiered import newest_copies
from runtime.log.codec import decode


@dataclass(frozen=True, slots=True)
class TierContents:
    """`objects` by name as in the state directory: "buckets/b7.bucket". `number` counts snapshots."""

    tier: DurableTier
    state: State
    number: int
    records: int
    objects: Mapping[str, StoredObject]


def read_tier(uri: str) -> TierContents:
    """LOG_CORRUPT or STATE_NOT_FOUND where a platform could not go on from this tier."""
    tier = tier_at(uri)
    raw = tier.get(OWNER)
    objects = tier.list()
    truth = truth_of(objects, json.loads(raw) if raw else {})
    if truth is None:
        raise NotFound(
            f"{tier.shown} holds no state: it has no snapshot", reason="STATE_NOT_FOUND", hint="is it the right place?"
        )
    claim = Claim(tier, "", "", truth, objects)
    (number, _), (snapshot, records) = read(claim, map)
    state = State.from_json(snapshot)
    for record in records:
        state = handle(state, decode(record)).state
    copies = {
        f"{folder}/{name}": stored for folder, files in newest_copies(claim).items() for name, stored in files.items()
    }
    return TierContents(tier, state, number, len(records), copies)
