"""The control plane: a state machine without I/O.

`decide_*` looks at the state and says what should happen, as an event; `handle` applies an event to the state and is
the only thing that changes it. The engine writes the event to the log in between, so whatever the state says is on
disk, and recovery is handling the logged events again. No clock, no files, no Spark: thousands of lives run in a
test.

The paper's atomic consistency protocol (agree on a bucket id, ingest the changelog after it everywhere or nowhere) is
here the order of the log: a changelog stands between two epochs, and an epoch names the plan version it runs with.
The paper's non-atomic variant has no counterpart, because on micro-batches coordination is free.

Watermarks and lifetimes follow the semantics page: a query's watermark is the minimum over its streams; T is one more
than the greatest event time accepted on any of its streams when it is created, and its first window starts at or
after T.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from optimizer.errors import AJoinError, AlreadyExists, FailedPrecondition, NotFound
from optimizer.explain.explain import explain_plan
from optimizer.model import changelog
from optimizer.model.codec import changelog_from_json
from optimizer.model.plan import Plan, RunningQuery
from optimizer.model.types import StreamSchema
from runtime.api import (
    Control,
    Cursor,
    PlanEvent,
)
from runtime.connectors.base import ConnectorSpec
from runtime.control import counts
from runtime.control.batch import Batch, BatchDecision
from runtime.control.events import (
    BatchApplied,
    BucketsRepaired,
    EpochCommitted,
    EpochPlanned,
    Event,
    ResultsExpired,
    StreamCreated,
    StreamDeleted,
    StreamProgress,
)
from runtime.control.planner import Planner
from runtime.control.retention import raise_floors
from runtime.control.state import LETTERS_KEPT, PLANS_KEPT, QueryRecord, State, StreamState, query_watermark

SHOWN_QUERIES = 100
PRICED_QUERIES, PRICED_LEAVES = 30, 4
DELETED_KEPT = 1_000


class Coordinator:
    """Owns the state; asks the planner for plans."""

    def __init__(
        self,
        state: State | None = None,
        *,
        planner: Planner | None = None,
        cores: int = 1,
        max_cost: float | None = None,
    ) -> None:
        self.state = state or State()
        self.planner = planner or Planner()
        self.cores = cores
        self.max_cost = max_cost

    # -- decisions ------------------------------------------------------------------------------------------------

    def decide_stream(self, schema: StreamSchema, source: ConnectorSpec, offset: str, now_ms: int) -> StreamCreated:
        if schema.name in self.state.streams:
            raise AlreadyExists(f"stream {schema.name!r} exists already", reason="STREAM_EXISTS")
        return StreamCreated(schema, source, offset, now_ms)

    def decide_stream_deletion(self, name: str) -> StreamDeleted:
        self.stream(name)
        users = sorted(r.query.id for r in self.state.queries.values() if r.running and name in r.query.query.streams)
        if users:
            raise FailedPrecondition(
                f"stream {name!r} is used by {len(users)} running queries: {', '.join(users[:5])}",
                reason="STREAM_IN_USE",
                hint="delete these queries first",
            )
        return StreamDeleted(name)

    def decide_batch(self, batch: Sequence[Control | AJoinError], now_ms: int) -> BatchDecision:
        """At most one changelog for the whole batch. Controls act in their order; one that is refused changes nothing,
        and a refusal in the batch is its own outcome.
        """
        return Batch(self, self.state).decide(batch, now_ms)

    def decide_epoch(self, ends: Mapping[str, str], raised: Mapping[str, int], now_ms: int) -> EpochPlanned:
        s = self.state
        return EpochPlanned(
            s.epoch + 1, s.plan.version, now_ms, tuple(sorted(ends.items())), tuple(sorted(raised.items()))
        )

    # -- looking --------------------------------------------------------------------------------------------------

    def stream(self, name: str) -> StreamState:
        found = self.state.streams.get(name)
        if found is None:
            known = ", ".join(sorted(self.state.streams)) or "none yet"
            raise NotFound(f"there is no stream {name!r}", reason="STREAM_NOT_FOUND", hint=f"known streams: {known}")
        return found

    def record(self, id: str, uid: str | None = None) -> QueryRecord:
        """The latest query of that id; with a uid, the one that had it."""
        found = self.state.queries.get(uid or self.state.names.get(id, ""))
        if found is None or found.query.id != id:
            which = f" with uid {uid!r}" if uid else ""
            raise NotFound(f"there is no query {id!r}{which}", reason="QUERY_NOT_FOUND")
        return found

    def savings(self, plan: Plan, running: Mapping[str, RunningQuery]) -> dict[str, float]:
        """Which part of its own cost each query is spared. Only told to people, so not asked where it takes long."""
        widest = max((len(p.root.leaves) for p in plan.placements), default=0)
        if not plan.placements or widest > PRICED_LEAVES or len(plan.placements) > PRICED_QUERIES:
            return {}
        found = self.planner.estimate(plan, running)
        return {uid: 1 - found.shared[uid] / alone for uid, alone in found.alone.items() if alone > 0}

    def watermark(self, query: RunningQuery) -> int | None:
        """Minimum over the query's streams that are not idle; None (minus infinity) when one has none."""
        return query_watermark(self.state.streams, query)

    # -- the only place where state changes -----------------------------------------------------------------------

    def handle(self, event: Event) -> tuple[str, ...]:
        """Apply the event; returns the names of files nobody needs any more."""
        s = self.state
        match event:
            case StreamCreated(schema, source, offset, at_ms):
                s.streams[schema.name] = StreamState(schema, source, offset, at_ms)
            case StreamDeleted(name):
                del s.streams[name]
                if s.planned is not None:  # an epoch that failed and will be run again, without this stream
                    ends = tuple(end for end in s.planned.ends if end[0] != name)
                    s.planned = replace(s.planned, ends=ends)
            case BatchApplied():
                self._batch(event)
            case EpochPlanned():
                s.planned = event
            case EpochCommitted():
                return self._commit(event)
            case BucketsRepaired():
                return self._repair(event)
            case ResultsExpired():
                self._forget_results(event)
        return ()

    def _batch(self, event: BatchApplied) -> None:
        s = self.state
        s.plan = changelog.apply(s.plan, changelog_from_json(json.loads(event.changelog)))
        for added in event.added:
            s.serial += 1
            uid = added.query.uid
            placed = s.plan.by_uid.get(uid)
            s.queries[uid] = QueryRecord(
                added.query,
                added.sinks,
                event.at_ms,
                s.plan.version,
                s.epoch + 1,
                placed.group if placed else 0,
            )
            s.names[added.query.id] = uid
        for ended in event.ended:
            s.queries[ended.uid] = replace(s.queries[ended.uid], running=False, active_until=ended.active_until)
        self._forget_deleted()
        for p in s.plan.placements:
            if s.queries[p.uid].group != p.group:
                s.queries[p.uid] = replace(s.queries[p.uid], group=p.group)
        s.slots[s.plan.version] = {g: dict(s.plan.slots(g)) for g in s.plan.groups}
        text = plan_summary(s)
        s.plans.append(PlanEvent(s.plan.version, s.epoch + 1, event.changes, text))
        del s.plans[:-PLANS_KEPT]

    def _forget_deleted(self) -> None:
        """Of queries that were deleted, only the latest are remembered."""
        s = self.state
        over = len(s.queries) - len(s.plan.placements) - DELETED_KEPT
        for uid in [u for u, r in s.queries.items() if not r.running][: max(over, 0)]:
            id = s.queries.pop(uid).query.id
            s.expired.pop(uid, None)
            if s.names.get(id) == uid:
                del s.names[id]

    def _commit(self, event: EpochCommitted) -> tuple[str, ...]:
        s = self.state
        planned = s.planned
        assert planned is not None and planned.epoch == event.epoch, "an epoch is planned before it is committed"
        self._results(event)  # first: who sees the new epoch or watermark on another thread must find its rows
        s.epoch, s.executed, s.planned = event.epoch, s.plan, None
        s.next_bucket, s.next_source = event.next_bucket, event.next_source
        self._advance(planned, event)
        s.counts, _ = counts.settle(s, s.streams, event.counts)
        gone = [s.joined.pop(b).file for b in event.stale]
        for bucket, views in event.views:
            ref = s.sources[bucket]
            gone += sorted({v.file for v in ref.views} - {v.file for v in views} - {ref.file})
            s.sources[bucket] = replace(ref, views=views)
        s.sources |= {r.id: r for r in event.sources}
        s.joined |= {r.id: r for r in event.joined}
        for ref_id in raise_floors(s, self.watermark):
            if ref_id in s.sources:
                ref = s.sources.pop(ref_id)
                gone += [ref.file, *{v.file for v in ref.views if v.file != ref.file}]
            else:
                gone.append(s.joined.pop(ref_id).file)
        s.counts = counts.forget(s.counts, s.floors)
        s.letters += [(stream, event.epoch, letter) for stream, letter in event.letters]
        del s.letters[:-LETTERS_KEPT]
        for stage, seconds in event.seconds:
            s.seconds[stage] = s.seconds.get(stage, 0.0) + seconds
        used = {v.version for r in s.sources.values() for v in r.views} | {r.version for r in s.joined.values()}
        s.slots = {v: t for v, t in s.slots.items() if v in used or v == s.plan.version}
        return tuple(gone)

    def _repair(self, event: BucketsRepaired) -> tuple[str, ...]:
        """The state after the last epoch again, with other files in it; the planned epoch stays planned."""
        s = self.state
        s.next_bucket, s.next_source = event.next_bucket, event.next_source
        gone = [s.joined.pop(b).file for b in event.stale]
        for bucket, replacement in event.sources:
            gone += sorted(s.sources.pop(bucket).files)
            if replacement is not None:
                s.sources[replacement.id] = replacement
        s.joined |= {r.id: r for r in event.joined}
        return tuple(gone)

    def _advance(self, planned: EpochPlanned, event: EpochCommitted) -> None:
        for p in event.progress:
            self.state.streams[p.stream] = advanced(self.state.streams[p.stream], planned, p)

    def _results(self, event: EpochCommitted) -> None:
        s = self.state
        if event.segments:
            s.segments[event.epoch] = event.segments
        for uid, rows, batches in event.delivered:
            record = s.queries[uid]
            s.queries[uid] = replace(record, rows=record.rows + rows, last=Cursor(event.epoch, batches - 1))

    def _forget_results(self, event: ResultsExpired) -> None:
        """Readers look in the opposite order, so they never miss that it happened."""
        s = self.state
        for uid, epoch, sequence in event.last:
            if uid in s.queries:  # nobody can ask for the results of a query that is forgotten
                s.expired[uid] = max(Cursor(epoch, sequence), s.expired.get(uid, Cursor(0, 0)))
        for epoch in event.epochs:
            del s.segments[epoch]


