"""How long is the longest epoch when a join is reordered with long windows open? At once, against portion by portion.

    python -m experiments.reordering [--window 600] [--tuples 2000] [--runs 3] [--spark]

One 3-way chain over generated streams, in hopping windows of so many seconds; every epoch brings one second. When the
first window is full, the engine's state is copied, and both sides go on from there with the other join order: `at once`
as a forced order is applied, `prepared` as the optimizer's changes are. Both must deliver the same rows. A side goes on
until the change is made and five epochs longer. Prints, per side, the median epoch before the change and the longest
one after it, their ratio, and how many epochs the change took, medians of the runs with (smallest to largest).
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from ajoin.testing import LocalEngine
from experiments.long_windows import copied, spread
from optimizer.search.forced import force_order
from runtime.api import ForceOrder
from runtime.execution.executor import Executor, LocalExecutor
from runtime.spark.executor import SparkExecutor

SQL = """SELECT V.n AS v, W.n AS w, C.n AS c FROM V JOIN W ON V.a = W.a JOIN C ON W.b = C.b
         WINDOW HOPPING (SIZE {window} SECONDS, ADVANCE BY {advance} SECONDS)"""
OLD, NEW = (("V", "W"), "C"), ("V", ("W", "C"))
STEADY, LATER = 25, 5
SIDES = ("at once", "prepared")


class Seen(NamedTuple):
    """Seconds, and epochs until the change was made."""

    before: float
    longest: float
    epochs: int


def full(directory: Path, executor: Executor, window: int, tuples: int) -> None:
    """An engine whose window is full; few tuples have partners, so that rows cost little."""
    with LocalEngine(directory, executor=executor) as engine:
        options = {"rate": "max", "batch": str(tuples), "event_rate": str(tuples), "start_ms": "0"}
        keys = f"uniform(0,{tuples * window // 2})"
        for name in ("V", "W", "C"):
            columns = {"a": "BIGINT", "b": "BIGINT", "n": "BIGINT"}
            mine = options | {f"column.{c}": keys for c in columns}
            engine.create_stream(name, columns={**columns, "ts": "TIMESTAMP"}, source="generator", options=mine)
        engine.create_query(SQL.format(window=window, advance=window // 10), id="q")
        engine.apply(ForceOrder("q", OLD))
        for _ in range(window + window // 20):
            engine.run_epoch()


def changed(directory: Path, executor: Executor, prepared: bool) -> tuple[Seen, list[tuple[object, ...]]]:
    with LocalEngine(directory, executor=executor) as local:
        engine = local.engine
        rows = len(local.rows("q"))
        before = [_epoch(local) for _ in range(STEADY)][LATER:]
        uid = engine.state.names["q"]
        if prepared:
            began = engine.epoch
            engine.change_to(force_order(engine.plan, engine.state.running[uid], NEW))
        else:
            began = engine.epoch
            local.apply(ForceOrder("q", NEW))
        version, after, made = engine.state.executed.version, [], 0
        while not made or engine.epoch < made + LATER:
            after.append(_epoch(local))
            if not made and engine.state.executed.version > version:
                made = engine.epoch
        told = sorted(tuple(row.values()) for row in local.rows("q")[rows:])
        return Seen(statistics.median(before), max(after), made - began), told


def _epoch(local: LocalEngine) -> float:
    local.run_epoch()
    return local.engine.status().epoch_seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--window", type=int, default=600)
    parser.add_argument("--tuples", type=int, default=2_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--spark", action="store_true", help="tasks run on local[2]; else in this process")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ajoin-reordering-") as name:
        folder = Path(name)
        executor = SparkExecutor.start("local[2]", local_dir=folder) if asked.spark else LocalExecutor()
        full(folder / "full", executor, asked.window, asked.tuples)
        seen: dict[str, list[Seen]] = {side: [] for side in SIDES}
        for _ in range(asked.runs):
            told = {}
            for side in SIDES:
                copied(folder / "full", folder / "run")
                found, told[side] = changed(folder / "run", executor, side == "prepared")
                shutil.rmtree(folder / "run")
                seen[side].append(found)
            fewer, more = sorted((Counter(rows) for rows in told.values()), key=lambda rows: rows.total())
            assert fewer <= more, "both sides deliver the same rows"
            print(f"{fewer.total()} rows are the same", flush=True)
    print("| | median epoch before, ms | longest after, ms | longest over median | epochs |\n|---|---|---|---|---|")
    for side, runs in seen.items():
        before, longest = [1000 * s.before for s in runs], [1000 * s.longest for s in runs]
        over = [s.longest / s.before for s in runs]
        took = [float(s.epochs) for s in runs]
        print(f"| {side} | {spread(before)} | {spread(longest)} | {spread(over)} | {spread(took)} |")


if __name__ == "__main__":
    main()
