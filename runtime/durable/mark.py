"""Which durable tier a state directory belongs to: a file in it that names the tier.

A directory that is the fast tier of another place may lack files, so it must not be taken for the whole state.
"""

from __future__ import annotations

from pathlib import Path

from optimizer.errors import FailedPrecondition
from runtime.durable.shown import shown
from runtime.files import write_atomically

_MARK = "durable"


def tier_of(directory: Path) -> str:
    """The URI of the durable tier whose cache the directory is; empty: it stands alone."""
    try:
        return (directory / _MARK).read_text().strip()
    except FileNotFoundError:
        return ""


def mark(directory: Path, uri: str) -> None:
    """From now on the directory belongs to this tier."""
    write_atomically(directory / _MARK, f"{uri}\n".encode())


def check_alone(directory: Path) -> None:
    uri = tier_of(directory)
    if uri:
        raise FailedPrecondition(
            f"{directory} is the fast tier of {shown(uri)}: by itself it may lack files",
            reason="STATE_TIERED",
            hint="start with that --durable",
        )
