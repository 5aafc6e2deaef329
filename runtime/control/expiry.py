"""Which results have been kept long enough.

The oldest epochs go when there are more epochs, or more bytes, than retention allows; those of the newest epoch stay,
or they could never be read. That an epoch's results are gone is in the log before its files are removed
(`ResultsExpired`): a reader with an older cursor is told what it missed, even if the process dies in between, and
a file that is listed and not there is always damage.

Every such record costs a write to the log, so when some must go, a few more go with them: up to a sixteenth of what
retention allows, at most `TOGETHER` epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from runtime.api import LAST_SEQUENCE, Cursor
from runtime.control.events import LostResults, ResultsExpired
from runtime.control.state import QueryRecord
from runtime.results.segment import Segment, SegmentIndex

TOGETHER = 32
SHARE = 16


def expiring(
    segments: Mapping[int, Sequence[Segment]], epoch: int, most_epochs: int, most_bytes: int
) -> tuple[int, ...]:
    """Epochs whose results go now."""
    total = sum(x.bytes for of_epoch in segments.values() for x in of_epoch)
    gone: list[int] = []
    for e in sorted(segments):
        spare = SHARE if gone and len(gone) < TOGETHER else 0
        few = most_epochs - (most_epochs // spare if spare else 0)
        little = most_bytes - (most_bytes // spare if spare else 0)
        if e > epoch - few and (total <= little or e == epoch):
            break
        total -= sum(x.bytes for x in segments[e])
        gone.append(e)
    return tuple(gone)


def may_have_rows(query: QueryRecord, epoch: int) -> bool:
    """As far as the state knows; only the epoch's segments know it exactly."""
    return query.last is not None and query.epoch <= epoch <= query.last.epoch


class LostEpochs(NamedTuple):
    """Results of a query that are gone: some or all of its rows from the first to the last of these epochs."""

    query: str
    first: int
    last: int

    def __str__(self) -> str:
        return f"query {self.query!r} has lost results of epochs {self.first} to {self.last}"


def lost_results(queries: Mapping[str, QueryRecord], epochs: Iterable[int]) -> list[LostEpochs]:
    """Whom it concerns that segments of these epochs are missing."""
    gone = sorted(epochs)
    mine = ((r.query.id, [e for e in gone if may_have_rows(r, e)]) for r in queries.values())
    return [LostEpochs(id, lost[0], lost[-1]) for id, lost in mine if lost]


def expired(
    epochs: Sequence[int],
    indexes: Callable[[int], Iterable[SegmentIndex] | None],
    queries: Mapping[str, QueryRecord],
) -> ResultsExpired:
    """`indexes`: of an epoch's segments; None when they are damaged: then every query that may have had rows in the
    epoch counts as having had some, because a gap must not pass in silence."""
    last: dict[str, Cursor] = {}
    sizes: dict[str, int] = {}
    for epoch in sorted(epochs, reverse=True):
        of_epoch = indexes(epoch)
        batches: dict[str, int] = {}
        if of_epoch is None:
            batches = {uid: LAST_SEQUENCE + 1 for uid, r in queries.items() if may_have_rows(r, epoch)}
        for index in of_epoch or ():
            for uid, mine in index.queries().items():
                batches[uid] = batches.get(uid, 0) + mine.streams
                sizes[uid] = sizes.get(uid, 0) + mine.bytes
        for uid, count in batches.items():
            last.setdefault(uid, Cursor(epoch, count - 1))
    lost = tuple(LostResults(uid, place, sizes.get(uid, 0)) for uid, place in last.items())
    return ResultsExpired(epochs=tuple(sorted(epochs)), lost=lost)
