"""What is in a state directory, in numbers: `ajoin state inspect`.

`inspect` folds the log (runtime.state_tools.files) and looks up how large the listed files are. It changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from runtime.api import QueryState
from runtime.control.state import State
from runtime.durable.mark import tier_of
from runtime.durable.shown import shown
from runtime.log.lock import is_locked
from runtime.state_tools.files import Debris, debris, format_of, pushed_batches, read_state
from runtime.state_tools.partials import PartialReport, partial_reports


@dataclass(frozen=True, slots=True)
class Files:
    """`missing`: listed, but not there. `epochs`: the first and the last that made one of them."""

    files: int = 0
    bytes: int = 0
    missing: int = 0
    epochs: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class StreamReport:
    """`views`: views that were made anew, in files of their own. `pushed`: rows kept by a source of kind push."""

    name: str
    source: str
    offset: str
    watermark: int | None
    tuples: int
    late: int
    dead: int
    rows: int
    buckets: Files
    views: Files
    pushed: Files


@dataclass(frozen=True, slots=True)
class QueryReport:
    id: str
    uid: str
    state: QueryState
    group: int
    rows: int
    active_from: int | None
    active_until: int | None
    watermark: int | None
    sql: str


@dataclass(frozen=True, slots=True)
class JoinReport:
    """Joined buckets of one join node."""

    node: str
    items: int
    buckets: Files


@dataclass(frozen=True, slots=True)
class PlannedReport:
    """An epoch that was planned and not committed; the next start runs it with these offsets."""

    epoch: int
    plan_version: int
    ends: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class StateReport:
    """`tier`: the durable tier that the directory caches; files that are missing here are there. `platform`: the id
    that every file of this state carries. `foreign`: files in the log folder that are not the platform's."""

    directory: str
    running: bool
    tier: str
    format: str
    platform: str
    epoch: int
    plan_version: int
    executed_version: int
    partitions: int
    groups: int
    snapshot: int
    snapshot_bytes: int
    records: int
    log_bytes: int
    torn_bytes: int
    planned: PlannedReport | None
    streams: tuple[StreamReport, ...]
    queries: tuple[QueryReport, ...]
    joins: tuple[JoinReport, ...]
    partials: tuple[PartialReport, ...]
    results: Files
    result_rows: int
    dead_letters: int
    debris: tuple[Debris, ...]
    foreign: tuple[str, ...]


def inspect(directory: Path) -> StateReport:
    log = read_state(directory)
    s = log.state
    planned = s.planned
    return StateReport(
        directory=str(directory),
        running=is_locked(directory),
        tier=shown(tier_of(directory)),
        format=format_of(directory),
        platform=s.platform,
        epoch=s.epoch,
        plan_version=s.plan.version,
        executed_version=s.executed.version,
        partitions=s.plan.partitioning.count,
        groups=len(s.plan.groups),
        snapshot=log.number,
        snapshot_bytes=log.snapshot_bytes,
        records=log.records,
        log_bytes=log.log_bytes,
        torn_bytes=log.torn,
        planned=None
        if planned is None
        else PlannedReport(
            planned.epoch, planned.version, tuple((end.stream, end.position.text) for end in planned.ends)
        ),
        streams=tuple(_stream(directory, s, name) for name in sorted(s.streams)),
        queries=_queries(s),
        joins=_joins(directory / "buckets", s),
        partials=partial_reports(directory / "buckets", s),
        results=_measure(
            directory / "results", ((epoch, x.file) for epoch, segments in s.segments.items() for x in segments)
        ),
        result_rows=sum(x.rows for segments in s.segments.values() for x in segments),
        dead_letters=len(s.letters),
        debris=tuple(debris(directory, s)),
        foreign=tuple(f"log/{name}" for name in log.foreign),
    )


def _stream(directory: Path, s: State, name: str) -> StreamReport:
    st = s.streams[name]
    mine = [r for r in s.sources.values() if r.stream == name]
    views = sorted({(r.epoch, f) for r in mine for f in r.files if f != r.file})
    pushed = pushed_batches(directory, name)
    return StreamReport(
        name=name,
        source=st.source.kind,
        offset=st.position.text,
        watermark=st.watermark,
        tuples=st.tuples,
        late=st.late,
        dead=st.dead,
        rows=sum(r.rows for r in mine),
        buckets=_measure(directory / "buckets", ((r.epoch, r.file) for r in mine)),
        views=_measure(directory / "buckets", views),
        pushed=_measure(directory, ((None, str(p.relative_to(directory))) for p in pushed.values())),
    )


def _queries(s: State) -> tuple[QueryReport, ...]:
    return tuple(
        QueryReport(
            id=r.query.id,
            uid=uid,
            state=r.state,
            group=r.group,
            rows=r.rows,
            active_from=r.query.active_from,
            active_until=r.active_until,
            watermark=s.watermark(r.query) if r.running else r.active_until,
            sql=r.query.query.sql,
        )
        for uid, r in sorted(s.queries.items(), key=lambda item: (item[1].query.id, item[1].at_ms))
    )


def _joins(folder: Path, s: State) -> tuple[JoinReport, ...]:
    nodes = sorted({r.node for r in s.joined.values()})
    by_node = {n: [r for r in s.joined.values() if r.node == n] for n in nodes}
    return tuple(
        JoinReport(n, sum(r.items for r in refs), _measure(folder, ((r.epoch, r.file) for r in refs)))
        for n, refs in by_node.items()
    )


def _measure(folder: Path, files: Iterable[tuple[int | None, str]]) -> Files:
    count = size = missing = 0
    epochs: list[int] = []
    for epoch, name in files:
        count += 1
        if epoch is not None:
            epochs.append(epoch)
        try:
            size += (folder / name).stat().st_size
        except FileNotFoundError:
            missing += 1
    return Files(count, size, missing, (min(epochs), max(epochs)) if epochs else None)
