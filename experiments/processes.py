"""Processor time and memory of a process and everything it started, read from /proc.

Memory is the proportional set size: pages that forked Python workers share are counted once, memory-mapped bucket
files count for whoever looks at them. Processor time includes children that have ended and were waited for.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
SAMPLE_SECONDS = 0.5


@dataclass(slots=True)
class Usage:
    cpu_seconds: float = 0.0
    peak_bytes: int = 0


@contextmanager
def usage_of(pid: int) -> Iterator[Usage]:
    """Fills in while the block runs; final when it ends."""
    usage, ended = Usage(), threading.Event()
    before = cpu_seconds(pid)

    def sample() -> None:
        now = cpu_seconds(pid)
        usage.cpu_seconds = max(usage.cpu_seconds, now - before)
        usage.peak_bytes = max(usage.peak_bytes, memory_bytes(pid))

    def watch() -> None:
        while not ended.wait(SAMPLE_SECONDS):
            sample()

    watcher = threading.Thread(target=watch, name="usage", daemon=True)
    watcher.start()
    try:
        yield usage
    finally:
        ended.set()
        watcher.join()
        sample()


def cpu_seconds(pid: int) -> float:
    ticks = 0
    for p in tree(pid):
        fields = _stat(p)
        if fields:
            ticks += sum(int(fields[i]) for i in (11, 12, 13, 14))
    return ticks / _TICK


def memory_bytes(pid: int) -> int:
    total = 0
    for p in tree(pid):
        try:
            for line in Path(f"/proc/{p}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
        except OSError:
            continue
    return total


def tree(pid: int) -> list[int]:
    """The process and all its living descendants."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := _stat(int(entry))):
            children.setdefault(int(fields[1]), []).append(int(entry))
    found, todo = [], [pid]
    while todo:
        at = todo.pop()
        found.append(at)
        todo.extend(children.get(at, ()))
    return found


def _stat(pid: int) -> list[str]:
    """Fields of /proc/<pid>/stat after the name, which may hold anything: [0] state, [1] parent, [11..14] times."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text[text.rfind(")") + 2 :].split()
