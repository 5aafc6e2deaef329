"""What kills tasks, for tests: files and tuples with a mark, and an executor for what happens behind the loading.

`source()` is a source of files in which the word KILL ends the process that loads it, in one of several ways. `Fatal`
runs tasks on another executor, and in any task that reads a tuple with k = KILLING after loading it, the same happens.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime.connectors import files
from runtime.connectors.base import ConnectorSpec, Loaded, Offset, Read, Source
from runtime.connectors.registry import SOURCES, SourceKind
from runtime.execution.executor import Executor
from runtime.operators.source import SourceTask, run_source

KILLING = 666
"""The value of a column k that kills."""


def die(how: str) -> None:
    match how:
        case "raise":
            raise RuntimeError("something in here does not bear this")
        case "exit":
            os._exit(3)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "loop":
            while True:
                time.sleep(0.05)


@dataclass(frozen=True)
class DeadlyRead:
    read: Any
    how: str

    @property
    def place(self) -> str:
        return str(self.read.place)

    def load(self, schema: Any) -> Loaded:
        if b"KILL" in Path(self.read.content.path).read_bytes():
            die(self.how)
        loaded: Loaded = self.read.load(schema)
        return loaded


class DeadlyFiles(files.FilesSource):
    def __init__(self, config: files.FilesConfig, state_dir: Path, how: str) -> None:
        super().__init__(config, state_dir)
        self._how = how

    def reads(self, start: Offset, end: Offset) -> list[Read]:
        return [DeadlyRead(read, self._how) for read in super().reads(start, end)]


def source(path: Path, how: str = "raise") -> ConnectorSpec:
    return ConnectorSpec("deadly", (("path", str(path)), ("pattern", f"{how}-*")))


def _open(options: Any, schema: Any, state_dir: Path, roots: Any) -> Source:
    return DeadlyFiles(files.parse_config(options), state_dir, options["pattern"].split("-")[0])


@contextmanager
def registered() -> Iterator[None]:
    SOURCES["deadly"] = SourceKind("files that kill", files.OPTIONS, lambda *_: None, _open)
    try:
        yield
    finally:
        del SOURCES["deadly"]


def _fatal(shared: Any, task: Any) -> Any:
    stage, inner, how, whose = shared
    if isinstance(task, SourceTask) and not any(skip.end is None for skip in task.origin.skipped):
        views = inner.specs.value[task.stream].views if task.stream in inner.specs.value else ()
        if not whose or views:
            keys = task.read.load(inner.schemas[task.stream]).table["k"].to_numpy().copy()
            for skip in task.origin.skipped:
                keys[skip.first : skip.end] = 0
            if KILLING in keys:
                die(how)
    return stage(inner, task)


class Fatal:
    """`with_queries`: a tuple kills only if some query reads its stream."""

    def __init__(self, executor: Executor, how: str = "raise", *, with_queries: bool = False) -> None:
        self._executor, self._how, self._with_queries = executor, how, with_queries
        self.here, self.stop, self.executors = executor.here, executor.stop, executor.executors
        self.sources = 0

    @property
    def cores(self) -> int:
        return self._executor.cores

    def run(self, name: str, stage: Any, shared: Any, tasks: Any) -> Any:
        self.sources += stage is run_source
        return self._executor.run(name, _fatal, (stage, shared, self._how, self._with_queries), tasks)
