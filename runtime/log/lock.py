"""One process per state directory, by a lock that the operating system releases when the process dies."""

from __future__ import annotations

import fcntl
from pathlib import Path

from optimizer.errors import FailedPrecondition


class StateLock:
    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._file = open(directory / "lock", "a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            self._file.close()
            raise FailedPrecondition(
                f"the state directory {directory} is used by another running platform",
                reason="STATE_LOCKED",
                hint="stop it first, or choose another --state-dir",
            ) from e

    def release(self) -> None:
        self._file.close()


def is_locked(directory: Path) -> bool:
    """Does a platform run on it? Asked with a shared lock that is given back at once."""
    try:
        with open(directory / "lock", "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False
