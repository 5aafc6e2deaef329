"""A state directory seen from outside: which state its log tells, which files that state lists, what else lies there.

Nothing here changes anything, and nothing needs the lock: the log is read as it is (the running platform only appends
to it), a torn last line is left where it is, and a snapshot that replaces log and predecessor while they are read only
means that reading starts again. So a person can look at a directory whose platform runs, has crashed, or will not
start.

`debris` says the same as the engine when it opens the directory: a file that no committed epoch lists does not exist.
While a platform runs, that is also true of what its current epoch has written so far.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optimizer.errors import AJoinError, FailedPrecondition, InternalError, NotFound
from runtime.control.coordinator import Coordinator
from runtime.control.state import State
from runtime.durable.restore import MARK
from runtime.log.codec import decode
from runtime.log.log import FORMAT

_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Found:
    """What the log tells. `torn`: bytes of a last record that was never finished."""

    state: State
    number: int
    records: int
    log_bytes: int
    snapshot_bytes: int
    torn: int


@dataclass(frozen=True, slots=True)
class Debris:
    """`path` relative to the state directory; `why` for people."""

    path: str
    bytes: int
    why: str


def is_running(directory: Path) -> bool:
    """Does a platform hold the lock? Asked with a shared lock that is given back at once."""
    try:
        with open(directory / "lock", "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def format_of(directory: Path) -> str:
    """As it is written there; refused where there is no state directory."""
    try:
        return (directory / "log" / "format").read_text().strip()
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(
            f"{directory} is no state directory: it has no log/format",
            reason="STATE_NOT_FOUND",
            hint="name the folder that `ajoin serve --state-dir` uses",
        ) from None


def read_state(directory: Path) -> Found:
    """The fold of the log. STATE_FORMAT or LOG_CORRUPT where the platform would not start either."""
    format = format_of(directory)
    if format != str(FORMAT):
        raise FailedPrecondition(
            f"{directory} was written in format {format}, this version reads {FORMAT}", reason="STATE_FORMAT"
        )
    for attempt in range(_ATTEMPTS):
        try:
            return _read(directory / "log")
        except FileNotFoundError:  # the platform has just written its next snapshot
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def _read(log: Path) -> Found:
    number = newest_snapshot(log)
    snapshot_path, log_path = log / f"snapshot-{number}.json", log / f"log-{number}.jsonl"
    state, snapshot_bytes = State(), 0
    if number:
        raw = snapshot_path.read_bytes()
        found = next(_lines(snapshot_path.name, raw), None)
        if found is None:
            raise InternalError(f"{snapshot_path.name} is damaged", reason="LOG_CORRUPT")
        state, snapshot_bytes = _understood(snapshot_path.name, 1, lambda: State.from_json(found[1])), len(raw)
    if not log_path.exists():
        if newest_snapshot(log) != number:
            raise FileNotFoundError(log_path)
        return Found(state, number, 0, 0, snapshot_bytes, 0)
    raw = log_path.read_bytes()
    coordinator = Coordinator(state)
    records = good = 0
    for end, record in _lines(log_path.name, raw, torn=True):
        records += 1
        good = end
        _understood(log_path.name, records, lambda record=record: coordinator.handle(decode(record)))
    return Found(state, number, records, len(raw), snapshot_bytes, len(raw) - good)


def newest_snapshot(log: Path) -> int:
    return max((int(p.stem.split("-")[1]) for p in log.glob("snapshot-*.json")), default=0)


def _lines(name: str, raw: bytes, *, torn: bool = False) -> Iterator[tuple[int, Any]]:
    """(end of the line, record). With `torn`, a last line that does not hold is what a crash left."""
    lines, end = raw.split(b"\n"), 0
    for number, line in enumerate(lines[:-1]):
        end += len(line) + 1
        if len(line) < 10 or line[:9] != b"%08x " % zlib.crc32(line[9:]):
            if torn and number == len(lines) - 2 and not lines[-1]:
                return
            raise InternalError(f"{name}, line {number + 1} is damaged", reason="LOG_CORRUPT")
        yield end, json.loads(line[9:])


def _understood(name: str, line: int, read: Any) -> Any:
    try:
        return read()
    except AJoinError:
        raise
    except Exception as e:
        what = f"{name}, line {line} cannot be understood: {type(e).__name__}: {e}"
        raise InternalError(what, reason="LOG_CORRUPT") from e


def tier_of(directory: Path) -> str:
    """The durable tier whose cache the directory is; empty: it stands alone."""
    try:
        return (directory / MARK).read_text().strip()
    except FileNotFoundError:
        return ""


# -- which files belong there -------------------------------------------------------------------------------------


def source_folder(stream: str) -> str:
    """Where a stream's source keeps what it keeps, below sources/."""
    return hashlib.blake2b(stream.encode(), digest_size=8).hexdigest()


def pushed_batches(directory: Path, stream: str) -> dict[int, Path]:
    """What a source of kind push keeps, by number."""
    folder = directory / "sources" / source_folder(stream) / "push"
    return {int(p.name.split(".")[0]): p for p in _children(folder) if p.name[0].isdigit()}


def bucket_files(state: State) -> set[str]:
    return {f for r in state.sources.values() for f in r.files} | {r.file for r in state.joined.values()}


def segment_files(state: State) -> set[str]:
    return {x.file for segments in state.segments.values() for x in segments}


def debris(directory: Path, state: State) -> list[Debris]:
    """What the next start would remove, and what nobody would ever look at again."""
    found: list[Debris] = []

    def add(path: Path, why: str) -> None:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            size = size_of(file)
            if size is not None:
                found.append(Debris(str(file.relative_to(directory)), size, why))

    for folder, listed in (("buckets", bucket_files(state)), ("results", segment_files(state))):
        for path in _children(directory / folder):
            if path.name not in listed:
                add(path, "half written" if path.name.endswith(".tmp") else "no committed epoch lists it")
    number = newest_snapshot(directory / "log")
    for path in _children(directory / "log"):
        old = path.stem.startswith(("snapshot-", "log-")) and not path.stem.endswith(f"-{number}")
        if path.suffix == ".tmp" or (old and path.suffix in (".json", ".jsonl")):
            add(path, "half written" if path.suffix == ".tmp" else "replaced by a newer snapshot")
    for path in sorted(directory.glob("*.tmp")):
        add(path, "half written")
    streams = {source_folder(name) for name in state.streams}
    for path in _children(directory / "sources"):
        if path.name not in streams:
            add(path, "of a stream that was deleted")
            continue
        for half in sorted(path.rglob("*.tmp")):  # pushed rows that were read are the source's business: it counts them
            add(half, "half written")
    return found


def _children(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def size_of(path: Path) -> int | None:
    """None: it is no file, or has just gone."""
    try:
        return path.stat().st_size if path.is_file() else None
    except FileNotFoundError:
        return None
