"""The log as objects: one per record, because stores of objects cannot append.

    <term>/log/<number>/snapshot.json      the state when this part of the log began
    <term>/log/<number>/000000.json ...    the records since, one each, with checksum

Each is there before the same record is written to the local log, which is before it is acted upon. So the local
log never holds what is not here: *this* is the truth. The local log is a copy; its only use is to tell, at the next
start, which files of the local directory belong to this state (runtime.durable.restore). The other order would leave
two logs that may each have what the other lacks, and a machine that comes back with records that no other has ever
seen.

A record that was put and then failed (the owner could not be checked, the local disk was full) was not acknowledged;
the next one takes its number and replaces it. If the process dies before that, it counts after all, as a request may
whose answer got lost.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from optimizer.errors import InternalError, Unavailable
from runtime.crashpoints import reach
from runtime.durable.claim import Claim
from runtime.log.framing import read_frame
from runtime.log.log import LogContents, Place
from runtime.log.snapshots import Snapshot, parse_snapshot

logger = logging.getLogger("ajoin.durable")
Map = Callable[[Callable[[str], bytes | None], Iterable[str]], Iterable[bytes | None]]


class LogObjects:
    """Owned by the engine's thread. Lines are those of the local log."""

    def __init__(self, claim: Claim) -> None:
        self._claim, self._tier = claim, claim.tier

    def append(self, number: int, sequence: int, line: str) -> None:
        self._tier.put(f"{self._folder(number)}/{sequence:06d}.json", line.encode())
        reach("tier.record")
        self._claim.check()

    def snapshot(self, number: int, line: str) -> None:
        self._tier.put(f"{self._folder(number)}/snapshot.json", line.encode())
        reach("tier.snapshot")
        self._claim.check()

    def tidy(self, number: int) -> None:
        """Remove what snapshot `number` has replaced; what cannot be removed now goes when the tier is opened."""
        try:
            self._tier.delete_folder(self._folder(number - 1))
        except Unavailable as outage:
            logger.warning("old log records stay: %s", outage)

    def _folder(self, number: int) -> str:
        return f"{self._claim.term}/log/{number}"


class PlacedLog(NamedTuple):
    """`place`: where it ends."""

    place: Place
    contents: LogContents


def read(claim: Claim, map: Map) -> PlacedLog:
    """The log of the term that counts. A snapshot that is not the one its name says is a stray copy: it is left alone
    (runtime.log.snapshots)."""
    pattern = re.compile(rf"{claim.truth}/log/(\d+)/(snapshot|\d+)\.json")
    parts: dict[int, dict[str, str]] = {}
    for name in claim.objects:
        if m := pattern.fullmatch(name):
            parts.setdefault(int(m[1]), {})[m[2]] = name
    number, snapshot = _newest(claim, {n: names["snapshot"] for n, names in parts.items() if "snapshot" in names})
    names = parts[number]
    order = [f"{i:06d}" for i in range(len(names) - 1)]
    if names.keys() != {"snapshot", *order}:
        raise InternalError(
            f"a record is missing between others in {claim.truth}/log/{number} of {claim.tier.shown}",
            reason="LOG_CORRUPT",
        )
    wanted, checksum = [names[i] for i in order], snapshot.checksum
    records: list[Any] = []
    for name, data in zip(wanted, map(claim.tier.get, wanted), strict=True):
        record, _, checksum = read_frame(_described(name), _there(name, data), checksum)
        records.append(record)
    return PlacedLog(Place(number, checksum), LogContents(snapshot.state, records))


def _newest(claim: Claim, snapshots: Mapping[int, str]) -> tuple[int, Snapshot]:
    for number, name in sorted(snapshots.items(), reverse=True):
        found = parse_snapshot(_described(name), _there(name, claim.tier.get(name)))
        if found.number == number:
            return number, found
        logger.warning("%s is a copy of snapshot %d and is left alone", _described(name), found.number)
    raise InternalError(
        f"no snapshot of {claim.truth}/log in {claim.tier.shown} is the one its name says", reason="LOG_CORRUPT"
    )


def _described(name: str) -> str:
    return f"{name} in the durable tier"


def _there(name: str, data: bytes | None) -> bytes:
    if data is None:
        raise InternalError(f"{_described(name)} is missing", reason="LOG_CORRUPT")
    return data


def terms_of(objects: Mapping[str, int]) -> set[str]:
    return {name.partition("/")[0] for name in objects if "/" in name}
