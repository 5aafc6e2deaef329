"""Who may write into a durable tier: one platform at a time, and the newest wins.

No lock of the operating system reaches another machine, and file systems offer no "create if absent" that all of them
share. What all have is: who reads after a write sees it. That is enough for this:

    a platform opens      writes its random id into `owner`, then reads everything, then writes a snapshot into a
                          folder of its own, its *term*: a number above all others and its id
    a platform writes     puts the object into its own term, then reads `owner`; if that is not its id, what it has
                          just written is not acknowledged, and it stops with STATE_TAKEN

Every acknowledged write is seen by the next owner: its put came before a look at `owner` that still found the old id,
hence before the new id was written, hence before the new owner read. And no late write of an old owner harms: it lands
in the old term, where the new owner does not look again; of an object that exists in several terms, the newest counts.

Two that open at the very same moment may choose the same number. The one whose id is left in `owner` is the owner; the
other one stops before it has acknowledged anything, and `after` remembers the choice should the owner die at once.

What this cannot exclude: an old owner learns of it with its next write, not before; until then it serves what it has.
Its sinks may hand over rows of epochs that were acknowledged before it lost the tier. A file system that shows an old
`owner` after a new one was written (a cache in between) breaks the argument.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from optimizer.errors import FailedPrecondition, Unavailable
from runtime.durable.tier import DurableTier
from runtime.log.log import FORMAT, check_format

LAYOUT = f"1.{FORMAT}"
OWNER, VERSION = "owner", "format"
_TERM = re.compile(r"(\d{10})-([0-9a-f]+)")
_SNAPSHOT = re.compile(r"(\d{10}-[0-9a-f]+)/log/\d+/snapshot\.json")


@dataclass(frozen=True, slots=True)
class Claim:
    """`term`: where this owner writes. `truth`: the term whose log is to be continued; None: there is none.
    `objects`: all that there was, with sizes, when it was claimed."""

    tier: DurableTier
    id: str
    term: str
    truth: str | None
    objects: Mapping[str, int]

    def check(self) -> None:
        """STATE_TAKEN if another platform has opened the tier since."""
        raw = self.tier.get(OWNER)
        if raw is None:
            raise Unavailable(
                f"the durable tier {self.tier.shown} has lost its object {OWNER!r}",
                reason="DURABLE_UNAVAILABLE",
                hint="is it mounted? nothing is lost; the platform goes on when it is back",
            )
        now = json.loads(raw)
        if now["id"] != self.id:
            raise FailedPrecondition(
                f"the durable tier {self.tier.shown} was taken over by a platform on {now['host']}",
                reason="STATE_TAKEN",
                hint="one platform per durable tier: stop this one, or that one and start this again",
            )


def take(tier: DurableTier, id: str) -> Claim:
    """Become the owner. The owner before stops at its next write."""
    _check_version(tier)
    raw = tier.get(OWNER)
    before = json.loads(raw) if raw else {}
    after = truth_of(tier.list(), before)
    tier.put(OWNER, json.dumps({"id": id, "after": after, "host": socket.gethostname()}).encode())
    objects = tier.list()
    number = max((int(t[1]) for name in objects if (t := _TERM.match(name))), default=0) + 1
    return Claim(tier, id, f"{number:010d}-{id}", truth_of(objects, before), objects)


def _check_version(tier: DurableTier) -> None:
    version = tier.get(VERSION)
    if version is None:
        tier.put(VERSION, LAYOUT.encode())
    else:
        check_format(tier.shown, version.decode(), LAYOUT)


def truth_of(objects: Mapping[str, int], owner: Mapping[str, str]) -> str | None:
    """The newest term that has a snapshot."""
    terms = {m[1] for name in objects if (m := _SNAPSHOT.fullmatch(name))}
    newest = sorted(t for t in terms if t[:10] == max(terms)[:10])
    if len(newest) < 2:
        return newest[0] if newest else None
    for term in newest:
        if term.endswith(f"-{owner.get('id')}"):
            return term
    if owner.get("after") in newest:
        return owner["after"]
    raise FailedPrecondition(
        f"several platforms opened the durable tier at the same moment: {', '.join(newest)}",
        reason="STATE_TAKEN",
        hint="remove the folder of the one that is not to count",
    )
