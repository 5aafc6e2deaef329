"""What is in a state directory or a store, in numbers: `ajoin state inspect`.

The log is folded, and looked up how large the listed files or objects are. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from optimizer.errors import InternalError
from runtime.api import QueryState
from runtime.buckets.file import read, read_header
from runtime.control.state import State
from runtime.engine.sources import folder_of
from runtime.log.lock import is_locked
from runtime.state_tools.files import Debris, LogReport, debris, format_of, pushed_batches, read_state, size_of
from runtime.state_tools.partials import PartialReport, partial_reports
from runtime.store.claim import LAYOUT
from runtime.store.contents import read_store
from runtime.store.objects import shown
from runtime.store.source_folder import newest_copies


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
    """`platform`: the id that every file of this state carries. `foreign`: files in the log folder that are not
    the platform's."""

    directory: str
    running: bool
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


class _Place(NamedTuple):
    """Where a state lies. `size`: of a file, by its name below the place; None: it is not there. `pushed`: names of the
    batches that a stream's source keeps."""

    name: str
    running: bool
    format: str
    log: LogReport
    size: Callable[[str], int | None]
    meta: Callable[[str], Mapping[str, Any]]
    pushed: Callable[[str], Iterable[str]]
    debris: tuple[Debris, ...] = ()


def inspect(directory: Path) -> StateReport:
    log = read_state(directory)
    return _report(
        _Place(
            str(directory),
            is_locked(directory),
            format_of(directory),
            log,
            lambda name: size_of(directory / name),
            lambda file: read(directory / "buckets" / file, log.state.platform).meta,
            lambda stream: [str(p.relative_to(directory)) for p in pushed_batches(directory, stream).values()],
            tuple(debris(directory, log.state)),
        )
    )


def inspect_store(uri: str) -> StateReport:
    """The same of a store, as it is at the moment. What no record lists may be in use, so it is no debris here."""
    found = read_store(uri)
    state, store = found.state, found.store
    sources = newest_copies(found.objects, found.truth)

    def meta(file: str) -> Mapping[str, Any]:
        try:
            return read_header(file, state.platform, None, lambda at, n: store.read(f"buckets/{file}", at, n)).meta
        except FileNotFoundError as e:
            raise InternalError("there is no such object", reason="BUCKET_MISSING") from e

    log = LogReport(state, found.number, found.records, found.log_bytes, found.snapshot_bytes, 0, ())
    return _report(
        _Place(
            shown(uri),
            False,
            LAYOUT,
            log,
            found.objects.get,
            meta,
            lambda stream: [
                name
                for file, name in sources.items()
                if state.streams[stream].source.kind == "push" and file.startswith(f"{folder_of(stream)}/")
            ],
        )
    )


def _report(place: _Place) -> StateReport:
    log, s = place.log, place.log.state
    planned = s.planned
    return StateReport(
        directory=place.name,
        running=place.running,
        format=place.format,
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
        streams=tuple(_stream(place, name) for name in sorted(s.streams)),
        queries=_queries(s),
        joins=_joins(place),
        partials=partial_reports(place.meta, s),
        results=_measure(
            place, ((epoch, f"results/{x.file}") for epoch, segments in s.segments.items() for x in segments)
        ),
        result_rows=sum(x.rows for segments in s.segments.values() for x in segments),
        dead_letters=len(s.letters),
        debris=place.debris,
        foreign=tuple(f"log/{name}" for name in log.foreign),
    )


def _stream(place: _Place, name: str) -> StreamReport:
    s = place.log.state
    st = s.streams[name]
    mine = [r for r in s.sources.values() if r.stream == name]
    views = sorted({(r.epoch, f"buckets/{f}") for r in mine for f in r.files if f != r.file})
    return StreamReport(
        name=name,
        source=st.source.kind,
        offset=st.position.text,
        watermark=st.watermark,
        tuples=st.tuples,
        late=st.late,
        dead=st.dead,
        rows=sum(r.rows for r in mine),
        buckets=_measure(place, ((r.epoch, f"buckets/{r.file}") for r in mine)),
        views=_measure(place, views),
        pushed=_measure(place, ((None, file) for file in place.pushed(name))),
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


def _joins(place: _Place) -> tuple[JoinReport, ...]:
    joined = place.log.state.joined.values()
    by_node = {n: [r for r in joined if r.node == n] for n in sorted({r.node for r in joined})}
    return tuple(
        JoinReport(n, sum(r.items for r in refs), _measure(place, ((r.epoch, f"buckets/{r.file}") for r in refs)))
        for n, refs in by_node.items()
    )


def _measure(place: _Place, files: Iterable[tuple[int | None, str]]) -> Files:
    found = [(epoch, place.size(name)) for epoch, name in files]
    epochs = [epoch for epoch, _ in found if epoch is not None]
    sizes = [size for _, size in found if size is not None]
    return Files(len(found), sum(sizes), len(found) - len(sizes), (min(epochs), max(epochs)) if epochs else None)
