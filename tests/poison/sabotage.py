"""Queries whose tasks go wrong in ways that no SQL text can ask for, by their id.

Whatever an operator of tomorrow or a bug may do inside a task is done here on purpose, in the worker's process on
Spark, while a join runs in which a query with such an id ends: it dies, never ends, takes all memory, or raises. And a
tuple whose key is `KILLING` kills every task that reads it, behind the decoding that would have made it a dead letter.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from optimizer.model.plan import id_of
from runtime.api import ExecutorStatus
from runtime.execution.executor import Executor
from runtime.operators.join import JoinShared
from runtime.operators.source import SourceTask

S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")

KILLING = 666_666_666_666
KILLS, LEAVES, LOOPS, EATS, RAISES = "task-is-killed", "task-exits", "task-never-ends", "task-eats", "task-raises"


def sabotaged(shared: tuple[Callable[[Any, Any], Any], Any], task: Any) -> Any:
    """What a Spark task runs instead of the stage."""
    stage, inner = shared
    if isinstance(inner, JoinShared):
        joins = inner.joins.value
        for id in {id_of(sink.uid) for name in inner.stage for sink in joins[name].sinks}:
            _harm(id.rpartition("/")[2])
    elif isinstance(task, SourceTask) and _reads_killing(inner, task):
        os.kill(os.getpid(), signal.SIGKILL)
    return stage(inner, task)


def _reads_killing(shared: Any, task: SourceTask) -> bool:
    """Among the rows that are not left out."""
    if any(skip.end is None for skip in task.origin.skipped):
        return False
    table = task.read.load(shared.schemas[task.stream]).table
    if "k" not in table.column_names:
        return False
    killing = [n for n, k in enumerate(table["k"].to_pylist()) if k == KILLING]
    return any(not any(skip.first <= n < (skip.end or n + 1) for skip in task.origin.skipped) for n in killing)


def _harm(id: str) -> None:
    if id.startswith(KILLS):
        os.kill(os.getpid(), signal.SIGKILL)
    elif id.startswith(LEAVES):
        os._exit(3)
    elif id.startswith(RAISES):
        raise RecursionError("this query's task goes round in circles")
    elif id.startswith(EATS):
        held = []
        while True:
            held.append(bytearray(64 << 20))
    while id.startswith(LOOPS):
        time.sleep(0.05)


class Sabotaged:
    """An executor whose tasks may be harmed by queries."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    @property
    def cores(self) -> int:
        return self._executor.cores

    @property
    def here(self) -> bool:
        return self._executor.here

    def run(self, name: str, stage: Callable[[S, T], R], shared: S, tasks: Sequence[T]) -> list[R]:
        results: list[R] = self._executor.run(name, sabotaged, (stage, shared), tasks)
        return results

    def executors(self, partitions: int) -> tuple[ExecutorStatus, ...]:
        return self._executor.executors(partitions)

    def stop(self) -> None:
        self._executor.stop()
