"""The log as objects: one per record, because stores of objects cannot append.

    <term>/log/<number>/snapshot.json      the state when this part of the log began
    <term>/log/<number>/000000.json ...    the records since, one each, with checksum

Each is there before the same record is written to the local log, which is before anybody acts upon it. So the local
log never holds what is not here: *this* is the truth, the local one is a copy that saves nothing but suspicion (see
runtime.durable.restore). The other order would leave two logs that may each have what the other lacks, and a machine
that comes back with records nobody else has ever seen.

A record that was put and then failed (the owner could not be checked, the local disk was full) was not acknowledged;
the next one takes its number and replaces it. If the process dies before that, it counts after all, as a request may
whose answer got lost.
"""

from __future__ import annotations

import json
import logging
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from optimizer.errors import InternalError, Unavailable
from runtime.crashpoints import reach
from runtime.durable.claim import Claim

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


def read(claim: Claim, map: Map) -> tuple[int, Any, list[Any]]:
    """(number, snapshot, records after it) of the term that counts."""
    pattern = re.compile(rf"{claim.truth}/log/(\d+)/(snapshot|\d+)\.json")
    found: dict[int, dict[str, str]] = {}
    for name in claim.objects:
        if m := pattern.fullmatch(name):
            found.setdefault(int(m[1]), {})[m[2]] = name
    number = max(n for n, names in found.items() if "snapshot" in names)
    names = found[number]
    order = [f"{i:06d}" for i in range(len(names) - 1)]
    if names.keys() != {"snapshot", *order}:
        raise InternalError(
            f"a record is missing between others in {claim.truth}/log/{number} of {claim.tier.uri}",
            reason="LOG_CORRUPT",
        )
    wanted = [names["snapshot"], *(names[i] for i in order)]
    snapshot, *records = (_value(name, data) for name, data in zip(wanted, map(claim.tier.get, wanted), strict=True))
    return number, snapshot, records


def _value(name: str, data: bytes | None) -> Any:
    body = (data or b"")[9:].rstrip(b"\n")
    if data is None or data[:9] != b"%08x " % zlib.crc32(body):
        raise InternalError(f"{name} in the durable tier is damaged", reason="LOG_CORRUPT")
    return json.loads(body)


def terms_of(objects: Mapping[str, int]) -> set[str]:
    return {name.partition("/")[0] for name in objects if "/" in name}
