"""A platform shows that it lives: an object in its store that changes every few seconds.

The object says who beats (the id of the claim), how often, where it can be called, and counts. Nobody compares clocks
of two machines: who watches (watch.py) only sees whether the object changes. The first beat comes right after the
claim, so an opening that takes long is no silence; they come from a thread of their own, so an epoch that takes long is
none either. Before each beat the owner is looked up. So a platform that was replaced while it slept finds out after one
interval at most, even when it has nothing to write, and `check` then says so to the thread that owns the engine.

A platform that is closed says so with a last beat. One that has lost its store, or was killed, says nothing. An old
owner may still overwrite the object once, between a look and a beat: that is one more change, and a last beat counts
only if its id is the owner's.

Costs a look and a put per interval. While the store is away there are no beats, and nothing else happens.
"""

from __future__ import annotations

import json
import logging
import threading
from dataclasses import asdict, dataclass
from typing import Self

from optimizer.errors import AJoinError, Unavailable
from runtime.store.claim import OWNER, Claim
from runtime.store.objects import Objects, shown

logger = logging.getLogger("ajoin.store")

HEARTBEAT = "heartbeat"
LONGEST_END = 10.0
"""Seconds that closing waits for the last beat."""


@dataclass(frozen=True, slots=True)
class Pulse:
    """Seconds between two beats, and the address at which the platform can be called (empty: not known)."""

    interval: float
    address: str = ""


@dataclass(frozen=True, slots=True)
class Beat:
    """`id`: the claim's. `closed`: there will be no more."""

    id: str
    count: int
    interval: float
    address: str
    closed: bool = False

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def read(cls, store: Objects) -> Self | None:
        """None: nobody has ever beaten. Whatever else a later version writes is left alone."""
        raw = store.get(HEARTBEAT)
        if raw is None:
            return None
        told = json.loads(raw)
        return cls(told["id"], told["count"], told["interval"], told["address"], told["closed"])


def note_predecessor(store: Objects) -> None:
    """Tell whoever opens a store that somebody may still run on it. The claim fences that one; nobody is asked."""
    try:
        raw, beat = store.get(OWNER), Beat.read(store)
        owner = json.loads(raw or b"{}")
    except (ValueError, KeyError):  # of another version, which the claim says better
        return
    if beat is not None and not beat.closed and owner.get("id") == beat.id:
        logger.warning(
            "the platform on %s%s has not said that it has ended; if it still runs, it loses the store %s and stops",
            owner["host"],
            f" ({beat.address})" if beat.address else "",
            shown(store.uri),
        )


class Heart:
    """Beats from `start` to `stop`. Its thread alone writes the object; others may ask `check`."""

    def __init__(self, claim: Claim, pulse: Pulse) -> None:
        self._claim, self._pulse = claim, pulse
        self._ended = threading.Event()
        self._closed = False
        self._lost: AJoinError | None = None
        self._thread = threading.Thread(target=self._run, name="ajoin-heart", daemon=True)

    def start(self) -> Self:
        self._thread.start()
        return self

    def check(self) -> None:
        """STATE_TAKEN if the last beat found another owner."""
        if self._lost is not None:
            raise self._lost

    def close(self) -> None:
        """End with a beat that says so: from now on this platform writes nothing."""
        self._closed = True
        self.stop()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(LONGEST_END)

    def _run(self) -> None:
        count, waits = 0, False
        while True:
            count += 1
            closed = self._ended.is_set()
            try:
                self._claim.check()
                if not closed or self._closed:
                    self._beat(count, closed)
                if waits:
                    logger.info("heartbeats go on")
                waits = False
            except Unavailable as outage:
                if not waits:
                    logger.warning("no heartbeat: %s", outage)
                waits = True
            except AJoinError as lost:
                self._lost = lost
                return
            if closed:
                return
            self._ended.wait(self._pulse.interval)

    def _beat(self, count: int, closed: bool) -> None:
        beat = Beat(self._claim.id, count, self._pulse.interval, self._pulse.address, closed)
        self._claim.store.put(HEARTBEAT, beat.to_json())


class NoHeart:
    """Nobody watches: there is no store, or nobody asked for beats."""

    def check(self) -> None:
        """Nothing to find out."""

    def close(self) -> None:
        """Nothing to say."""

    def stop(self) -> None:
        """Nothing to stop."""
