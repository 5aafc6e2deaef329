"""The cost model's weights for this machine: a second of measuring with the real kernels, once, then read from a file.

Each probe of `optimizer.cost.calibration` is run with the kernels that epochs use, on random keys: index both sides,
intersect them, carry the items on (a re-indexed result), open the pairs (materialization); fold tuples as source tasks
do, combine entries as windows that close do. The best of a few repetitions counts, because everything that disturbs a
measurement makes it longer.

What a stage costs whatever it does, is measured on the executor that will run it: as many tasks as it has cores, which
do nothing. There the median counts, because waiting for a scheduler is what is to be measured.

The file is named after the machine's properties and the executor's; on another machine, or with another numpy or numba,
it is measured again. A file that cannot be read is as good as none.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numba
import numpy as np

from optimizer.cost.calibration import Calibration, Work, calibrate, from_json, machine_key, to_json, with_stage
from optimizer.model.expressions import ColumnRef
from optimizer.model.types import ColumnType
from optimizer.model.windows import PeriodicWindow
from runtime.aggregates.components import Component
from runtime.aggregates.states import fold, lift
from runtime.columns.coded_sets import CodedSets
from runtime.columns.column import ColumnData
from runtime.execution.executor import Executor
from runtime.execution.folding import FoldSpec, Slices
from runtime.files import write_atomically
from runtime.kernels import csr, expand, hashing
from runtime.kernels.intersect import Shapes, intersect
from runtime.kernels.warm import warm_up
from runtime.operators.fold import fold_tuples

REPETITIONS = 3
STAGES = 7
UNCOUNTED_STAGES = 3
"""The first ones start workers."""
ALL = np.array([0xFFFF_FFFF_FFFF_FFFF], np.uint64)
HOUR = np.array([3_600_000], np.int64)


def _column(name: str) -> ColumnRef:
    return ColumnRef("S", name, ColumnType.BIGINT)


FOLDED = (
    Component("count", (), None, ()),
    Component("sum", (_column("v"),), None, (ColumnType.BIGINT,)),
)


def calibrated(directory: Path, clock: Callable[[], float], executor: Executor) -> Calibration:
    """Weights in seconds for this machine and executor. `clock` counts seconds, e.g. time.perf_counter."""
    runs = {"executor": type(executor).__name__, "executor cores": executor.cores, "here": executor.here}
    path = directory / f"calibration-{machine_key(machine_facts() | runs)}.json"
    try:
        known = from_json(json.loads(path.read_text()))
    except (OSError, ValueError):
        known = None
    if known is not None:
        return known
    warm_up()
    measured = with_stage(calibrate(lambda work: measure(work, clock)), stage_seconds(executor, clock))
    write_atomically(path, json.dumps(to_json(measured)).encode(), several_writers=True)
    return measured


def stage_seconds(executor: Executor, clock: Callable[[], float]) -> float:
    """What a stage costs whose tasks do nothing."""
    times = []
    for number in range(UNCOUNTED_STAGES + STAGES):
        begin = clock()
        executor.run("how long is nothing", nothing, None, range(executor.cores))
        if number >= UNCOUNTED_STAGES:
            times.append(clock() - begin)
    return median(times)


def nothing(shared: None, task: int) -> int:
    return task


def machine_facts() -> dict[str, object]:
    return {
        "machine": platform.machine(),
        "processor": platform.processor(),
        "node": platform.node(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
    }


def measure(work: Work, clock: Callable[[], float], repetitions: int = REPETITIONS, each: int = 8) -> float:
    """The seconds one probe takes with the kernels. `each`: tuples per group that is folded, entries per row that is
    closed."""
    run = _prepared(work, each, np.random.Generator(np.random.PCG64(7)))
    best = float("inf")
    for _ in range(repetitions):
        begin = clock()
        run()
        best = min(best, clock() - begin)
    return best


def _prepared(work: Work, each: int, rng: np.random.Generator) -> Callable[[], None]:
    if work.folded:
        return _folding(int(work.folded), each, rng)
    if work.closed:
        return _closing(int(work.closed), each, rng)
    n, keys = int(work.tuples) // 2, max(int(work.keys), 1)
    columns = [rng.integers(0, keys, n) for _ in range(2)]
    return lambda: _run(columns, expand_pairs=work.combinations > 0, carry_on=work.exchanged > 0)


def _folding(n: int, each: int, rng: np.random.Generator) -> Callable[[], None]:
    """Two query sets, COUNT and SUM, all in one slice."""
    columns = {c: ColumnData(ColumnType.BIGINT, rng.integers(0, max(n // each, 1), n)) for c in ("k", "v")}
    sets = CodedSets(np.array([[1], [3]], np.uint64), rng.integers(0, 2, n).astype(np.int32))
    spec = FoldSpec("probe", 0, 1, (_column("k"),), FOLDED, (0, 1), Slices((PeriodicWindow(1000, 1000),)))
    times = np.zeros(n, np.int64)

    def run() -> None:
        fold_tuples(spec, lambda c: columns[c.column], times, sets, 0, 0)

    return run


def _closing(n: int, each: int, rng: np.random.Generator) -> Callable[[], None]:
    """Entries in no order."""
    rows = max(n // each, 1)
    column = ColumnData(ColumnType.BIGINT, rng.integers(0, 1000, each * rows))
    times = np.zeros(each * rows, np.int64)
    states = [(c, lift(c, (column,) if c.arguments else (), None, times)) for c in FOLDED]
    order = rng.permutation(each * rows).astype(np.int32)
    offsets = np.arange(rows + 1, dtype=np.int64) * each

    def run() -> None:
        for component, state in states:
            fold(component, state, order, offsets)

    return run


def _run(columns: list[np.ndarray[tuple[int], np.dtype[np.int64]]], *, expand_pairs: bool, carry_on: bool) -> None:
    n = len(columns[0])
    sets = np.full((n, 1), ALL[0], np.uint64)
    slices = np.zeros(n, np.int64)
    items = np.arange(n)
    left, right = (csr.build(items, hashing.hash_integers(c), slices, slices, sets) for c in columns)
    l_entries, r_entries = (index.entries(0, len(index.hashes)) for index in (left, right))
    l_items, r_items = (csr.Items(index.order, index.offsets, sets) for index in (left, right))
    l, r, pair_sets = intersect(l_entries, r_entries, ALL, Shapes(HOUR, HOUR, ALL[None, :]))
    if carry_on:
        _, moved, moved_sets = expand.carry(l, pair_sets, l_items, 0, n)
        at = np.zeros(len(moved), np.int64)
        csr.build(np.arange(len(moved)), hashing.hash_integers(columns[0][moved] * 31), at, at, moved_sets)
    if expand_pairs:
        total = int(expand.count_pairs(l, left.offsets, 0, n, r, right.offsets).sum())
        made = expand.pairs(l, l_items, 0, n, r, r_items, pair_sets, total)
        for column, rows in zip(columns, (made.left, made.right), strict=True):
            column[rows]  # the values of the result rows
