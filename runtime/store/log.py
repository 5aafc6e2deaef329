"""The log in a store: one object per record, because stores of objects cannot append.

    <term>/log/<number>/snapshot.json      the state when this part of the log began
    <term>/log/<number>/000000.json ...    the records since, one each, with checksum

A record counts when its object is there and `owner` still names this platform (runtime.store.claim). One that was put
and then failed (the owner could not be read) was not acknowledged; the next one takes its number and replaces it. If
the process dies before that, it counts after all, as a request may whose answer got lost.

There is no second log: the local directory keeps nothing that is not here.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from optimizer.errors import InternalError, Unavailable
from runtime.crashpoints import reach
from runtime.log.framing import checksum_of, frame, read_frame
from runtime.log.log import LogContents
from runtime.log.snapshots import Snapshot, frame_snapshot, parse_snapshot
from runtime.store.claim import Claim
from runtime.store.objects import shown

logger = logging.getLogger("ajoin.store")
Map = Callable[[Callable[[str], bytes | None], Iterable[str]], Iterable[bytes | None]]


class StoreLog:
    """Owned by the engine's thread. Its first write must be a snapshot, which begins the owner's term."""

    def __init__(self, claim: Claim, map: Map) -> None:
        self._claim, self._store, self._map = claim, claim.store, map
        self._number = self._checksum = 0
        self.since_snapshot = 0

    def read(self) -> LogContents:
        """What the term that counts tells; nothing, if there is none."""
        if self._claim.truth is None:
            return LogContents(None, [])
        found = read(self._claim, self._map)
        self._number, self._checksum = found.number, found.checksum
        return found.contents

    def append(self, record: Any) -> None:
        """Acknowledged when this returns."""
        line = frame(record, self._checksum)
        reach("log.append.before")
        self._store.put(f"{self._folder(self._number)}/{self.since_snapshot:06d}.json", line.encode())
        reach("store.record")
        self._claim.check()
        reach("log.append.after")
        self._checksum = checksum_of(line)
        self.since_snapshot += 1

    def snapshot(self, state: Any) -> None:
        """Begin a new part whose start is `state`; the old one is removed once the new start is safe."""
        line = frame_snapshot(self._number + 1, self._checksum, state)
        self._store.put(f"{self._folder(self._number + 1)}/snapshot.json", line.encode())
        reach("store.snapshot")
        self._claim.check()
        self._number, self._checksum, self.since_snapshot = self._number + 1, checksum_of(line), 0
        try:
            self._store.delete_folder(self._folder(self._number - 1))
        except Unavailable as outage:  # what cannot be removed now goes when the store is opened
            logger.warning("old log records stay: %s", outage)
        reach("snapshot.tidied")

    def _folder(self, number: int) -> str:
        return f"{self._claim.term}/log/{number}"

    def close(self) -> None:
        """Nothing is open."""


class PlacedLog(NamedTuple):
    """`number` of the snapshot and `checksum` of the last line: where it ends."""

    number: int
    checksum: int
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
            f"a record is missing between others in {claim.truth}/log/{number} of {shown(claim.store.uri)}",
            reason="LOG_CORRUPT",
        )
    wanted, checksum = [names[i] for i in order], snapshot.checksum
    records: list[Any] = []
    for name, data in zip(wanted, map(claim.store.get, wanted), strict=True):
        record, _, checksum = read_frame(_described(name), _there(name, data), checksum)
        records.append(record)
    return PlacedLog(number, checksum, LogContents(snapshot.state, records))


def _newest(claim: Claim, snapshots: Mapping[int, str]) -> tuple[int, Snapshot]:
    for number, name in sorted(snapshots.items(), reverse=True):
        found = parse_snapshot(_described(name), _there(name, claim.store.get(name)))
        if found.number == number:
            return number, found
        logger.warning("%s is a copy of snapshot %d and is left alone", _described(name), found.number)
    raise InternalError(
        f"no snapshot of {claim.truth}/log in {shown(claim.store.uri)} is the one its name says", reason="LOG_CORRUPT"
    )


def _described(name: str) -> str:
    return f"{name} in the store"


def _there(name: str, data: bytes | None) -> bytes:
    if data is None:
        raise InternalError(f"{_described(name)} is missing", reason="LOG_CORRUPT")
    return data
