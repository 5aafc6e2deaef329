"""Is a state directory whole? `ajoin state verify` reads everything the log lists and names what is wrong.

Nothing is changed and nothing repaired: the platform does that by itself when it meets the damage. So each problem
says what the platform will do about it:

- the log, or its format: the platform does not start;
- a file of a source bucket: its tuples are read again from the offsets in the log, by the next epoch; if the source
  no longer has them, the platform stops with BUCKET_LOST (runtime.engine.repair);
- a joined bucket: made again from source buckets, by the next epoch;
- a result segment: its rows cannot be made again; their readers are told RESULTS_DAMAGED;
- pushed rows that no epoch has read: the platform stops at the epoch that needs them;
- the ledger of a files source: the platform does not start.

While a platform runs, files come and go. Whatever looks wrong is looked at again against the log as it is then, and
counts only if it is still listed. The cost is reading all state once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from optimizer.errors import AJoinError, InternalError
from runtime.buckets.file import verify as verify_bucket
from runtime.connectors.ledger import LEDGER, check_ledger
from runtime.control.expiry import lost_results
from runtime.control.invariants import validate_state
from runtime.control.state import State
from runtime.engine.sources import folder_of
from runtime.log.lock import is_locked
from runtime.results.log import ResultLog
from runtime.results.segment import Segment, SegmentIndex
from runtime.state_tools.consequences import MADE_AGAIN, folded_again, read_again
from runtime.state_tools.files import (
    LogReport,
    pushed_batches,
    read_state,
    size_of,
)


@dataclass(frozen=True, slots=True)
class Problem:
    """`file` relative to the state directory; `consequence`: what the platform will do about it."""

    file: str
    reason: str
    what: str
    consequence: str


@dataclass(frozen=True, slots=True)
class Verification:
    """`files` and `bytes`: what was read. `notes`: what is unusual and harmless, and which queries lack results."""

    directory: str
    running: bool
    epoch: int
    files: int
    bytes: int
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]


def verify(directory: Path) -> Verification:
    running = is_locked(directory)
    try:
        log = read_state(directory)
    except InternalError as e:
        stop = Problem("log", e.reason, e.message, "the platform does not start; restore a copy of the directory")
        return Verification(str(directory), running, 0, 0, 0, (stop,), ())
    problems = [*_state(log.state), *_buckets(directory, log.state), *_segments(directory, log.state)]
    problems += [*_pushed(directory, log.state), *_ledgers(directory, log.state)]
    if problems and running:
        problems = _still(directory, problems)
    listed = [directory / "buckets" / f for f in log.state.bucket_files]
    listed += [directory / "results" / f for f in log.state.segment_files]
    sizes = [size for p in listed if (size := size_of(p)) is not None]
    return Verification(
        str(directory),
        running,
        log.state.epoch,
        len(sizes),
        sum(sizes),
        tuple(problems),
        (*_notes(log), *_lost(directory, log.state)),
    )


def _state(s: State) -> Iterator[Problem]:
    try:
        validate_state(s)
    except InternalError as e:
        yield Problem("log", e.reason, e.message, "rows may be wrong; restore a copy of the directory")


def _still(directory: Path, problems: Sequence[Problem]) -> list[Problem]:
    """Those whose file the log still lists."""
    now = read_state(directory).state
    listed = {f"buckets/{f}" for f in now.bucket_files} | {f"results/{f}" for f in now.segment_files}
    return [p for p in problems if p.file in listed or p.file == "log" or p.reason == "SOURCE_DAMAGED"]


def _notes(log: LogReport) -> tuple[str, ...]:
    notes = []
    if log.torn:
        notes.append(
            f"log-{log.number}.jsonl ends in {log.torn} bytes of a record that was never acknowledged; "
            "the next start cuts them off"
        )
    notes += [f"log/{name} is no file of the platform and is left alone" for name in log.foreign]
    if log.state.planned is not None:
        notes.append(f"epoch {log.state.planned.epoch} is planned and not committed; the next start runs it")
    return tuple(notes)


def _lost(directory: Path, s: State) -> Iterator[str]:
    """Missing segments, by whom it concerns."""
    yield from map(str, lost_results(s.queries, ResultLog(directory / "results").missing(s.segments)))


# -- buckets ------------------------------------------------------------------------------------------------------


def _buckets(directory: Path, s: State) -> Iterator[Problem]:
    folder = directory / "buckets"
    for ref in s.sources.values():
        for name in sorted(ref.files):
            yield from _bucket(folder / name, s.platform, read_again(s, ref))
    for joined in s.joined.values():
        yield from _bucket(folder / joined.file, s.platform, MADE_AGAIN)
    for partial in s.partials.values():
        yield from _bucket(folder / partial.file, s.platform, folded_again(s, partial))


def _bucket(path: Path, platform: str, consequence: str) -> Iterator[Problem]:
    try:
        verify_bucket(path, platform)
    except AJoinError as e:
        yield Problem(f"buckets/{path.name}", e.reason, e.message, consequence)


# -- results ------------------------------------------------------------------------------------------------------


def _segments(directory: Path, s: State) -> Iterator[Problem]:
    folder = directory / "results"
    for epoch, segments in sorted(s.segments.items()):
        for segment in segments:
            try:
                what = segment_problem((folder / segment.file).read_bytes(), segment)
            except FileNotFoundError:
                what = "the file is missing"
            except OSError as e:
                what = f"it cannot be read: {e.strerror or e}"
            if what:
                yield Problem(f"results/{segment.file}", "RESULTS_DAMAGED", what, lost_rows(epoch, segment))


def lost_rows(epoch: int, segment: Segment) -> str:
    return f"{segment.rows:,} rows of epoch {epoch} cannot be made again: their readers are told RESULTS_DAMAGED"


def segment_problem(data: bytes, segment: Segment) -> str:
    """What is wrong with a segment; empty: nothing. Every entry must be a whole Arrow stream of valid values."""
    if len(data) != segment.bytes:
        return f"it has {len(data):,} bytes instead of {segment.bytes:,}"
    index = SegmentIndex.of_bytes(data[segment.bytes - segment.index :], segment)
    if index is None:
        return "the checksum of its index does not match"
    for entry in index:
        if not entry.matches(data[entry.offset : entry.offset + entry.length]):
            return f"the checksum of the rows of {entry.uid} at byte {entry.offset} does not match"
        try:
            with pa.ipc.open_stream(data[entry.offset : entry.offset + entry.length]) as stream:
                batch = stream.read_next_batch()
            batch.validate(full=True)
        except (pa.ArrowException, StopIteration, OSError, ValueError) as e:
            return f"the rows of {entry.uid} at byte {entry.offset} cannot be read: {str(e).splitlines()[0]}"
        if batch.num_rows > entry.rows:
            return f"the rows of {entry.uid} at byte {entry.offset} are {batch.num_rows}, not {entry.rows}"
    return ""


# -- what sources keep --------------------------------------------------------------------------------------------


def _pushed(directory: Path, s: State) -> Iterator[Problem]:
    """Segments from the stream's offset up to what the planned epoch needs, or to the newest there is."""
    ends = dict(s.planned.ends) if s.planned is not None else {}
    for name, st in s.streams.items():
        if st.source.kind != "push":
            continue
        there = pushed_batches(directory, name)
        start = int(st.position.offset)
        end = max([int(ends.get(name, st.position).offset), *(n + 1 for n in there)])
        for number in range(start, end):
            if number not in there:
                yield Problem(
                    f"sources/{folder_of(name)}/push/{number:010d}",
                    "PUSH_MISSING",
                    f"batch {number} that was pushed to stream {name} is missing",
                    "the platform stops at the epoch that reads it",
                )


def _ledgers(directory: Path, s: State) -> Iterator[Problem]:
    for name, st in s.streams.items():
        if st.source.kind == "files":
            file = f"sources/{folder_of(name)}/{LEDGER}"
            try:
                check_ledger(directory / file, int(st.position.offset))
            except InternalError as e:
                yield Problem(file, e.reason, f"{e.message} (stream {name})", "the platform does not start")
