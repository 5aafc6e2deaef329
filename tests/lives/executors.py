"""Executors that behave like a cluster on a bad day: attempts that repeat, in any order, and files that rot."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import TypeVar

from runtime.execution.executor import Executor, LocalExecutor
from runtime.execution.shipped import DONE, LACKS, Kept, Lacks, Memory, Parcel, Shipping, memory, unpacked

S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")


class Stubborn(LocalExecutor):
    """Every task runs twice (a lost answer, a speculative attempt), the tasks of a stage in random order.

    What a second attempt writes has the same names, so it must simply not matter.
    """

    def __init__(self, seed: int) -> None:
        self._rng = Random(seed)

    def run(self, name: str, stage: Callable[[S, T], R], shared: S, tasks: Sequence[T]) -> list[R]:
        attempts = [i for i in range(len(tasks)) for _ in range(2)]
        self._rng.shuffle(attempts)
        payload = pickle.dumps((stage, shared))
        results: dict[int, R] = {}
        for i in attempts:
            function, everything = pickle.loads(payload)
            answer = function(everything, pickle.loads(pickle.dumps(tasks[i])))
            results[i] = pickle.loads(pickle.dumps(answer))
        return [results[i] for i in range(len(tasks))]


class Rotting:
    """Before some of the stages, a bucket file is changed, cut or removed; another executor runs the stages. Partial
    buckets that were carried are spared: they cannot be made again (runtime.engine.refold).

    At most three times in one epoch: together with what is left of earlier epochs less often than it is repaired.
    """

    def __init__(self, executor: Executor, buckets: Path, seed: int) -> None:
        self._executor, self._buckets, self._rng = executor, buckets, Random(seed)
        self._wait = self._rng.randrange(1, 12)
        self.damaged: list[str] = []

    @property
    def cores(self) -> int:
        return self._executor.cores

    @property
    def here(self) -> bool:
        return self._executor.here

    def run(self, name: str, stage: Callable[[S, T], R], shared: S, tasks: Sequence[T]) -> list[R]:
        self._wait -= 1
        epoch = name.partition(":")[0]
        quiet = self._wait > 0 or [d.partition(":")[0] for d in self.damaged].count(epoch) == 3
        files = [] if quiet else _repairable(self._buckets)
        if files and ":" in name:
            self._wait = self._rng.randrange(4, 15)
            path = self._rng.choice(files)
            self.damaged.append(f"{name}: {path.name} {damage(path, self._rng)}")
        return self._executor.run(name, stage, shared, tasks)

    def stop(self) -> None:
        self._executor.stop()


class Ravaging(Rotting):
    """Before the first stage of every epoch, more than half of the bucket files are gone."""

    def run(self, name: str, stage: Callable[[S, T], R], shared: S, tasks: Sequence[T]) -> list[R]:
        epoch = name.partition(":")[0]
        if ":" in name and epoch not in self.damaged:
            self.damaged.append(epoch)
            for path in _repairable(self._buckets):
                if self._rng.random() < 0.6:
                    path.unlink()
        return self._executor.run(name, stage, shared, tasks)


def _repairable(buckets: Path) -> list[Path]:
    return [p for p in sorted(buckets.rglob("[be]*.bucket")) if "-close-" not in p.name]


def damage(path: Path, rng: Random) -> str:
    """Change one bit, cut the end off or remove the file; says which."""
    data = bytearray(path.read_bytes())
    how = rng.choice(["changed", "cut", "removed"])
    if how == "removed":
        path.unlink()
        return how
    if how == "cut":
        del data[rng.randrange(len(data)) :]
    else:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    temporary = path.with_suffix(".rotten")
    temporary.write_bytes(data)
    os.replace(temporary, path)
    return how


class Recycled(LocalExecutor):
    """Tasks run on workers of two executors that get what stages share as Spark's do (runtime.execution.shipped). Now
    and then a worker is replaced by a new one, and an executor with all it kept. Counts bytes that are shipped, stage
    by stage."""

    here = False

    def __init__(self, folder: Path, seed: int, often: float = 0.3) -> None:
        self._folder, self._rng, self._often = folder, Random(seed), often
        self._shipping = Shipping(keep=True)
        self._workers: dict[tuple[int, int], Memory] = {}
        self._kept: dict[int, Kept] = {}
        self._born = 0
        self.jobs: list[tuple[str, int]] = []
        """(name of the stage, bytes of a parcel)"""

    def run(self, name: str, stage: Callable[[S, T], R], shared: S, tasks: Sequence[T]) -> list[R]:
        def job(parcel: Parcel, dealt: Sequence[bytes]) -> list[object]:
            self.jobs.append((name, parcel.size))
            return [self._outcome(number % 2, parcel, task) for number, task in enumerate(dealt)]

        answers = self._shipping.run((stage, shared), [pickle.dumps(task) for task in tasks], job)
        return [pickle.loads(answer) for answer in answers]

    def renew(self) -> None:
        """All workers and executors are new ones."""
        self._workers.clear()
        self._kept.clear()

    def _outcome(self, executor: int, parcel: Parcel, task: bytes) -> object:
        worker = self._rng.randrange(2)
        if self._rng.random() < self._often:
            self._workers.pop((executor, worker), None)
        if self._rng.random() < self._often / 2:
            self._kept.pop(executor, None)
        if executor not in self._kept:
            self._born += 1
            self._kept[executor] = Kept(self._folder / str(self._born))
        if task == DONE:
            return None
        try:
            function, everything = unpacked(
                pickle.loads(pickle.dumps(parcel)),
                self._kept[executor],
                self._workers.setdefault((executor, worker), memory()),
            )
        except Lacks:
            return LACKS
        return pickle.dumps(function(everything, pickle.loads(task)))
