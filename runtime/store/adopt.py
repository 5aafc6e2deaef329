"""A state directory that gets a store: its files become the store's first objects.

    nothing in the store, a state in the directory     everything is uploaded before the first snapshot
    a state in the store, the same in the directory    a crash cut this short: what is local is removed
    a state in the store, another in the directory     refused: nobody can know which one is meant
    nothing in the store, a directory that was cache   refused: perhaps the store is not mounted

Buckets and segments keep the names that they had in the directory, so references stay what they are.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from optimizer.errors import FailedPrecondition
from runtime.control.state import State
from runtime.log.log import Log, LogContents
from runtime.store.mark import store_of
from runtime.store.objects import Objects, shown

PROGRESS = Path("log") / "delivered"


def local_state(directory: Path, uri: str) -> LogContents:
    """Of a directory whose store is empty."""
    before = store_of(directory)
    if before:
        raise FailedPrecondition(
            f"the state of {directory} is in the store {before}, and {shown(uri)} is empty",
            reason="STATE_IN_STORE",
            hint="is it the right one, and mounted? to begin anew in it, use an empty --state-dir",
        )
    return _read(directory) if has_log(directory) else LogContents(None, [])


def check_leftover(directory: Path, uri: str, stored: LogContents) -> None:
    if not has_log(directory):
        return
    local = _read(directory).snapshot
    if local is None or stored.snapshot is None or local["platform"] != stored.snapshot["platform"]:
        raise FailedPrecondition(
            f"{directory} holds a state, and the store {shown(uri)} holds another one",
            reason="STATE_IN_STORE",
            hint="for the one in the store, use an empty --state-dir; for the other one, start without --store",
        )


def upload(
    directory: Path,
    objects: Objects,
    progress: Path,
    state: State,
    map: Callable[[Callable[[str], object], Iterable[str]], Iterable[object]],
) -> None:
    """What a state lists, and how far its sinks have come."""
    if not has_log(directory):
        return
    files = [f"buckets/{file}" for file in state.bucket_files] + [f"results/{file}" for file in state.segment_files]
    there = [name for name in sorted(files) if (directory / name).exists()]  # what is missing is repaired later
    for _ in map(lambda name: objects.put(name, (directory / name).read_bytes()), there):
        pass
    if (directory / PROGRESS).exists():
        shutil.copyfile(directory / PROGRESS, progress)
        objects.put("delivered", progress.read_bytes())


def remove_local(directory: Path) -> None:
    """What is in the store now; nothing, if there was no state here: folders of these names are then not ours."""
    if not has_log(directory):
        return
    for folder in ("buckets", "results", "log"):  # the log last: without it nobody would know what the others are
        shutil.rmtree(directory / folder, ignore_errors=True)


def has_log(directory: Path) -> bool:
    return (directory / "log" / "format").exists()


def _read(directory: Path) -> LogContents:
    log = Log(directory / "log")
    try:
        return log.read()
    finally:
        log.close()
