"""The source stage as a value: what to read, under which plan, into which buckets; so that it can run ahead.

Everything the stage needs is fixed before it starts: offset ranges, plan version, the watermark that decides
lateness, bucket ids. Hence the source stage of epoch e+1 can run while epoch e still joins (pipeline parallelism): it
needs nothing from the joins of epoch e. If the plan changes before epoch e+1 begins, what ran ahead is thrown away
and read again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from runtime.buckets.refs import Origin
from runtime.buckets.store import BucketStore
from runtime.connectors.base import Read, Source, carried
from runtime.control.state import StreamState
from runtime.execution.executor import Executor
from runtime.execution.physical import Physical
from runtime.operators.floors import Floor
from runtime.operators.source import SourceReport, SourceShared, SourceTask, run_source


@dataclass(frozen=True, slots=True)
class SourceStage:
    """`ends`: up to where each stream is read. Source buckets have even ids, joined ones odd ids, so that both can be
    handed out at the same time; `first` is the first half id."""

    epoch: int
    streams: Mapping[str, StreamState]
    ends: Mapping[str, str]
    first: int
    physical: Physical
    store: BucketStore
    key: str
    floors: tuple[Floor, ...] = ()
    separate: bool = False
    """One task per read and query group instead of one per read, as if each query had a job of its own."""
    members: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """The queries of each group, for that."""

    def tasks(self, sources: Mapping[str, Source]) -> list[SourceTask]:
        out: list[SourceTask] = []
        for stream, end in sorted(self.ends.items()):
            st = self.streams[stream]
            if end != st.offset:
                for number, read in enumerate(sources[stream].reads(json.loads(st.offset), json.loads(end))):
                    whole = carried(read) if self.store.by_value else read
                    out += self._of_read(stream, whole, Origin(st.offset, end, number, st.accept_from), len(out))
        return out

    def _of_read(self, stream: str, read: Read, origin: Origin, number: int) -> list[SourceTask]:
        if not (self.separate and stream in self.physical.sources and self.physical.sources[stream].views):
            return [SourceTask(stream, 2 * (self.first + number), read, origin)]
        groups = sorted({v.group for v in self.physical.sources[stream].views})
        return [
            SourceTask(
                stream,
                2 * (self.first + number + i),
                read,
                replace(origin, queries=self.members.get(group, ())),
                group,
                counts=i == 0,
            )
            for i, group in enumerate(groups)
        ]

    def run(self, executor: Executor, sources: Mapping[str, Source]) -> list[SourceReport]:
        tasks = self.tasks(sources)
        if not tasks:
            return []
        schemas = {t.stream: self.streams[t.stream].schema for t in tasks}
        shared = SourceShared(
            self.store.for_tasks(()),
            self.physical.version,
            self.epoch,
            self.physical.shipped_sources,
            schemas,
            self.key,
            self.floors,
        )
        return executor.run(f"epoch {self.epoch}: source", run_source, shared, tasks)
