"""Memory that a worker frees and needs again a moment later, epoch after epoch.

The C library gives large blocks back to the operating system as soon as they are freed, and asks for them again,
zeroed page by page, for the next array. A worker does nothing else all day: a fifth of its time went into that. So it
keeps what it freed, up to a bound.
"""

from __future__ import annotations

import ctypes

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
