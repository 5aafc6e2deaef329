"""Opening: what the durable tier says, and which files of the local directory may be used.

The durable log is the truth, because every record reached it first. The local directory is then one of these:

    the same log             a restart on the same machine: all its files are what they should be
    a beginning of it        the process died between the two writes: files of the records it has are good; those that
                             the missing records list were written by an attempt, perhaps not the one that counts
    anything else            lost, older, damaged, of another machine or of another tier: none of its files is used

Files that may not be used are deleted; buckets and results are fetched again when they are opened, what sources keep at
once. So it makes no difference whether, and between which two steps, the local directory was lost.

If the tier is empty and the directory is not, the directory *is* the state, of a platform that had no durable tier
until now: everything is uploaded before the first snapshot. But a directory that is the fast tier of another place may
lack files and is refused.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

from optimizer.errors import InternalError
from runtime.durable.claim import Claim
from runtime.durable.listed import files_of_event
from runtime.durable.log_objects import Map, read
from runtime.durable.mark import check_alone
from runtime.durable.tier import DurableTier
from runtime.log.codec import decode
from runtime.log.log import LogContents, Place

logger = logging.getLogger("ajoin.durable")

FOLDERS = ("buckets", "results", "sources")
DELIVERED = "delivered"
"""How far the sinks have come: an object of the tier, and a file beside the local log."""


def recover(
    tier: DurableTier, claim: Claim, directory: Path, read_local: Callable[[], LogContents], map: Map
) -> tuple[LogContents, Place | None]:
    """The log that counts, and where it ends in the tier (None: the tier has none); afterwards the directory holds
    only files that may be used."""
    if claim.truth is None:
        local = read_local()
        if local.snapshot is not None or local.records:
            check_alone(directory)
        return local, None
    place, contents = read(claim, map)
    try:
        names = doubtful(read_local(), contents)
    except InternalError as damage:
        logger.warning("the local log is not believed, the durable one counts: %s", damage.message)
        names = None
    _forget(directory, names)
    progress = directory / "log" / DELIVERED
    if not progress.exists():  # else it is at least as new as the copy in the tier
        tier.fetch(DELIVERED, progress)
    return contents, place


def doubtful(local: LogContents, truth: LogContents) -> list[str] | None:
    """Files of the directory that may not be used; None: all of them."""
    if local.snapshot != truth.snapshot or local.records != truth.records[: len(local.records)]:
        return None
    missing = truth.records[len(local.records) :]
    return [name for record in missing for name in files_of_event(decode(record))] + (["sources"] if missing else [])


def _forget(directory: Path, names: list[str] | None) -> None:
    for name in (*FOLDERS, f"log/{DELIVERED}") if names is None else names:
        path = directory / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
