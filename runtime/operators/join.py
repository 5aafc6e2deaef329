"""The join operator: every new bucket meets every bucket of the other side that shares a window with it, once.

With old and new buckets on both sides, the pairs are new x old, old x new, new x new; old x old was done when the
later of the two was new. So a result appears in the epoch in which its last tuple arrived, and never again. When a
plan change needs joined state that does not exist yet, the same operator runs with all buckets marked new and no
sink: it rebuilds what the new plan would have built, and delivers nothing.

A task owns a range of key hashes (a partition), which is a contiguous piece of every index. If the partition is split
k ways, one side of each meeting is dealt out in k pieces and the other side is read by all (dealing.py): the join
distributes over union.

A chain of joins on one key runs in one task (optimizer.model.stages): what a join has found in these hashes is all that
the next one can need of it, so the task goes on with the joined bucket it has just made, before anybody else knows it.
It is written all the same, because later epochs need it. If the partition is split, that bucket holds the matches of
this way only. It belongs to the way (`InputBucket.way`): no other one meets it, and nothing of its meetings is dealt
out. Buckets of earlier epochs belong to all ways and are dealt out as ever, so each pair of items meets once.

Matches go two ways: into joined buckets for the joins above (joined_output.py; lists stay closed where they can), and
to the sink for queries that end here, as far as their allowances reach (pace.py). A task of a later epoch that goes on
where one was stopped starts at a given place; meetings of two buckets are numbered for that.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from runtime.buckets.refs import JoinedRef, OutputKey, PartialRef
from runtime.columns.querysets import Words
from runtime.execution.physical import JoinSpec, SideSpec
from runtime.execution.shipped import ShippedOnce
from runtime.kernels.csr import Items
from runtime.kernels.intersect import intersections
from runtime.operators.by_query import decided
from runtime.operators.dealing import Dealt, deal
from runtime.operators.floors import Floor, apply_floors
from runtime.operators.fold import Folded, PartialTarget, RowFolder
from runtime.operators.heaviest import Heaviest
from runtime.operators.inputs import Directory
from runtime.operators.joined_output import JoinedOutput
from runtime.operators.matches import Match, Side
from runtime.operators.pace import BEGINNING, UNLIMITED, Allowances, Pace, Place, Rest
from runtime.operators.sink import Sinks
from runtime.results.segment import Delivered, SegmentTarget, SegmentWriter
from runtime.windows.registry import JoinWindows

MOST_PAIRS = 1 << 22
"""Pairs of entries found at a time: bounds the memory of a hot key that lies in many slices."""

MOST_PAIR_WORDS = 1 << 24
"""Words of their query sets (128 MB)."""


ALL_WAYS = -1


class InputBucket(NamedTuple):
    """An open bucket; `new`: it has met no bucket of the other side yet. `way`: of a split partition, the only one
    whose task meets it, all by itself, because it has made it."""

    bucket: int
    new: bool
    way: int = ALL_WAYS


@dataclass(frozen=True, slots=True)
class JoinInputs:
    """Buckets of both sides of one join."""

    left: tuple[InputBucket, ...]
    right: tuple[InputBucket, ...]

    def with_made(self, spec: JoinSpec, made: Mapping[tuple[str, OutputKey], Sequence[InputBucket]]) -> JoinInputs:
        """And those that tasks of the same stage have made and go on with; they come last, in every task that knows
        some of them, so that meetings are numbered alike."""
        more = [made.get((side.child or "", side.key), ()) if side.goes_on else () for side in (spec.left, spec.right)]
        return JoinInputs((*self.left, *more[0]), (*self.right, *more[1]))

    def __reduce__(self) -> tuple[Any, ...]:
        """All that is open is named in every stage: as numbers, which are a few bytes each."""
        return _inputs, (_numbers(self.left), _numbers(self.right))


def _numbers(side: Sequence[InputBucket]) -> bytes:
    return zlib.compress(np.array(side, np.int64).tobytes(), 1)


def _inputs(left: bytes, right: bytes) -> JoinInputs:
    sides = (np.frombuffer(zlib.decompress(numbers), np.int64).reshape(-1, 3).tolist() for numbers in (left, right))
    return JoinInputs(*(tuple(InputBucket(id, bool(new), way) for id, new, way in side) for side in sides))


@dataclass(frozen=True)
class JoinShared:
    """What all tasks of one stage share. `stage`: its joins, inputs before consumers. `joins`: all joins of the plan by
    name (to open nested lists at the sink). `inputs`: without what the tasks themselves make and go on with."""

    directory: Directory
    version: int
    epoch: int
    stage: tuple[str, ...]
    joins: ShippedOnce[Mapping[str, JoinSpec]]
    inputs: Mapping[str, JoinInputs]
    emit: bool
    segments: SegmentTarget
    allowances: Allowances
    """Of each task."""
    floors: tuple[Floor, ...] = ()
    """When state is rebuilt: combinations before a query's floor are in closed windows only, and the buckets some of
    them refer to are gone."""


class OutputBucket(NamedTuple):
    """The output of a join by one key goes into this bucket."""

    node: str
    key: OutputKey
    bucket: int


@dataclass(frozen=True, slots=True)
class JoinTask:
    partition: int
    way: int
    ways: int
    first_hash: int
    end_hash: int
    segment: str
    buckets: tuple[OutputBucket, ...]
    start: Place = BEGINNING

    def rest(self, place: Place) -> Rest:
        return Rest(self.first_hash, self.end_hash, self.way, self.ways, *place)


@dataclass(frozen=True, slots=True)
class JoinReport:
    partition: int
    joined: tuple[JoinedRef, ...]
    delivered: Delivered | None
    join_seconds: float
    sink_seconds: float
    matches: Mapping[str, int] = field(default_factory=dict)
    """Combinations found per join: a closed list counts with all that its items stand for."""
    partials: tuple[PartialRef, ...] = ()
    """Of queries that fold and end here."""
    folded: Mapping[tuple[str, str], Folded] = field(default_factory=dict)
    """What was folded, per (node, fold)."""
    rests: Mapping[str, Rest] = field(default_factory=dict)
    """Per query (uid) that was stopped, where."""
    work: Mapping[str, int] = field(default_factory=dict)
    """Per query (uid), if it is measured: rows that were counted before they were made (pace.py)."""
    hottest: int = 0
    """Combinations of the key that had most of them, for all joins of the stage (heaviest.py)."""


def run_join(shared: JoinShared, task: JoinTask) -> JoinReport:
    began = time.perf_counter()
    ids = {(node, key): bucket for node, key, bucket in task.buckets}
    writer = SegmentWriter(shared.segments, task.segment)
    partials: list[PartialRef] = []
    figures: dict[tuple[str, str], Folded] = {}
    sink_seconds = 0.0
    refs: list[JoinedRef] = []
    matches: dict[str, int] = {}
    rests: dict[str, Rest] = {}
    work: dict[str, int] = {}
    hottest = 0
    joins, directory = shared.joins.value, shared.directory
    made: dict[tuple[str, OutputKey], tuple[InputBucket, ...]] = {}
    specs = [joins[name] for name in shared.stage]
    wanted = {(side.child, side.key) for spec in specs for side in (spec.left, spec.right) if side.goes_on}
    for spec in specs:
        outputs = [
            JoinedOutput(directory, spec, o, ids[(spec.name, o.key)], shared.epoch, shared.version)
            for o in spec.outputs
            if (spec.name, o.key) in ids
        ]
        folders = [RowFolder(fold, shared.epoch) for fold in spec.folds]
        sink = Sinks(directory, joins, spec, writer, folders) if shared.emit and spec.sinks else None
        pace = Pace(directory, joins, spec, shared.allowances if sink is not None else UNLIMITED)
        total, heaviest = 0, Heaviest()
        inputs = shared.inputs[spec.name].with_made(spec, made)
        for meeting, match in _matches(replace(shared, directory=directory), spec, inputs, task, pace.users):
            rows = pace.rows(match)
            total += int(rows.sum())
            heaviest.add(match, rows)
            for output in outputs:
                output.add(match)
            if sink is not None:
                at = time.perf_counter()
                for part in pace.admit(meeting, match, rows):
                    sink.add(part)
                sink_seconds += time.perf_counter() - at
        if sink is not None:
            at = time.perf_counter()
            sink.flush()
            sink_seconds += time.perf_counter() - at
        partials += _written(shared, spec, task, folders, figures)
        matches[spec.name] = total
        hottest += heaviest.combinations
        rests |= {uid: task.rest(place) for uid, place in pace.rests.items()}
        work |= pace.work
        for output in outputs:
            bucket = output.finish()
            if bucket is None:
                continue
            refs.append(bucket.ref)
            at_key = (spec.name, output.output.key)
            if at_key in wanted:
                directory = directory.with_made(*bucket)
                made[at_key] = (InputBucket(bucket.ref.id, True, task.way),)
    delivered = writer.finish()
    seconds = time.perf_counter() - began - sink_seconds
    measured = seconds, sink_seconds, matches, tuple(partials), figures, rests, work, hottest
    return JoinReport(task.partition, tuple(refs), delivered, *measured)


def _written(
    shared: JoinShared,
    spec: JoinSpec,
    task: JoinTask,
    folders: Iterable[RowFolder],
    figures: dict[tuple[str, str], Folded],
) -> Iterator[PartialRef]:
    for folder in folders:
        partials = folder.finish()
        if partials is not None:
            partials, figures[spec.name, folder.spec.name] = decided(folder.spec, folder.rows, partials)
            file = f"{task.segment.removesuffix('.segment')}-{spec.name}-{folder.spec.name}.bucket"
            target = PartialTarget(shared.directory.store, file, shared.version, shared.epoch)
            yield target.write(folder.spec, partials)


def _matches(
    shared: JoinShared, spec: JoinSpec, inputs: JoinInputs, task: JoinTask, users: Words
) -> Iterator[tuple[int, Match]]:
    """With the number of the meeting of two buckets each is from. `users` may lose members between two matches: those
    are not looked for any more."""
    windows = JoinWindows(spec.shapes, spec.words)
    meeting = -1
    for l, partners in _meetings(shared, spec, inputs, task):
        for r in partners:
            meeting += 1
            if meeting < task.start.meeting:
                continue
            if windows.apart(min(l.max_lo, r.max_lo), max(l.min_hi, r.min_hi)):
                continue  # even the closest slices of the two buckets share no window
            words = min(l.items.query_sets.shape[1], r.items.query_sets.shape[1], spec.words)
            alive = (l.alive & r.alive & users)[:words]
            if not alive.any():
                continue
            dealt = deal(l, r, *((0, 1) if l.own or r.own else (task.way, task.ways)))
            if dealt is None:
                continue
            mine = dealt.right
            for share in _shares(l, dealt, task, meeting):
                entries = l.index.entries(share.first, share.end)
                for le, re, sets in intersections(entries, mine.entries, alive, windows.shapes, _most_pairs(words)):
                    if not len(le):
                        continue
                    lo, hi = np.minimum(l.index.lo[le], r.index.lo[re]), np.maximum(l.index.hi[le], r.index.hi[re])
                    apply_floors(shared.floors, spec.group, sets, lo)
                    match = Match(l, mine, share.l_from, share.l_to, le, re, sets, lo, hi)
                    if share.partner:
                        match = match.with_partners(share.partner, int(mine.index.offsets[mine.entries.end]))
                    alive_match = match.only(users) if shared.floors else match
                    if alive_match is not None:
                        yield meeting, alive_match
                    alive &= users[:words]  # the rest of this meeting is looked through without them
                    if not alive.any():
                        break


def _most_pairs(words: int) -> int:
    return max(1, min(MOST_PAIRS, MOST_PAIR_WORDS // words))


def _meetings(
    shared: JoinShared, spec: JoinSpec, inputs: JoinInputs, task: JoinTask
) -> Iterator[tuple[Side, Sequence[Side]]]:
    """Left buckets with right ones that they have not met. An old bucket is opened once and released before the next
    one, because all of them together may be larger than memory."""

    def opened(side: SideSpec, buckets: Iterable[InputBucket], new: bool) -> Iterator[Side]:
        for given in buckets:
            if given.new == new and given.way in (ALL_WAYS, task.way):
                one = _open(shared, side, spec.words, given, task)
                if one is not None:
                    yield one

    left = list(opened(spec.left, inputs.left, True))
    right = list(opened(spec.right, inputs.right, True))
    for l in left:
        yield l, right
    if left:
        for r in opened(spec.right, inputs.right, False):
            for l in left:
                yield l, (r,)
    if right:
        for l in opened(spec.left, inputs.left, False):
            yield l, right


def _open(shared: JoinShared, side: SideSpec, words: int, given: InputBucket, task: JoinTask) -> Side | None:
    bucket, own = given.bucket, given.way != ALL_WAYS
    d, within = shared.directory, (task.first_hash, task.end_hash)
    if side.child is None:
        ref = d.sources[bucket].view(side.leaves[0], side.group)
        assert ref is not None
        view = d.view(bucket, side.leaves[0], side.group)
        (index, first, end), sets, version = view.part(side.index_key, within), view.sets_at, ref.version
        bounds = d.sources[bucket].max_slice, d.sources[bucket].min_slice
    else:
        joined = d.joined_bucket(bucket)
        (index, first, end), sets, version = joined.part(within), joined.sets_at, d.joined[bucket].version
        bounds = d.joined[bucket].max_lo, d.joined[bucket].min_hi
    if first >= end:
        return None
    mine = index.order[index.offsets[first] : index.offsets[end]]
    items = Items(index.order, index.offsets, sets(mine))
    return Side(bucket, index, index.entries(first, end), items, d.alive(side.group, version, words), *bounds, own)


class _Share(NamedTuple):
    """Left positions [l_from, l_to) of a meeting and the entries [first, end) that touch them, with right positions
    from `partner` on."""

    l_from: int
    l_to: int
    first: int
    end: int
    partner: int = 0


def _shares(side: Side, dealt: Dealt, task: JoinTask, meeting: int) -> Iterator[_Share]:
    """What is this task's of the left side: all that was dealt to it, or what is left of that from where it starts."""
    offsets, entries = side.index.offsets, side.entries
    l_from, l_to = dealt.l_from, dealt.l_to
    start = task.start if meeting == task.start.meeting else BEGINNING
    whole = l_from == int(offsets[entries.first]) and l_to == int(offsets[entries.end])
    if whole and start.position <= l_from and not start.partner:
        yield _Share(l_from, l_to, entries.first, entries.end)
        return
    l_from = max(l_from, start.position)
    pieces = [(l_from, l_from + 1, start.partner), (l_from + 1, l_to, 0)] if start.partner else [(l_from, l_to, 0)]
    for a, b, partner in pieces:
        if a < b:
            mine = offsets[entries.first : entries.end + 1]  # what lies around them need not be there
            first = entries.first + max(int(np.searchsorted(mine, a, "right")) - 1, 0)
            end = entries.first + min(int(np.searchsorted(mine, b, "left")), len(mine) - 1)
            yield _Share(a, b, first, end, partner)
