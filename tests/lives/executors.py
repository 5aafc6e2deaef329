"""An executor that behaves like a cluster: tasks in any order, attempts that repeat, all through pickle."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from runtime.executor import LocalExecutor

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
