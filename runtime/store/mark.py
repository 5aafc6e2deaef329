"""Which store a state directory belongs to: a file in it that names the store.

Such a directory holds a cache and what sources keep for themselves, and no log: it must not be taken for an empty
state.
"""

from __future__ import annotations

from pathlib import Path

from optimizer.errors import FailedPrecondition
from runtime.files import write_atomically
from runtime.store.objects import shown

_MARK = "store"


def store_of(directory: Path) -> str:
    """The URI of the store whose cache the directory is, as people may see it; empty: it stands alone."""
    try:
        return (directory / _MARK).read_text().strip()
    except FileNotFoundError:
        return ""


def mark(directory: Path, uri: str) -> None:
    """From now on the directory belongs to this store."""
    write_atomically(directory / _MARK, f"{shown(uri)}\n".encode())


def check_alone(directory: Path) -> None:
    uri = store_of(directory)
    if uri:
        raise FailedPrecondition(
            f"the state of {directory} is in the store {uri}",
            reason="STATE_IN_STORE",
            hint="start with that --store",
        )
