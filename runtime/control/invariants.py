"""The rules that every state obeys, as a check: the random lives call it after every event, `ajoin state verify` once.

A state that passes cannot name a file twice, read a bit without knowing whose it is, run a query that the plan does not
have, or continue with an epoch that is not the next one. Cost: one walk over everything that is open.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from optimizer.errors import InternalError
from optimizer.model.invariants import validate_plan
from optimizer.model.plan import id_of, uid_of
from runtime.buckets.refs import BucketRef
from runtime.control.state import QueryRecord, State


def validate_state(s: State) -> None:
    """Raises InternalError with reason STATE_INVALID, naming the first broken rule."""
    validate_plan(s.plan, s.running)
    validate_plan(s.executed)
    for rules in (_queries, _plans, _epochs, _streams, _buckets, _postponed, _results):
        for problem in rules(s):
            raise InternalError(f"the state after epoch {s.epoch} is not valid: {problem}", reason="STATE_INVALID")


def _queries(s: State) -> Iterator[str]:
    for uid, r in s.queries.items():
        serial = int(uid.rpartition("#")[2])
        if uid != r.query.uid or uid != uid_of(r.query.id, serial) or r.query.id != id_of(uid):
            yield f"query {uid} is recorded as {r.query.uid}"
        if serial > s.serial:
            yield f"query {uid} is newer than the newest, {s.serial}"
        yield from _query(s, uid, r)
    for id, uid in s.names.items():
        if uid not in s.queries or s.queries[uid].query.id != id:
            yield f"name {id} leads to {uid}"
    for uid in sorted((s.plan_pins.orders | s.plan_pins.groups) - s.running.keys()):
        yield f"{uid} is pinned and does not run"
    for uid, rq in s.running.items():
        if s.names.get(rq.id) != uid:
            yield f"{uid} runs, but its name leads to {s.names.get(rq.id)}"


def _query(s: State, uid: str, r: QueryRecord) -> Iterator[str]:
    if r.version > s.plan.version or r.epoch > s.epoch + 1:
        yield f"query {uid} begins after the next epoch"
    if r.running and s.plan.by_uid[uid].group != r.group:
        yield f"query {uid} is recorded in group {r.group}"
    if (r.last is None) != (r.rows == 0) or (r.last is not None and r.last.epoch > s.epoch):
        yield f"query {uid} has {r.rows} rows, the last at {r.last}"
    if r.running and not r.query.query.streams <= s.streams.keys():
        yield f"query {uid} reads a stream that is not there"


def _plans(s: State) -> Iterator[str]:
    version = s.oldest_plan.version
    for change in s.plans:
        if change.changelog.from_version != version or change.epoch > s.epoch + 1:
            yield f"the changelog to version {change.version} of epoch {change.epoch} does not follow version {version}"
        version = change.version
    if version != s.plan.version or s.executed.version > s.plan.version:
        yield f"the plan has version {s.plan.version}, its changelogs lead to {version}, {s.executed.version} was run"
    if s.plan.version and s.slots.get(s.plan.version) != {g: dict(s.plan.slots(g)) for g in s.plan.groups}:
        yield f"the slot table of version {s.plan.version} is not that of the plan"


def _epochs(s: State) -> Iterator[str]:
    planned = s.planned
    if planned is None:
        return
    if planned.epoch != s.epoch + 1 or planned.version > s.plan.version:
        yield f"epoch {planned.epoch} is planned with version {planned.version}"
    for end in planned.ends:
        if end.stream not in s.streams:
            yield f"epoch {planned.epoch} is to read stream {end.stream}, which is not there"


def _streams(s: State) -> Iterator[str]:
    for name, st in s.streams.items():
        if st.schema.name != name:
            yield f"stream {name} has the schema of {st.schema.name}"
        if st.max_time is not None and (
            st.watermark is None or st.watermark < st.max_time - st.schema.watermark_delay_ms
        ):
            yield f"stream {name} has seen {st.max_time} and its watermark is {st.watermark}"


def _buckets(s: State) -> Iterator[str]:
    nodes = {node.name for node in s.executed.nodes}
    for id, ref in s.sources.items():
        if ref.id != id or id % 2 or id >= 2 * s.next_source or ref.epoch > s.epoch:
            yield f"source bucket {ref.id} of epoch {ref.epoch} stands at {id}; the next is {2 * s.next_source}"
        for view in ref.views:
            if view.version not in s.slots:
                yield f"nobody knows the slots of version {view.version}, which bucket {id} was written with"
    for id, joined in s.joined.items():
        if joined.id != id or not id % 2 or id >= 2 * s.next_bucket or joined.epoch > s.epoch + 1:
            yield f"joined bucket {joined.id} of epoch {joined.epoch} stands at {id}; the next is {2 * s.next_bucket}"
        if joined.version not in s.slots:
            yield f"nobody knows the slots of version {joined.version}, which bucket {id} was written with"
        if joined.node not in nodes:
            yield f"joined bucket {id} belongs to {joined.node}, which was not run"
    for name, partial in s.partials.items():
        if partial.file != name or partial.epoch > s.epoch:
            yield f"partial bucket {partial.file} of epoch {partial.epoch} stands at {name}"
        if partial.version not in s.slots:
            yield f"nobody knows the slots of version {partial.version}, which {name} was written with"
    for name, block in s.blocks.items():
        if block.name != name or block.epoch > s.epoch or block.lo >= block.hi:
            yield f"block {block.name} of epoch {block.epoch}, [{block.lo}, {block.hi}), stands at {name}"
        if any(part.fold != block.fold or part.version not in s.slots for part in block.parts):
            yield f"block {name} has parts that nobody can read"
    for uid, marks in s.marks.items():
        ordered = all(a.epoch < b.epoch and a.watermark < b.watermark for a, b in pairwise(marks))
        if uid not in s.queries or not ordered or marks[-1].epoch > s.epoch:
            yield f"the watermarks of query {uid} are not in order: {marks}"
    refs: list[BucketRef] = [*s.sources.values(), *s.joined.values()]
    files = [*(f for r in refs for f in r.files), *s.partials, *(f for b in s.blocks.values() for f in b.files)]
    yield from _twice("bucket file", files)


def _postponed(s: State) -> Iterator[str]:
    for number, p in s.postponed.items():
        if p.number != number or p.uid not in s.queries or p.epoch > s.epoch or not p.rests:
            yield f"postponed work {p.number} of {p.uid}, epoch {p.epoch}, stands at {number}"
        if not set(p.pins) <= s.pins.keys():
            yield f"postponed work {number} refers to buckets that are not pinned"
    if s.pins.keys() - {pin for p in s.postponed.values() for pin in p.pins}:
        yield "buckets are pinned that nobody waits for"


def _results(s: State) -> Iterator[str]:
    epochs = list(s.segments)
    if epochs != sorted(epochs) or (epochs and epochs[-1] > s.epoch):
        yield f"results of epochs {epochs[:3]} to {epochs[-3:]} are not in order"
    yield from _twice("result segment", (x.file for segments in s.segments.values() for x in segments))
    for uid in s.expired:
        if uid not in s.queries:
            yield f"query {uid} is forgotten and its results are not"


def _twice(what: str, names: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            yield f"{what} {name} is listed twice"
        seen.add(name)
