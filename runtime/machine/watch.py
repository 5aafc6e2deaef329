"""A worker that takes more memory than its share fails its task, before the kernel chooses a process to kill.

When memory runs out, the kernel kills whichever process it likes, and the driver is often the largest. So a worker's
main thread does not run its task but looks on while another thread does: twenty times a second it reads how much
memory is the worker's alone, in anonymous pages. Mapped bucket files do not count, because the kernel can drop them.
Code that takes much memory (kernels, numpy, Arrow) lets other threads run meanwhile, so the main thread gets to look.

Beyond the limit it does not wait for the task: it raises `WorkerMemoryExceeded`, which says what happened. Spark sends
that to the driver and ends the process, the task's thread with it, and counts a failed attempt. If every attempt ends
like that the stage has failed, and whoever is to blame is found like any other (runtime.engine.quarantine).

A task can go over the limit by what it takes between two looks; the share of all workers (`worker_share`) leaves room
for that, and for driver and JVM. Cost: a thread per task and twenty reads of a small file a second.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from runtime.machine.memory import usable

R = TypeVar("R")

LOOK = 0.05
"""Seconds."""

LEAST = 1 << 30
"""A worker that has loaded everything and done nothing takes a sixth of this."""

DRIVER = 2 << 30
"""Memory that workers leave to the driver and its JVM, or a quarter of all if that is more."""

_PAGE = os.sysconf("SC_PAGE_SIZE")
_STATM = Path("/proc/self/statm")


class WorkerMemoryExceeded(MemoryError):
    """The task goes on in its thread: whoever gets this must end the process."""


def anonymous() -> int:
    """Bytes of memory that belong to this process and to no file."""
    resident, shared = _STATM.read_text().split()[1:3]
    return (int(resident) - int(shared)) * _PAGE


def worker_share(cores: int, memory: int | None = None) -> int:
    """What one of `cores` workers may take on this machine, or in this control group."""
    whole = usable() if memory is None else memory
    return max(LEAST, (whole - max(DRIVER, whole // 4)) // max(1, cores))


def run_within(limit: int, what: str, task: Callable[[], R]) -> R:
    """What the task returns or raises. Where the system does not tell (it is no Linux), it may take anything."""
    if not _STATM.exists():
        return task()
    running = _Running(task)
    threading.Thread(target=running.run, name="ajoin-task", daemon=True).start()
    while not running.done.wait(LOOK):
        taken = anonymous()
        if taken > limit:
            raise WorkerMemoryExceeded(
                f"{what} took {taken:,} bytes of memory, and a worker may take {limit:,} (setting worker_memory)"
            )
    if running.failure is not None:
        raise running.failure
    return running.results[0]


class _Running(Generic[R]):
    def __init__(self, task: Callable[[], R]) -> None:
        self._task, self.done = task, threading.Event()
        self.results: list[R] = []
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self.results.append(self._task())
        except BaseException as failure:
            self.failure = failure
        finally:
            self.done.set()
