"""Named places where a process can die, so that tests can kill it at each of them.

Every step that leaves something on disk (the log, buckets, segments, sinks, retention) or lies between two such
steps reaches its point by name. Unarmed, which is always except in tests, that is one look at a global. Armed, the
process dies at the n-th hit of one point:

- inside a test, `arm` raises `Crashed`; the test then abandons the engine, as a dead process would, and opens
  another one on the same directory;
- in any process, AJOIN_CRASH_AT="epoch.committed:3" in the environment means SIGKILL at the third hit. Several, with
  commas, are several traps. Spark's Python workers inherit the environment, so tasks can be hit as well; each process
  counts for itself. With AJOIN_CRASH_ONCE set to a folder, a process dies only if it can create a file with the
  point's name there, so that a task which is repeated in another process gets through.

`POINTS` is the whole list; reaching a name that is not in it is an error as soon as anything is armed, and a test
checks that a story reaches them all. docs/faults.md says what is recovered from each.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NoReturn

POINTS: Final[Mapping[str, str]] = {
    "log.append.before": "a record is decided, nothing of it is written",
    "log.append.torn": "half of the record's line is written",
    "log.append.after": "the record is on disk, nobody acted upon it",
    "snapshot.written": "a snapshot is complete under its temporary name",
    "snapshot.renamed": "the snapshot counts, the log it replaces is still there",
    "snapshot.tidied": "the old log is gone, the new one does not exist yet",
    "stream.made": "a new stream's source has its folder, the log does not know the stream",
    "stream.recorded": "the log knows the stream, nobody was told",
    "stream.deleted": "the log has the deletion, the stream's folder is still there",
    "apply.recorded": "a changelog is on disk, its clients were not told",
    "file.written": "a pushed batch, a mark or a sink's file is complete under its temporary name",
    "push.appended": "a pushed batch is in its place, the caller was not told",
    "push.marked": "the mark of a trim is written, the batches below it are still there",
    "preparation.portion": "a portion of what a change of the plan needs is made, no record lists it",
    "epoch.planned": "the epoch's offsets and plan version are on disk, nothing ran",
    "epoch.views": "views that the new plan needs are rebuilt, joined buckets are not",
    "epoch.transition": "all state that the new plan needs is rebuilt",
    "epoch.source": "the source stage is done",
    "epoch.join": "one level of joins is done, its rows are in segments",
    "epoch.resumed": "a portion of what earlier epochs have postponed is done, its rows are in segments",
    "epoch.closed": "rows of windows that close are in segments, what is carried of their partials is in buckets",
    "epoch.commit": "everything is written, the commit record is not",
    "epoch.committed": "the commit record is on disk, nothing is cleaned up",
    "epoch.cleaned": "old buckets and batches are gone, sinks were not told",
    "epoch.done": "the epoch is finished, its report did not get out",
    "bucket.written": "a task's bucket is complete under its temporary name",
    "bucket.renamed": "a task's bucket is in its place, the task has not answered",
    "bucket.dropped": "one of the buckets that are not needed any more is gone",
    "segment.written": "a task's segment is complete under its temporary name",
    "segment.renamed": "a task's segment is in its place, the task has not answered",
    "segment.dropped": "one of the segments beyond the retention is gone",
    "result.forgotten": "the log says that results have expired, their segments are still there",
    "delivery.begun": "an epoch is about to be handed over to a sink",
    "delivery.sink": "a sink has its rows of the epoch, its progress is not written",
    "delivery.written": "a sink has the epoch, the file that says so has its temporary name",
    "delivery.marked": "the file says so",
    "store.record": "the record is in the store, whose owner was not looked at again",
    "store.snapshot": "the snapshot is in the store, the log it replaces is still there",
    "store.source": (
        "a pushed batch is in the store, the caller was not told; or the copy of a file, and no epoch has read it"
    ),
    "store.swept": "one of the objects that are not needed any more is gone from the store",
    "recover.read": "snapshot and log are read again, nothing was touched",
    "recover.cleaned": "debris of the crash before is gone",
    "recover.delivered": "sinks are told what they missed, the planned epoch has not run again",
}
"""What is on disk when a process dies at each point."""

AT, ONCE = "AJOIN_CRASH_AT", "AJOIN_CRASH_ONCE"

Death = Callable[[str], None]
"""Gets the point's name; need not come back."""


class Crashed(BaseException):
    """The process is gone. Not an Exception: nothing may catch it and go on."""


class Trap:
    """Counts hits; dies at hit number `at[name]` of `name`. `hits`: how often each point was reached."""

    def __init__(self, at: Mapping[str, int], die: Death) -> None:
        for name in at:
            _known(name)
        self._at, self._die = at, die
        self.hits: Counter[str] = Counter()

    def reach(self, name: str, before_dying: Callable[[], object] | None) -> None:
        _known(name)
        self.hits[name] += 1
        if self.hits[name] == self._at.get(name):
            if before_dying is not None:
                before_dying()
            self._die(name)


def _known(name: str) -> None:
    if name not in POINTS:
        raise ValueError(f"there is no crash point {name!r}")


def reach(name: str, before_dying: Callable[[], object] | None = None) -> None:
    """The process is here. `before_dying` is called only if the process is about to die here."""
    if _trap is not None:
        _trap.reach(name, before_dying)


@contextmanager
def arm(name: str | None, count: int = 1) -> Iterator[Trap]:
    """In this process: `Crashed` at the given hit inside the block; None: only count."""
    global _trap
    before, _trap = _trap, Trap({} if name is None else {name: count}, _crash)
    try:
        yield _trap
    finally:
        _trap = before


def _crash(name: str) -> NoReturn:
    raise Crashed(name)


def _kill(name: str) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise Crashed(name)  # never reached


class _KillOnce:
    """The first process that creates the point's file dies; the others go on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, name: str) -> None:
        try:
            (self._folder / name).touch(exist_ok=False)
        except FileExistsError:
            return
        _kill(name)


def _from_environment(environment: Mapping[str, str]) -> Trap | None:
    wanted, once = environment.get(AT), environment.get(ONCE)
    if not wanted:
        return None
    parts = [part.strip().partition(":") for part in wanted.split(",")]
    at = {name: int(count or 1) for name, _, count in parts}
    return Trap(at, _kill if not once else _KillOnce(Path(once)))


_trap: Trap | None = _from_environment(os.environ)
