"""What do blocks gain for a long window that advances by little? Both ways through the engine, on the same state.

    python -m experiments.long_windows [--groups 10000] [--slices 3600] [--runs 3] [--epochs 64] [--all 2]

One query, SUM and MAX by group over windows of so many seconds that advance by one; every epoch brings one second, one
tuple per group on average. First the engine runs until the first windows have closed. Then its state is copied, and
both sides go on from there: `blocks` as it is, `all slices` with blocks switched off, so that every window combines all
slices it has. What both deliver in the first epochs must be the same rows. Then they take turns, `runs` times: so many
epochs with blocks (which also make blocks), and fewer with all slices, because they take long. Tasks run in this
process, one after the other.

Prints a Markdown table: milliseconds per epoch, all of it and the close stage alone, medians of the runs with (smallest
to largest), and how many times as fast blocks are.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ajoin.testing import LocalEngine
from optimizer.model import combining
from runtime.api import ScaleTo
from runtime.execution import blocks

PARTITIONS = 4
"""So that all slices of a range of groups fit into memory."""


@contextmanager
def all_slices() -> Iterator[None]:
    long, cover = combining.LONG, blocks.cover
    combining.LONG, blocks.cover = 1 << 62, lambda *_: ()
    try:
        yield
    finally:
        combining.LONG, blocks.cover = long, cover


def prepared(directory: Path, groups: int, slices: int) -> None:
    """An engine that has closed its first windows."""
    with LocalEngine(directory) as engine:
        options = {"rate": "max", "batch": str(groups), "event_rate": str(groups), "start_ms": "0"}
        options |= {"column.k": f"uniform(0,{groups - 1})", "column.x": "uniform(0,1000000)"}
        columns = {"k": "BIGINT", "x": "BIGINT", "ts": "TIMESTAMP"}
        engine.create_stream("S", columns=columns, source="generator", options=options)
        window = f"HOPPING (SIZE {slices} SECONDS, ADVANCE BY 1 SECOND)"
        engine.create_query(f"SELECT k, SUM(x) AS s, MAX(x) AS m FROM S GROUP BY k WINDOW {window}", id="q")
        engine.apply(ScaleTo(PARTITIONS))
        began = time.perf_counter()
        for epoch in range(slices + 4):
            engine.run_epoch()
            if epoch % 600 == 599:
                print(f"{epoch + 1} epochs in {time.perf_counter() - began:.0f} s", flush=True)


def copied(directory: Path, to: Path) -> None:
    """Bucket files never change, so a second name is enough."""
    shutil.copytree(directory, to, ignore=shutil.ignore_patterns("buckets"))
    (to / "buckets").mkdir()
    for file in (directory / "buckets").iterdir():
        os.link(file, to / "buckets" / file.name)


class Side:
    def __init__(self, directory: Path, without: bool) -> None:
        self.engine, self.without = LocalEngine(directory), without

    def run(self, epochs: int) -> tuple[float, float]:
        """Milliseconds per epoch: all of it, the close stage."""
        stages = self.engine.engine.state.seconds.get("close", 0.0)
        began = time.perf_counter()
        for _ in range(epochs):
            if self.without:
                with all_slices():
                    self.engine.run_epoch()
            else:
                self.engine.run_epoch()
        spent = time.perf_counter() - began
        closing = self.engine.engine.state.seconds["close"] - stages
        return 1000 * spent / epochs, 1000 * closing / epochs

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(tuple(row.values()) for row in self.engine.rows("q"))


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):,.1f} ({min(values):,.1f} to {max(values):,.1f})"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--slices", type=int, default=3_600)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=64)
    parser.add_argument("--all", type=int, default=2)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ajoin-long-") as place:
        state, copy = Path(place, "blocks"), Path(place, "all")
        prepared(state, args.groups, args.slices)
        copied(state, copy)
        sides = {"all slices": Side(copy, without=True), "blocks": Side(state, without=False)}
        for side in sides.values():
            side.run(args.all)
        mine, other = (side.rows() for side in sides.values())
        assert mine == other and mine, "both ways must give the same rows"
        print(f"{len(mine):,} rows are the same", flush=True)
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
        for _ in range(args.runs):
            for name, side in sides.items():
                found[name].append(side.run(args.all if side.without else args.epochs))
        for side in sides.values():
            side.engine.close()
    print(f"\n{args.slices:,} slices a window, {args.groups:,} groups, SUM and MAX, {PARTITIONS} partitions\n")
    print("| ms per epoch | all slices | blocks | times |\n|---|---|---|---|")
    for at, what in enumerate(("epoch", "close stage")):
        slow, fast = ([run[at] for run in found[name]] for name in ("all slices", "blocks"))
        times = [a / b for a, b in zip(slow, fast, strict=True)]
        print(f"| {what} | {spread(slow)} | {spread(fast)} | {spread(times)} |")


if __name__ == "__main__":
    main()
