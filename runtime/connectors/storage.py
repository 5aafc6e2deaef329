"""Files that appear whole or not at all, and names that are safe as file names.

`write_atomically` writes next to the target under a hidden name, forces the bytes to disk and renames: a
reader, a crash or a second attempt sees the old file or the new one, never half of one.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from runtime.crashpoints import reach

MAX_NAME_BYTES = 180


def safe_name(text: str) -> str:
    """A file name for any text, different for different texts, readable where that is possible."""
    name = quote(text.encode("utf-8", "surrogatepass"), safe="-_ ~.")
    if name.startswith((".", "_")) or not name:
        # Hidden names mean "not data" to most readers of a directory, and '..' means something else entirely.
        name = f"%{ord(name[0]):02X}{name[1:]}" if name else "%"
    if len(name) > MAX_NAME_BYTES:
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
        name = f"{name[: MAX_NAME_BYTES - 32]}%-{digest}"
    return name


def write_atomically(
    path: Path, write: Callable[[BinaryIO], object], first: Callable[[Path], object] | None = None
) -> None:
    """`first`: what must be done with the whole file (named by its temporary path) before it appears."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with open(temporary, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        reach("file.written")
        if first is not None:
            first(temporary)
        os.replace(temporary, path)
    except Exception:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make renames and deletions inside `path` durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
