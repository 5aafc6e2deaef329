"""Is the platform of a store gone? Looked at from outside, by one that would take its place.

Silence alone decides, and only silence that was really heard: the sign of life (the owner and its heartbeat) did not
change while this process looked at it again and again for `PATIENCE` intervals on its own monotonic clock. Looking
begins anew when

    the sign changed                    somebody lives, or has just claimed the store and is recovering
    a look failed or took too long      the store is away, then nobody can beat
    this process slept                  whatever stopped it may have stopped the other one too
    the owner is missing                it was there before: the store is not mounted

so an outage of the store, or a pause of the whole machine, is no reason to take over. A false alarm harms no row: the
new owner's claim fences the old one (claim.py).

A platform that was closed is not waited for, if `after_stop` says so; else it is not replaced at all. A store that
never had a platform is left alone: what looks empty may be a place that is not mounted yet, so the first platform is
started by a person.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import NamedTuple

from optimizer.errors import Unavailable
from runtime.store.claim import OWNER
from runtime.store.heartbeat import Beat
from runtime.store.objects import Objects, shown

logger = logging.getLogger("ajoin.store")

PATIENCE = 3
"""Intervals without a sign of life."""


class Sign(NamedTuple):
    """`owner`: the id in the claim; None: the store has no platform."""

    owner: str | None
    beat: Beat | None

    @property
    def closed(self) -> bool:
        return self.beat is not None and self.beat.closed and self.beat.id == self.owner


class Watch:
    """Owned by one thread, which calls `look` about once an interval. `address` may be read by others."""

    def __init__(self, store: Objects, interval: float, after_stop: bool, clock: Callable[[], float]) -> None:
        self._store, self._interval, self._after_stop, self._clock = store, interval, after_stop, clock
        self._sign: Sign | None = None
        self._since = self._looked = clock()
        self._said = ""
        self.address = ""

    def look(self) -> bool:
        """True: the platform is gone."""
        began = self._clock()
        try:
            sign = self._read()
        except Unavailable as outage:
            self._sign = None
            self._say(f"cannot see whether the platform lives: {outage}")
            return False
        ended = self._clock()
        interval = max(self._interval, sign.beat.interval if sign.beat else 0.0)
        asleep = began - self._looked > 2 * interval or ended - began > interval
        self._looked = ended
        if sign.owner is None:
            self._say("the store holds no platform yet; start the first one without standby")
            return False
        if sign.beat is not None:
            self.address = sign.beat.address
        if sign.closed:
            self._say("the platform was stopped" + ("" if self._after_stop else "; waiting until it is started again"))
            return self._after_stop
        if sign != self._sign or asleep:
            self._sign, self._since = sign, ended
            self._say(f"standing by for the platform at {self.address or 'an unknown address'}")
            return False
        return began - self._since >= PATIENCE * interval

    def _read(self) -> Sign:
        raw = self._store.get(OWNER)
        if raw is None:
            if self._sign is not None:
                raise Unavailable(
                    f"the store {shown(self._store.uri)} has lost its object {OWNER!r}", reason="STORE_UNAVAILABLE"
                )
            return Sign(None, None)
        return Sign(json.loads(raw)["id"], Beat.read(self._store))

    def _say(self, text: str) -> None:
        if text != self._said:
            logger.info("%s", text)
        self._said = text
