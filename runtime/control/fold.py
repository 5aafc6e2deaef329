"""What an event does to the state: the only place where state changes, and a pure function.

`handle(state, event)` gives the state after the event and the names of files that are not needed any more. The state
before stays as it was, so readers on other threads never see half an event. Recovery handles the logged events again
and arrives at the same state.

Cost: one copy of each mapping that the event touches, which is small beside writing the event to disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from optimizer.model import changelog
from optimizer.model.folds import fold_key
from optimizer.model.plan import RunningQuery
from runtime.api import NO_BUDGET, Cursor, Incomplete, QueryState, Usage
from runtime.control import marks, postponed
from runtime.control.budgets import debt
from runtime.control.events import (
    BatchApplied,
    BucketsRepaired,
    EpochCommitted,
    EpochPlanned,
    Event,
    ResultsExpired,
    SettingChanged,
    StreamCreated,
    StreamDeleted,
    StreamProgress,
    StreamRestarted,
    TuplesSkipped,
    WatermarkReset,
)
from runtime.control.retention import raise_floors
from runtime.control.state import (
    LetterRecord,
    PlanChange,
    QueryRecord,
    State,
    StreamState,
    Suspension,
)

LETTERS_KEPT = 1000
PLANS_KEPT = 300
DELETED_KEPT = 1_000
"""Deleted queries that are remembered."""


class Handled(NamedTuple):
    state: State
    unneeded: tuple[str, ...] = ()
    """Bucket files that can be deleted."""


def handle(state: State, event: Event) -> Handled:
    match event:
        case StreamCreated():
            stream = StreamState(event.schema, event.source, event.position, event.at_ms, since_ms=event.at_ms)
            return Handled(replace(state, streams={**state.streams, event.schema.name: stream}))
        case StreamDeleted():
            return Handled(_delete_stream(state, event.name))
        case WatermarkReset():
            return Handled(_reset_watermark(state, event))
        case StreamRestarted():
            return Handled(_restart_stream(state, event))
        case BatchApplied():
            return Handled(_apply_batch(state, event))
        case SettingChanged():
            others = {name: value for name, value in state.settings.items() if name != event.name}
            mine = {} if event.value is None else {event.name: event.value}
            return Handled(replace(state, settings=others | mine))
        case EpochPlanned():
            return Handled(replace(state, planned=event))
        case TuplesSkipped():
            assert state.planned is not None and state.planned.epoch == event.epoch, "they belong to what is planned"
            skipped = state.planned.skipped + event.skipped
            return Handled(replace(state, planned=replace(state.planned, skipped=skipped)))
        case EpochCommitted():
            return _commit(state, event)
        case BucketsRepaired():
            return _repair(state, event)
        case ResultsExpired():
            return Handled(_forget_results(state, event))


def _delete_stream(s: State, name: str) -> State:
    return replace(s, streams={n: st for n, st in s.streams.items() if n != name}, planned=_planned_without(s, name))


def _planned_without(s: State, name: str) -> EpochPlanned | None:
    """An epoch that failed and will be run again, without this stream."""
    if s.planned is None:
        return None
    ends = tuple(end for end in s.planned.ends if end.stream != name)
    raised = tuple(mark for mark in s.planned.raised if mark.stream != name)
    skipped = tuple(skip for skip in s.planned.skipped if skip.stream != name)
    return replace(s.planned, ends=ends, raised=raised, skipped=skipped)


def _reset_watermark(s: State, event: WatermarkReset) -> State:
    """The greatest event time goes back as well: it would lift the watermark again, and queries begin after it."""
    st = s.streams[event.stream]
    latest = event.watermark + st.schema.watermark_delay_ms
    back = replace(
        st, watermark=event.watermark, max_time=None if st.max_time is None else min(st.max_time, latest), jumped=0
    )
    planned = s.planned
    if planned is not None:
        planned = replace(planned, raised=tuple(mark for mark in planned.raised if mark.stream != event.stream))
    return replace(s, streams={**s.streams, event.stream: back}, planned=planned)


def _restart_stream(s: State, event: StreamRestarted) -> State:
    """As if it had just been created; what was counted stays. Its buckets, which no running query needs, go with the
    next epoch."""
    st = s.streams[event.stream]
    anew = replace(
        StreamState(st.schema, st.source, event.position, event.at_ms, since_ms=event.at_ms),
        tuples=st.tuples,
        late=st.late,
        dead=st.dead,
    )
    return replace(s, streams={**s.streams, event.stream: anew}, planned=_planned_without(s, event.stream))


# -- query batches ------------------------------------------------------------------------------------------------


def _apply_batch(s: State, event: BatchApplied) -> State:
    plan = changelog.apply(s.plan, event.changelog)
    queries, names = dict(s.queries), dict(s.names)
    for added in event.added:
        uid = added.query.uid
        placed = plan.by_uid.get(uid)
        group = placed.group if placed else 0
        record = QueryRecord(added.query, added.sinks, event.at_ms, plan.version, s.epoch + 1, group)
        fold = fold_key(added.query).name if added.query.query.folds else ""
        queries[uid] = replace(record, budget=added.budget, fold=fold, request=added.request)
        names[added.query.id] = uid
    for ended in event.ended:
        suspended = Suspension(s.epoch + 1, ended.suspended) if ended.suspended else None
        queries[ended.uid] = replace(
            queries[ended.uid], running=False, active_until=ended.active_until, suspended=suspended
        )
    for placement in plan.placements:
        if queries[placement.uid].group != placement.group:
            queries[placement.uid] = replace(queries[placement.uid], group=placement.group)
    deleted = [uid for uid, r in queries.items() if r.state == QueryState.DELETED and uid not in s.executed.by_uid]
    forgotten = set(deleted[: max(len(deleted) - DELETED_KEPT, 0)])
    plans = s.plans
    if plan.version != s.plan.version:  # deleting what was suspended changes no plan
        plans = (*plans, PlanChange(s.epoch + 1, event.changelog, event.savings))
    oldest = s.oldest_plan
    for change in plans[:-PLANS_KEPT]:
        oldest = changelog.apply(oldest, change.changelog)
    return replace(
        s,
        plan=plan,
        serial=s.serial + len(event.added),
        queries={uid: r for uid, r in queries.items() if uid not in forgotten},
        names={id: uid for id, uid in names.items() if uid not in forgotten},
        expired={uid: last for uid, last in s.expired.items() if uid not in forgotten},
        slots={**s.slots, plan.version: {g: dict(plan.slots(g)) for g in plan.groups}},
        plans=plans[-PLANS_KEPT:],
        oldest_plan=oldest,
        plan_pins=s.plan_pins if event.plan_pins is None else event.plan_pins,
    )


# -- epochs -------------------------------------------------------------------------------------------------------


def _commit(s: State, event: EpochCommitted) -> Handled:
    planned = s.planned
    assert planned is not None and planned.epoch == event.epoch, "an epoch is planned before it is committed"
    streams = dict(s.streams)
    for p in event.progress:
        streams[p.stream] = advanced(streams[p.stream], planned, p)
    unneeded = [s.joined[b].file for b in event.stale]
    joined = {id: ref for id, ref in s.joined.items() if id not in event.stale}
    joined |= {r.id: r for r in event.joined}
    sources = dict(s.sources)
    for bucket, views in event.views:
        ref = sources[bucket]
        unneeded += sorted({v.file for v in ref.views} - {v.file for v in views} - {ref.file})
        sources[bucket] = replace(ref, views=views)
    sources |= {r.id: r for r in event.sources}
    waiting = postponed.after(s.postponed, event.postponed, event.resumed, s.running)
    advances = marks.Advances(s, streams, waiting, event.epoch)
    come = {uid: advances.of(q) for uid, q in s.running.items() if q.query.folds}
    partials = {name: ref for name, ref in s.partials.items() if name not in event.merged}
    partials |= {ref.file: ref for ref in event.partials}
    unneeded += event.merged
    blocks = {name: b for name, b in s.blocks.items() if name not in event.lost_blocks}
    blocks |= {b.name: b for b in event.blocks}
    oldest: dict[str, int] = {}
    for partial in partials.values():
        oldest[partial.fold] = min(partial.epoch, oldest.get(partial.fold, partial.epoch))
    still = {uid: marks.kept(s.running[uid], c, oldest.get(s.queries[uid].fold)) for uid, c in come.items()}
    seconds = dict(s.seconds)
    for stage, spent in event.seconds:
        seconds[stage] = seconds.get(stage, 0.0) + spent
    letters = (*s.letters, *(LetterRecord(stream, event.epoch, letter) for stream, letter in event.letters))
    committed = replace(
        s,
        epoch=event.epoch,
        executed=s.plan,
        planned=None,
        next_bucket=event.next_bucket,
        next_source=event.next_source,
        streams=streams,
        queries=_with_gaps(_with_rows(s.queries, event), s, streams, event),
        segments={**s.segments, event.epoch: event.segments} if event.segments else s.segments,
        sources=sources,
        joined=joined,
        letters=letters[-LETTERS_KEPT:],
        seconds=seconds,
        postponed=waiting,
        partials=partials,
        marks={uid: mine for uid, mine in still.items() if mine},
        blocks=blocks,
    )
    floors = raise_floors(committed)
    unneeded += [f for id in floors.unneeded if id in sources for f in sorted(sources[id].files)]
    unneeded += [joined[id].file for id in floors.unneeded if id in joined]
    sources = {id: ref for id, ref in sources.items() if id not in floors.unneeded}
    joined = {id: ref for id, ref in joined.items() if id not in floors.unneeded}
    unneeded += sorted(floors.partials)
    partials = {name: ref for name, ref in partials.items() if name not in floors.partials}
    blocks = {name: b for name, b in blocks.items() if name not in floors.blocks}
    unneeded += sorted({f for b in (*s.blocks.values(), *event.blocks) if b.name not in blocks for f in b.files})
    used = {v.version for r in sources.values() for v in r.views} | {r.version for r in joined.values()}
    used |= {part.version for b in blocks.values() for part in b.parts}
    used |= {r.version for r in partials.values()} | {p.plan.version for p in waiting.values()}
    needed = {number for p in waiting.values() for number in p.pins}
    after = replace(
        committed,
        sources=sources,
        joined=joined,
        floors=floors.starts,
        partials=partials,
        blocks=blocks,
        slots={v: t for v, t in s.slots.items() if v in used or v == s.plan.version},
        pins={number: ref for number, ref in (*s.pins.items(), *event.pins) if number in needed},
    )
    unneeded += sorted(postponed.pinned_files(s.pins.values()))
    return Handled(after, _gone(unneeded, after))


def _gone(files: Iterable[str], state: State) -> tuple[str, ...]:
    """Those that the state does not list; each once."""
    return tuple(f for f in dict.fromkeys(files) if f not in state.bucket_files)


def _with_rows(queries: Mapping[str, QueryRecord], event: EpochCommitted) -> dict[str, QueryRecord]:
    after = dict(queries)
    made: dict[str, tuple[int, int, float]] = {}
    for uid, rows, batches, size, seconds, work in event.delivered:
        record, used = after[uid], after[uid].usage
        usage = Usage(used.bytes + size, used.retained_bytes + size, used.seconds + seconds)
        last = Cursor(event.epoch, batches - 1) if batches else record.last
        after[uid] = replace(record, rows=record.rows + rows, last=last, usage=usage, work=record.work + work)
        made[uid] = (rows, size, seconds)
    for uid, record in after.items():
        if record.running and record.budget != NO_BUDGET:
            owed = debt(record, *made.get(uid, (0, 0, 0.0)))
            after[uid] = record if owed == record.debt else replace(record, debt=owed)
    for uid, count in event.overflows:
        after[uid] = replace(after[uid], overflows=after[uid].overflows + count)
    return after


def _with_gaps(
    queries: Mapping[str, QueryRecord], before: State, streams: Mapping[str, StreamState], event: EpochCommitted
) -> dict[str, QueryRecord]:
    """Queries of which the epoch left rows out say where: in no window that ended before everything the epoch could
    accept, late tuples included, and in none that begins after everything it has read."""
    after = dict(queries)
    for uid in event.left_out:
        record = after[uid]
        query = record.query
        times = [t for s in query.query.streams if (t := streams[s].max_time) is not None]
        since = _accepted_from(before, query)
        if record.incomplete is not None and since is not None:  # an idle stream that comes back may be behind it
            since = None if record.incomplete.after is None else min(since, record.incomplete.after)
        after[uid] = replace(record, incomplete=Incomplete(since, max(times, default=None)))
    return after


def _accepted_from(s: State, query: RunningQuery) -> int | None:
    """No window of the query that ends here or before can get a row in the next epoch; None: any can."""
    bounds = [s.streams[name].accept_from for name in query.query.streams]
    known = [bound for bound in bounds if bound is not None]
    floor = s.floors.get(query.uid)
    if len(known) < len(bounds):
        return floor
    return min(known) if floor is None else max(min(known), floor)


def advanced(st: StreamState, planned: EpochPlanned, p: StreamProgress) -> StreamState:
    """A stream after an epoch: position, counts and watermark. An epoch never moves a watermark back."""
    newest = _latest(st.max_time, p.max_time)
    by_data = None if newest is None else newest - st.schema.watermark_delay_ms
    last = planned.at_ms if p.tuples else st.last_data_ms
    timeout = st.schema.idle_timeout_ms
    return replace(
        st,
        position=dict(planned.ends).get(p.stream, st.position),
        last_data_ms=last,
        tuples=st.tuples + p.tuples,
        late=st.late + p.late,
        dead=st.dead + p.dead,
        max_time=newest,
        watermark=_latest(st.watermark, dict(planned.raised).get(p.stream), by_data),
        idle=timeout is not None and planned.at_ms - last >= timeout,
        jumped=0 if p.tuples else st.jumped + p.jumped,
    )


def _latest(*times: int | None) -> int | None:
    return max((t for t in times if t is not None), default=None)


def _repair(s: State, event: BucketsRepaired) -> Handled:
    """The state after the last epoch again, with other files in it; the planned epoch stays planned."""
    unneeded = [s.joined[b].file for b in event.stale]
    joined = {id: ref for id, ref in s.joined.items() if id not in event.stale}
    sources = dict(s.sources)
    for bucket, replacement in event.sources:
        unneeded += sorted(sources.pop(bucket).files)
        if replacement is not None:
            sources[replacement.id] = replacement
    unneeded += event.unfolded
    partials = {name: ref for name, ref in s.partials.items() if name not in event.unfolded}
    after = replace(
        s,
        next_bucket=event.next_bucket,
        next_source=event.next_source,
        sources=sources,
        joined=joined | {r.id: r for r in event.joined},
        partials=partials | {ref.file: ref for ref in event.partials},
    )
    return Handled(after, _gone(unneeded, after))


def _forget_results(s: State, event: ResultsExpired) -> State:
    expired, queries = dict(s.expired), dict(s.queries)
    for uid, last, size in event.lost:
        if uid in s.queries:  # results of a forgotten query cannot be asked for
            expired[uid] = max(last, expired.get(uid, last))
            record, used = queries[uid], queries[uid].usage
            nothing = record.last is None or record.last <= last  # also if nobody could read how much it was
            kept = 0 if nothing else max(used.retained_bytes - size, 0)
            queries[uid] = replace(record, usage=used._replace(retained_bytes=kept))
    return replace(
        s, expired=expired, queries=queries, segments={e: x for e, x in s.segments.items() if e not in event.epochs}
    )
