"""A state directory seen from outside: which state its log tells, which files that state lists, what else lies there.

Nothing here changes anything, and nothing needs the lock: the log is read as it is (the running platform only appends
to it), a torn last line is left where it is, and a snapshot that replaces log and predecessor while they are read only
means that reading starts again. So a person can look at a directory whose platform runs, has crashed, or will not
start.

`debris` says the same as the engine when it opens the directory: a file that no committed epoch lists does not exist.
While a platform runs, that is also true of what its current epoch has written so far.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from optimizer.errors import AJoinError, InternalError, NotFound
from runtime.connectors.push import batches_in
from runtime.control.fold import handle
from runtime.control.state import State
from runtime.engine.sources import folder_of
from runtime.log.codec import decode
from runtime.log.framing import read_frames
from runtime.log.log import check_format
from runtime.log.snapshots import foreign, log_name, newest_snapshot, replaced, snapshot_name
from runtime.store.mark import check_alone

_ATTEMPTS = 5

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LogReport:
    """What the log tells. `torn`: bytes of a last record that was never finished. `foreign`: names in the log folder
    that are not the platform's."""

    state: State
    number: int
    records: int
    log_bytes: int
    snapshot_bytes: int
    torn: int
    foreign: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Debris:
    """`path` relative to the state directory; `why` for people."""

    path: str
    bytes: int
    why: str


def format_of(directory: Path) -> str:
    """As it is written there; refused where there is no state directory, or its state is in a store."""
    check_alone(directory)
    try:
        return (directory / "log" / "format").read_text().strip()
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(
            f"{directory} is no state directory: it has no log/format",
            reason="STATE_NOT_FOUND",
            hint="name the folder that `ajoin serve --state-dir` uses",
        ) from None


def read_state(directory: Path) -> LogReport:
    """The fold of the log. STATE_FORMAT or LOG_CORRUPT where the platform would not start either."""
    check_format(str(directory), format_of(directory))
    for attempt in range(_ATTEMPTS):
        try:
            return _read(directory / "log")
        except FileNotFoundError:  # the platform has just written its next snapshot
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def _read(log: Path) -> LogReport:
    snapshot = newest_snapshot(log)
    number, log_path, state = snapshot.number, log / log_name(snapshot.number), State()
    if number:
        state = _understood(snapshot_name(number), 1, lambda: State.from_json(snapshot.state))
    others = tuple(foreign(log, number))
    if not log_path.exists():
        if newest_snapshot(log).number != number:
            raise FileNotFoundError(log_path)
        return LogReport(state, number, 0, 0, snapshot.bytes, 0, others)
    raw, records, good = log_path.read_bytes(), 0, 0
    for record, end, _ in read_frames(log_path.name, raw, after=snapshot.checksum, torn=True):
        records, good = records + 1, end
        state = _understood(log_path.name, records, partial(_after, state, record))
    return LogReport(state, number, records, len(raw), snapshot.bytes, len(raw) - good, others)


def _after(state: State, record: Any) -> State:
    return handle(state, decode(record)).state


def _understood(name: str, line: int, read: Callable[[], T]) -> T:
    try:
        return read()
    except AJoinError:
        raise
    except Exception as e:
        what = f"{name}, line {line} cannot be understood: {type(e).__name__}: {e}"
        raise InternalError(what, reason="LOG_CORRUPT") from e


# -- which files belong there -------------------------------------------------------------------------------------


def pushed_batches(directory: Path, stream: str) -> dict[int, Path]:
    """What a source of kind push keeps, by number."""
    folder = directory / "sources" / folder_of(stream) / "push"
    return batches_in(folder) if folder.is_dir() else {}


def debris(directory: Path, state: State) -> list[Debris]:
    """What the next start would remove, and what would never be read again."""
    remains: list[Debris] = []

    def add(path: Path, why: str) -> None:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            size = size_of(file)
            if size is not None:
                remains.append(Debris(str(file.relative_to(directory)), size, why))

    for folder, listed in (("buckets", state.bucket_files), ("results", state.segment_files)):
        for path in _children(directory / folder):
            if path.name not in listed:
                add(path, "half written" if path.name.endswith(".tmp") else "no committed epoch lists it")
    log = directory / "log"
    for path in replaced(log, newest_snapshot(log).number):
        add(path, "replaced by a newer snapshot")
    for path in (*sorted(log.glob("*.tmp")), *sorted(directory.glob("*.tmp"))):
        add(path, "half written")
    streams = {folder_of(name) for name in state.streams}
    for path in _children(directory / "sources"):
        if path.name not in streams:
            add(path, "of a stream that was deleted")
            continue
        for half in sorted(path.rglob("*.tmp")):  # pushed rows that were read are the source's business: it counts them
            add(half, "half written")
    return remains


def _children(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def size_of(path: Path) -> int | None:
    """None: it is no file, or has just gone."""
    try:
        return path.stat().st_size if path.is_file() else None
    except FileNotFoundError:
        return None
