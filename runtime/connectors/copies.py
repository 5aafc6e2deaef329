"""Copies, in the platform's store, of files that only the driver's machine sees, for tasks on other machines.

A file is copied once, when an epoch first reads it, as an immutable object beside the ledger; tasks get its name. The
copy of line n of the ledger is `copy-n.i`: n says which file, i tells copies of one file apart that were made for want
of an answer whether the one before was (either is right, and no name is written twice). Copies stay as long as an epoch
or a repair may read them (`trim`), like pushed batches; so an epoch that runs again reads what it read the first time,
even if the file is gone by then, and so does a driver on another machine.

Costs: the driver reads each file and puts it, some at the same time, before the stage begins. What all machines see
(`shared`, an object store) needs none of this.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from runtime.connectors.base import Mirror, file_arrived
from runtime.connectors.file_read import FileRead
from runtime.connectors.folders import OnDisk
from runtime.connectors.formats import try_again

_START = "copy-"
AT_ONCE = 4


class Copies:
    """`makes`: tasks do not see the files; else only copies that are there are used, because files may be gone.

    Reads may be made on another thread than the one that trims; they are of later lines than what is trimmed."""

    def __init__(self, mirror: Mirror, makes: bool) -> None:
        self._mirror, self._makes = mirror, makes
        self._there = {_line(name): name for name in mirror.names() if name.startswith(_START)}
        self._count = itertools.count()

    def of(self, first: int, reads: Sequence[FileRead]) -> list[FileRead]:
        """Reads of the lines from `first` on, as tasks can load them."""
        if not self._makes or all(line in self._there for line in range(first, first + len(reads))):
            return [self._of(line, read) for line, read in enumerate(reads, first)]
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="ajoin-copy") as pool:
            return list(pool.map(self._of, range(first, first + len(reads)), reads))

    def _of(self, line: int, read: FileRead) -> FileRead:
        name = self._there.get(line)
        if name is None:
            if not self._makes or read.trouble is not None or read.format is None:
                return read
            assert isinstance(read.content, OnDisk)
            trouble = read.look()
            if trouble is not None:
                return replace(read, trouble=trouble)
            name = f"{_START}{line:010d}.{next(self._count)}"
            try:
                self._mirror.put_file(name, Path(read.content.path))
            except OSError as why:
                if try_again(why):
                    raise
                return replace(read, trouble=why.strerror or str(why))
            self._there[line] = name
        arrived_ms = file_arrived(Path(read.content.path)) if isinstance(read.content, OnDisk) else None
        return replace(read, content=self._mirror.kept(name), arrived_ms=arrived_ms)

    def trim(self, before: int) -> None:
        """No line below will be read again."""
        gone = [line for line in list(self._there) if line < before]
        self._mirror.discard([self._there.pop(line) for line in gone])


def _line(name: str) -> int:
    return int(name.removeprefix(_START).partition(".")[0])
