"""Opening: what the durable tier says, and what of the local directory may be believed.

The durable log is the truth, because every record reached it first. The local directory is then one of these:

    the same log             a restart on the same machine: all its files are what they should be
    a beginning of it        the process died between the two writes: files of the records it has are good; those that
                             the missing records list were written by an attempt, perhaps not the one that counts
    anything else            lost, older, of another machine or of another tier: none of its files is believed

What is not believed is deleted; buckets and results come back when they are opened, what sources keep at once. So it
makes no difference where, between two steps, the local directory was lost or kept: from here on both mean the same.

If the tier is empty and the directory is not, the directory *is* the state, of a platform that had no durable tier
until now: everything is uploaded before the first snapshot. But a directory that is the fast tier of another place may
lack files and is refused.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from optimizer.errors import FailedPrecondition
from runtime.durable.keeper import DELIVERED, FOLDERS, Keeper, made
from runtime.durable.log_objects import read
from runtime.log.codec import decode

MARK = "durable"
"""A file in the state directory that names the tier it belongs to."""

Log = tuple[Any | None, list[Any]]


def check_alone(directory: Path) -> None:
    """A fast tier must not be taken for the whole state."""
    mark = directory / MARK
    if mark.exists():
        raise FailedPrecondition(
            f"{directory} is the fast tier of {mark.read_text().strip()}: by itself it may lack files",
            reason="STATE_TIERED",
            hint="start with that --durable",
        )


def recover(keeper: Keeper, local: Log) -> tuple[int, Log]:
    """(number of its snapshot, the log that counts); afterwards the directory holds nothing that is not believed."""
    snapshot, records = local
    if keeper.claim.truth is None:
        if snapshot is not None or records:
            check_alone(keeper.directory)
        return 0, local
    number, theirs, their_records = read(keeper.claim, keeper.pool.map)
    _forget(keeper.directory, doubtful(local, (theirs, their_records)))
    _take_marker(keeper)
    return number, (theirs, their_records)


def doubtful(local: Log, truth: Log) -> list[str] | None:
    """Files of the directory that are not to be believed; None: all."""
    snapshot, records = local
    theirs, their_records = truth
    if snapshot != theirs or records != their_records[: len(records)]:
        return None
    missing = their_records[len(records) :]
    return [name for record in missing for name in made(decode(record))] + (["sources"] if missing else [])


def mark(keeper: Keeper) -> None:
    """From now on the directory belongs to this tier."""
    path = keeper.directory / MARK
    temporary = path.with_suffix(".tmp")
    temporary.write_text(f"{keeper.tier.uri}\n")
    os.replace(temporary, path)


def _forget(directory: Path, names: list[str] | None) -> None:
    for name in (*FOLDERS, f"log/{DELIVERED}") if names is None else names:
        path = directory / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _take_marker(keeper: Keeper) -> None:
    """How far the sinks have come, unless the directory knows better."""
    path = keeper.directory / "log" / DELIVERED
    if not path.exists():
        keeper.tier.fetch(DELIVERED, path)
