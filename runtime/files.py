"""Files that appear whole or not at all, and names that are safe as file names.

`write_atomically` is the one way to write a file that others may read: it writes next to the target under a
hidden name and renames. A reader, a crash or a second attempt sees the old file or the new one, never half of one.
With `sync`, bytes and rename are also on disk when it returns (two fsyncs, some milliseconds); without, a power failure
may take the file away again, which is right for files that a later record vouches for or that can be made again.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from runtime.crashpoints import reach

MAX_NAME_BYTES = 180


def write_atomically(
    path: Path,
    content: bytes | Callable[[BinaryIO], object],
    *,
    sync: bool = False,
    several_writers: bool = False,
    mode: int = 0o666,
    point: str | None = None,
    before_rename: Callable[[Path], object] | None = None,
) -> int:
    """Write `content` (bytes, or a function that writes them into an open file) and answer how many bytes it has.

    The folder is created if it is missing. `several_writers`: processes may write the same path at the same time, so
    each uses a hidden name of its own; what a killed one leaves behind is for the folder's owner to clean up. Otherwise
    the name is always the same, and the next attempt replaces the remains of the last. `mode`: who may read the file,
    before the umask. `point`: the crash point between writing and renaming. `before_rename`: what must be done with the
    whole file, named by its hidden path, before it appears.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    mark = f".{os.getpid()}.{uuid.uuid4().hex[:8]}" if several_writers else ""
    temporary = path.with_name(f".{path.name}{mark}.tmp")
    try:
        with open(temporary, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            if isinstance(content, bytes):
                file.write(content)
            else:
                content(file)
            file.flush()
            size = file.tell()
            if sync:
                os.fsync(file.fileno())
        if point is not None:
            reach(point)
        if before_rename is not None:
            before_rename(temporary)
        os.replace(temporary, path)
    except Exception:
        temporary.unlink(missing_ok=True)
        raise
    if sync:
        sync_directory(path.parent)
    return size


def sync_directory(path: Path) -> None:
    """Make renames and deletions inside `path` durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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
