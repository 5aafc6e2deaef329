"""Work that an epoch has left for later ones, because a query had used up what it may take of an epoch.

A `Postponed` says everything that is needed to do the work at any later time, whatever has become of the plan: the
query as it was placed then (a plan with this query alone), the buckets that were to meet, and how far each task came.
The buckets it refers to are *pinned*: their files stay until the work is done, even if the plan or the retention would
let them go, and a pin holds the reference as it was, because views are made anew by plan changes.

Until the work is done, the query's own watermark goes no further than its streams had come before that epoch. So nobody
is told that a window is complete while some of its rows are postponed; rows come later, exact. A query that is always
some epochs behind still moves on, because its oldest work is done first. A query that ends takes its postponed work
with it, and its `active_until` says which windows were complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from optimizer.model.plan import JoinNode, Plan
from runtime.buckets.refs import BucketRef
from runtime.operators.join import InputBucket
from runtime.operators.pace import Rest


class AliveSlots(NamedTuple):
    """The query's bit in buckets of this group and plan version, as words of a query set."""

    group: int
    version: int
    words: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Postponed:
    """Of query `uid`, left by epoch `epoch`. `complete_until`: the watermark of its streams before that epoch; work
    that was waiting then says for itself how far the query is complete."""

    number: int
    uid: str
    epoch: int
    complete_until: int | None
    plan: Plan
    left: tuple[InputBucket, ...]
    right: tuple[InputBucket, ...]
    pins: tuple[int, ...]
    alive: tuple[AliveSlots, ...]
    rests: tuple[Rest, ...]

    @property
    def root(self) -> JoinNode:
        """The query's last join, at which its rows are made."""
        root = self.plan.by_uid[self.uid].root
        assert isinstance(root, JoinNode)
        return root


class Pin(NamedTuple):
    number: int
    bucket: BucketRef


class Resumed(NamedTuple):
    """What is left of postponed work after an epoch; nothing: it is done."""

    number: int
    rests: tuple[Rest, ...]


Work = Mapping[int, Postponed]
"""By number, oldest first."""


def after(work: Work, added: Iterable[Postponed], resumed: Iterable[Resumed], running: Iterable[str]) -> Work:
    """What is postponed after an epoch."""
    all_of_it = {**work, **{p.number: p for p in added}}
    for number, rests in resumed:
        all_of_it[number] = replace(all_of_it[number], rests=rests)
    uids = frozenset(running)
    return {n: p for n, p in all_of_it.items() if p.rests and p.uid in uids}


def behind(work: Work) -> dict[str, int]:
    """Per query that has postponed work: of which epoch the oldest is."""
    since: dict[str, int] = {}
    for p in work.values():
        since[p.uid] = min(p.epoch, since.get(p.uid, p.epoch))
    return since


def held_back(work: Work, uid: str, watermark: int | None) -> int | None:
    """The query's watermark, if its streams are at `watermark`."""
    for p in work.values():
        if p.uid == uid:
            if p.complete_until is None or watermark is None:
                return None
            watermark = min(watermark, p.complete_until)
    return watermark


def pinned_files(pins: Iterable[BucketRef]) -> frozenset[str]:
    return frozenset(file for ref in pins for file in ref.files)
