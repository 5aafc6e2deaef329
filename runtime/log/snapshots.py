"""Which snapshot of a log folder counts, and which files there are not the platform's.

A snapshot says its own number and what it comes after: the checksum of the last line of the log it replaces, which
stands for that whole log (framing.py). Its own checksum is what the first line of the log after it comes after. From
that follows, whatever somebody copies into the folder:

- A snapshot whose own number is not that of its name is a stray copy. It is left alone, and said.
- Two snapshots lie side by side only when a crash cut off the removal of the older one; then the newer one comes after
  the older one's log. If it does not, one of the two is from another time or place, nobody can know which, and the
  platform does not start.
- A log without its snapshot is the same: what the snapshot said is lost, or the log does not belong here.
- Any other name (an editor's copy, `snapshot-old.json`) is foreign: left alone, and said.

So an old snapshot is never taken for the newest, and what was acknowledged after it is not lost.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any, NamedTuple

from optimizer.errors import InternalError
from runtime.log.framing import frame, read_frame, read_frames

logger = logging.getLogger("ajoin.log")

_NAMES = {
    "snapshot": re.compile(r"snapshot-(0|[1-9][0-9]*)\.json"),
    "log": re.compile(r"log-(0|[1-9][0-9]*)\.jsonl"),
}
_OURS = {"format", "delivered"}


class Snapshot(NamedTuple):
    """`number`: what it says itself; 0: there is none. `checksum`: what the log after it comes after. `after`: the
    checksum at which the log before it ends."""

    number: int
    state: Any | None
    checksum: int
    after: int
    bytes: int


NO_SNAPSHOT = Snapshot(0, None, 0, 0, 0)


def snapshot_name(number: int) -> str:
    return f"snapshot-{number}.json"


def log_name(number: int) -> str:
    return f"log-{number}.jsonl"


_KINDS = (("snapshot", snapshot_name), ("log", log_name))


def frame_snapshot(number: int, after: int, state: Any) -> str:
    return frame({"number": number, "after": f"{after:08x}", "state": state})


def parse_snapshot(name: str, raw: bytes) -> Snapshot:
    record, _, checksum = read_frame(name, raw)
    try:
        return Snapshot(record["number"], record["state"], checksum, int(record["after"], 16), len(raw))
    except (KeyError, TypeError, ValueError) as e:
        raise InternalError(f"{name} is no snapshot of a log", reason="LOG_CORRUPT") from e


def newest_snapshot(directory: Path) -> Snapshot:
    """The one that counts. LOG_CORRUPT if that cannot be known; FileNotFoundError if a running platform has just
    replaced it."""
    snapshots, logs = _numbers(directory, "snapshot"), _numbers(directory, "log")
    own = [found for n in snapshots if (found := _read(directory, n)).number == n]
    newest = own[-1] if own else NO_SNAPSHOT
    for older in own[:-1]:
        if older.number + 1 == newest.number and newest.after == _end(directory, older):
            continue
        raise InternalError(
            f"{directory / snapshot_name(newest.number)} does not follow {snapshot_name(older.number)} and its log, "
            "which lie beside it: one of them is from another time or place",
            reason="LOG_CORRUPT",
            hint="move the one that does not belong here out of the folder",
        )
    alone = [n for n in logs if n > newest.number and not (directory / snapshot_name(n)).exists()]
    lost = snapshots and not own and 0 not in logs
    if alone or lost:
        what = f"{log_name(alone[-1])} has no snapshot" if alone else "no snapshot is the one its name says"
        raise InternalError(
            f"in {directory}, {what}",
            reason="LOG_CORRUPT",
            hint="restore it from a copy of the state directory, or move away what does not belong here",
        )
    return newest


def replaced(directory: Path, number: int) -> list[Path]:
    """Files that snapshot `number` has replaced: snapshots first, so that none is ever without its log."""
    return [directory / name(n) for kind, name in _KINDS for n in _numbers(directory, kind) if n < number]


def foreign(directory: Path, number: int) -> list[str]:
    """Names in the folder that the platform neither wrote nor reads, where snapshot `number` counts."""
    ours = {name(n) for kind, name in _KINDS for n in _numbers(directory, kind) if n <= number} | _OURS
    return sorted(p.name for p in directory.iterdir() if p.name not in ours and not p.name.endswith(".tmp"))


def _numbers(directory: Path, kind: str) -> list[int]:
    return sorted(int(m[1]) for p in directory.iterdir() if (m := _NAMES[kind].fullmatch(p.name)))


def _read(directory: Path, number: int) -> Snapshot:
    path = directory / snapshot_name(number)
    found = parse_snapshot(path.name, path.read_bytes())
    if found.number != number:
        logger.warning("%s is a copy of snapshot %d and is left alone", path, found.number)
    return found


def _end(directory: Path, snapshot: Snapshot) -> int:
    """The checksum at which the log after the snapshot ends."""
    path, end = directory / log_name(snapshot.number), snapshot.checksum
    if path.exists():
        for framed in read_frames(path.name, path.read_bytes(), after=end):
            end = framed.checksum
    return end
