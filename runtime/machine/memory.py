"""How much memory this process may use, and how it keeps what it has.

A worker frees memory and needs it again a moment later, epoch after epoch. The C library gives large blocks back to
the operating system as soon as they are freed, and asks for them again, zeroed page by page, for the next array. So a
worker keeps what it freed, up to a bound.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path

KEPT = 256 << 20
"""Free bytes a worker holds on to."""

LARGE = 32 << 20
"""Arrays beyond this come from the operating system after all (glibc allows no higher bound)."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # as glibc numbers them


def keep_freed() -> bool:
    """For this process and those forked from it. False where the C library is not glibc: then nothing changes."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_TRIM_THRESHOLD, KEPT)) and bool(mallopt(_MMAP_THRESHOLD, LARGE))


def usable(groups: Path = Path("/sys/fs/cgroup"), mine: Path = Path("/proc/self/cgroup")) -> int:
    """Bytes of memory this process may use: what the machine has, or less if a control group says so."""
    least = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        lines = mine.read_text().splitlines()
    except OSError:
        return least
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            least = min(least, _limit(groups, path, "memory.max"))
        elif "memory" in controllers.split(","):  # version 1 has a tree of groups per controller
            least = min(least, _limit(groups / "memory", path, "memory.limit_in_bytes"))
    return least


def _limit(top: Path, path: str, file: str) -> int:
    """The least that the group, or one it is in, is allowed."""
    group, least = top / path.lstrip("/"), 1 << 62
    for folder in (group, *group.parents):
        if not folder.is_relative_to(top):
            break
        with suppress(OSError, ValueError):  # no limit here: the file says "max", or is not there
            least = min(least, int((folder / file).read_text()))
    return least