def plan_summary(state: State) -> str:
    """The plan as text for the record of changelogs; a very large plan is only counted, `explain` shows it."""
    queries = len(state.plan.placements)
    if queries <= SHOWN_QUERIES:
        return explain_plan(state.plan, state.running(), "text")
    return f"plan version {state.plan.version} · {queries} queries · {len(state.plan.groups)} groups"


def advanced(st: StreamState, planned: EpochPlanned, p: StreamProgress) -> StreamState:
    """A stream after an epoch: offset, counts and watermark. A watermark never moves back."""
    newest = _latest(st.max_time, p.max_time)
    by_data = None if newest is None else newest - st.schema.watermark_delay_ms
    last = planned.at_ms if p.tuples else st.last_data_ms
    timeout = st.schema.idle_timeout_ms
    return replace(
        st,
        offset=dict(planned.ends).get(p.stream, st.offset),
        last_data_ms=last,
        tuples=st.tuples + p.tuples,
        late=st.late + p.late,
        dead=st.dead + p.dead,
        max_time=newest,
        watermark=_latest(st.watermark, dict(planned.raised).get(p.stream), by_data),
        idle=timeout is not None and planned.at_ms - last >= timeout,
    )


def _latest(*times: int | None) -> int | None:
    return max((t for t in times if t is not None), default=None)
