"""The coordinator's state: everything that must survive a crash, and nothing else.

It is the fold of the event log. `StreamState` and `QueryRecord` are frozen; the coordinator replaces them, so a
reader on another thread that took a reference sees one consistent value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from optimizer.model.codec import plan_from_json, plan_to_json
from optimizer.model.plan import Plan, RunningQuery
from optimizer.model.types import StreamSchema
from runtime.api import Cursor, PlanEvent
from runtime.buckets.refs import JoinedRef, SourceRef
from runtime.connectors.base import ConnectorSpec, DeadLetter
from runtime.control.events import EpochPlanned
from runtime.log.codec import decode, encode, register
from runtime.results.segment import Segment

LETTERS_KEPT = 1000
PLANS_KEPT = 300


@dataclass(frozen=True, slots=True)
class StreamState:
    schema: StreamSchema
    source: ConnectorSpec
    offset: str
    last_data_ms: int
    tuples: int = 0
    late: int = 0
    dead: int = 0
    max_time: int | None = None
    watermark: int | None = None
    idle: bool = False

    @property
    def accept_from(self) -> int | None:
        """Earliest event time still accepted."""
        return None if self.watermark is None else self.watermark - self.schema.allowed_lateness_ms


@dataclass(frozen=True, slots=True)
class QueryRecord:
    """`epoch`: the first epoch it takes part in. `ended_version`: the plan version that no longer has it."""

    query: RunningQuery
    sinks: tuple[ConnectorSpec, ...]
    at_ms: int
    version: int
    epoch: int
    group: int
    running: bool = True
    active_until: int | None = None
    rows: int = 0
    last: Cursor | None = None
    """Of its latest rows."""


register(StreamState, QueryRecord, PlanEvent, Cursor)

SlotTable = dict[int, str]
Counts = dict[str, dict[int, tuple[int, int]]]
"""Per COUNT(*) query and start of window: (combinations so far, how often its row was delivered)."""


@dataclass
class State:
    """`slots[version][group]`: slot tables of all plan versions that open buckets refer to.

    `floors[uid]`: start of the query's first window still alive; older state is gone. It never moves back, even when
    a stream that was idle comes back and lowers the watermark. `expired[uid]`: the last place in the query's result log
    that retention has removed.
    """

    epoch: int = 0
    next_bucket: int = 1
    next_source: int = 1
    serial: int = 0
    plan: Plan = field(default_factory=Plan)
    executed: Plan = field(default_factory=Plan)
    streams: dict[str, StreamState] = field(default_factory=dict)
    queries: dict[str, QueryRecord] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    slots: dict[int, dict[int, SlotTable]] = field(default_factory=dict)
    sources: dict[int, SourceRef] = field(default_factory=dict)
    joined: dict[int, JoinedRef] = field(default_factory=dict)
    segments: dict[int, tuple[Segment, ...]] = field(default_factory=dict)
    letters: list[tuple[str, int, DeadLetter]] = field(default_factory=list)
    plans: list[PlanEvent] = field(default_factory=list)
    planned: EpochPlanned | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    floors: dict[str, int] = field(default_factory=dict)
    expired: dict[str, Cursor] = field(default_factory=dict)
    counts: Counts = field(default_factory=dict)

    def running(self) -> dict[str, RunningQuery]:
        return {uid: r.query for uid, r in list(self.queries.items()) if r.running}

    def to_json(self) -> Any:
        return {
            "epoch": self.epoch,
            "next_bucket": self.next_bucket,
            "next_source": self.next_source,
            "serial": self.serial,
            "plan": plan_to_json(self.plan),
            "executed": plan_to_json(self.executed),
            "streams": encode(self.streams),
            "queries": encode(self.queries),
            "names": self.names,
            "slots": [
                [version, group, sorted(table.items())]
                for version, groups in self.slots.items()
                for group, table in groups.items()
            ],
            "sources": encode(list(self.sources.values())),
            "joined": encode(list(self.joined.values())),
            "segments": [[epoch, encode(s)] for epoch, s in self.segments.items()],
            "letters": encode(self.letters),
            "plans": encode(self.plans),
            "planned": encode(self.planned),
            "seconds": self.seconds,
            "floors": self.floors,
            "expired": {uid: [c.epoch, c.sequence] for uid, c in self.expired.items()},
            "counts": [
                [uid, start, count, delivered]
                for uid, windows in self.counts.items()
                for start, (count, delivered) in windows.items()
            ],
        }

    @staticmethod
    def from_json(value: Any) -> State:
        slots: dict[int, dict[int, SlotTable]] = {}
        for version, group, table in value["slots"]:
            slots.setdefault(version, {})[group] = dict(table)
        counts: Counts = {}
        for uid, start, count, delivered in value["counts"]:
            counts.setdefault(uid, {})[start] = (count, delivered)
        return State(
            epoch=value["epoch"],
            next_bucket=value["next_bucket"],
            next_source=value["next_source"],
            serial=value["serial"],
            plan=plan_from_json(value["plan"]),
            executed=plan_from_json(value["executed"]),
            streams=decode(value["streams"]),
            queries=decode(value["queries"]),
            names=dict(value["names"]),
            slots=slots,
            sources={r.id: r for r in decode(value["sources"])},
            joined={r.id: r for r in decode(value["joined"])},
            segments={epoch: decode(s) for epoch, s in value["segments"]},
            letters=list(decode(value["letters"])),
            plans=list(decode(value["plans"])),
            planned=decode(value["planned"]),
            seconds=dict(value["seconds"]),
            floors=dict(value["floors"]),
            expired={uid: Cursor(*place) for uid, place in value["expired"].items()},
            counts=counts,
        )


def query_watermark(streams: Mapping[str, StreamState], query: RunningQuery) -> int | None:
    """Minimum over the query's streams that are not idle; None (minus infinity) when one has none."""
    mine = [streams[s] for s in query.query.streams if s in streams]
    marks = [s.watermark for s in mine if not s.idle] or [s.watermark for s in mine]
    known = [m for m in marks if m is not None]
    return min(known) if known and len(known) == len(marks) else None
