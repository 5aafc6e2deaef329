"""Failures that pass: something outside is missing, and the same work can be done later.

A task that meets one says so with `Unavailable`; the platform then waits and runs the planned epoch again, as it
would after a crash. A full disk is the one that can happen anywhere.
"""

from __future__ import annotations

import errno

from optimizer.errors import AJoinError, Unavailable

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def as_outage(error: BaseException) -> AJoinError | None:
    """The error as one that the engine understands, or None for all others."""
    if isinstance(error, AJoinError):
        return error
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        where = f" ({error.filename})" if error.filename else ""
        return Unavailable(f"no room left on the disk{where}", reason="DISK_FULL", hint="make room; nothing is lost")
    return None
