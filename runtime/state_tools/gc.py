"""Remove files of a state directory that no committed epoch lists: `ajoin state gc`.

The engine does the same for buckets and results whenever it opens the directory; this is for a directory that is not
going to be opened soon, for a disk that is too full to start, and it also takes half-written files and the folders of
deleted streams. The lock is held from before the log is read until the last file is gone, so no platform can be about
to commit what is removed here. Only files below buckets, results, log and sources are looked at; a foreign file next
to them stays.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from runtime.log.lock import StateLock
from runtime.state_tools.files import Debris, debris, format_of, read_state


def collect(directory: Path, *, dry_run: bool = False) -> list[Debris]:
    """What was (or, in a dry run, would be) removed. STATE_LOCKED while a platform runs."""
    format_of(directory)  # first: the lock would make a directory where none is
    lock = StateLock(directory)
    try:
        remains = debris(directory, read_state(directory).state)
        if not dry_run:
            for item in remains:
                (directory / item.path).unlink(missing_ok=True)
            for folder in {(directory / item.path).parent for item in remains}:
                _remove_empty(folder, directory / "sources")
    finally:
        lock.release()
    return remains


def _remove_empty(folder: Path, top: Path) -> None:
    """A folder of a deleted stream, and those around it below `top`, when they have become empty."""
    with suppress(OSError):  # one holds something that is not debris
        while folder.is_relative_to(top) and folder != top:
            folder.rmdir()
            folder = folder.parent
