"""Where do the ways to combine overlapping windows cross? For the constants of optimizer.model.combining.

    python -m experiments.closing_ways [few shared long base overlap] [--groups 10000] [--runs 3] [--epochs 16]

    few       FEW           windows of so many pieces: combine all, subtract, two stacks; the kernels alone
    shared    SHARED        so many windows close in one epoch: laid out, or sharing work
    long      LONG          windows of so many steps, one closes per epoch: all slices, or blocks
    base      BASE          a window of 600 steps with blocks of 2, 4, 8, 16 and 32
    overlap   MOST_OVERLAP  100 queries whose windows have so many steps: all in one pass, or query by query

All but the first run in an engine, tasks in this process, one after the other: SUM and MAX by group, one tuple per
group and step on average. It closes its first windows, then so many epochs are measured. Each line takes all ways in
turn, in fresh state, `runs` times; they must deliver equally many rows. Prints Markdown tables: milliseconds (of the
close stage per epoch), medians of the runs with (smallest to largest); the fastest is bold.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from ajoin.testing import LocalEngine
from optimizer.model import combining
from runtime.execution import blocks
from runtime.kernels import sliding
from runtime.operators import close_time

NEVER = 1 << 60
HOLDERS: Mapping[str, Sequence[Any]] = {
    "LONG": (combining,),
    "BASE": (combining, blocks),
    "MOST_OVERLAP": (combining,),
    "SHARED": (close_time,),
}
"""Which modules look at a constant."""


class Asked(NamedTuple):
    groups: int
    runs: int
    epochs: int


Line = tuple[int, int, int, Mapping[str, Mapping[str, int]]]
"""Steps per window, seconds per epoch, queries, and of each way the constants."""


@contextmanager
def constants(given: Mapping[str, int]) -> Iterator[None]:
    before = [(holder, name, getattr(holder, name)) for name in given for holder in HOLDERS[name]]
    for holder, name, _ in before:
        setattr(holder, name, given[name])
    try:
        yield
    finally:
        for holder, name, value in before:
            setattr(holder, name, value)


def closing(asked: Asked, steps: int, per_epoch: int, queries: int, given: Mapping[str, int]) -> tuple[float, int]:
    """(milliseconds of the close stage per epoch, rows) of windows of so many seconds that advance by one; an epoch
    brings `per_epoch` seconds."""
    groups = max(1, asked.groups // queries)
    options = {"rate": "max", "batch": str(groups * per_epoch), "event_rate": str(groups), "start_ms": "0"}
    options |= {"column.k": f"uniform(0,{groups - 1})", "column.x": "uniform(0,1000000)"}
    columns = {"k": "BIGINT", "x": "BIGINT", "ts": "TIMESTAMP"}
    window = f"HOPPING (SIZE {steps} SECONDS, ADVANCE BY 1 SECOND)"
    with constants(given), LocalEngine() as engine:
        engine.create_stream("S", columns=columns, source="generator", options=options)
        for i in range(queries):
            wanted = f"SELECT k, SUM(x) AS s, MAX(x) AS m FROM S WHERE x >= {1000 * i} GROUP BY k WINDOW {window}"
            engine.create_query(wanted, id=f"q{i}")
        for _ in range(-(-steps // per_epoch) + 4):
            engine.run_epoch()
        before, rows = engine.engine.state.seconds["close"], engine.engine.query("q0").rows
        for _ in range(asked.epochs):
            engine.run_epoch()
        spent = engine.engine.state.seconds["close"] - before
        return 1000 * spent / asked.epochs, engine.engine.query("q0").rows - rows


def few(asked: Asked) -> None:
    """The kernels over a table of (256 slices x groups), with a window per slice."""
    slices = 256
    integers = np.random.default_rng(1).integers(0, 1 << 20, (slices, asked.groups))
    doubles = integers / 7, np.zeros((slices, asked.groups))
    kernels: dict[str, dict[str, Callable[..., Any]]] = {
        "sum": {
            "combine": lambda *w: sliding.combine_all(integers, *w, sliding.SUM),
            "subtract": lambda *w: sliding.subtract(integers, *w),
            "stacks": lambda *w: sliding.two_stacks(integers, *w, sliding.SUM),
        },
        "sum of doubles": {
            "combine": lambda *w: sliding.combine_all_doubles(*doubles, *w),
            "subtract": lambda *w: sliding.subtract_doubles(*doubles, *w),
            "stacks": lambda *w: sliding.two_stacks_doubles(*doubles, *w),
        },
        "max": {
            "combine": lambda *w: sliding.combine_all(integers, *w, sliding.MAX),
            "stacks": lambda *w: sliding.two_stacks(integers, *w, sliding.MAX),
        },
    }

    def run(kernel: Callable[..., Any], pieces: int) -> Callable[[], tuple[float, int]]:
        first = np.arange(slices - pieces + 1, dtype=np.int64)

        def once() -> tuple[float, int]:
            began = time.perf_counter()
            kernel(first, first + pieces)
            return 1000 * (time.perf_counter() - began), len(first)

        once()  # nobody pays for loading
        return once

    for kind, ways in kernels.items():
        lines = {str(n): {way: run(k, n) for way, k in ways.items()} for n in (2, 3, 4, 6, 8, 12, 16, 32)}
        table(f"{kind}, pieces per window", lines, asked.runs)


def engines(asked: Asked, head: str, lines: Mapping[str, Line]) -> None:
    def run(steps: int, per_epoch: int, queries: int, given: Mapping[str, int]) -> Callable[[], tuple[float, int]]:
        return lambda: closing(asked, steps, per_epoch, queries, given)

    made = {name: {way: run(s, p, q, given) for way, given in ways.items()} for name, (s, p, q, ways) in lines.items()}
    table(head, made, asked.runs)


def table(head: str, lines: Mapping[str, Mapping[str, Callable[[], tuple[float, int]]]], runs: int) -> None:
    ways = list(next(iter(lines.values())))
    print(f"\n| {head} | {' | '.join(ways)} |\n|{'---|' * (len(ways) + 1)}", flush=True)
    for name, by_way in lines.items():
        found = [{way: by_way[way]() for way in ways} for _ in range(runs)]
        assert len({rows for once in found for _, rows in once.values()}) == 1, "all ways deliver the same"
        times = {way: [once[way][0] for once in found] for way in ways}
        best = min(ways, key=lambda way: statistics.median(times[way]))
        cells = [f"**{spread(times[way])}**" if way == best else spread(times[way]) for way in ways]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):,.2f} ({min(values):,.2f} to {max(values):,.2f})"


def shared(asked: Asked) -> None:
    plain = {"LONG": NEVER, "MOST_OVERLAP": 0}
    ways = {"laid out": plain | {"SHARED": NEVER}, "sharing": plain | {"SHARED": 0}}
    engines(asked, "windows that close together", {str(n): (64, n, 1, ways) for n in (1, 2, 3, 4, 6, 8, 16)})


def long(asked: Asked) -> None:
    ways = {"all slices": {"LONG": NEVER, "MOST_OVERLAP": 0}, "blocks": {"LONG": 1, "MOST_OVERLAP": 0}}
    engines(asked, "steps per window", {str(n): (n, 1, 1, ways) for n in (8, 16, 24, 32, 48, 64, 128, 512)})


def base(asked: Asked) -> None:
    ways = {f"BASE {n}": {"BASE": n} for n in (2, 4, 8, 16, 32)}
    engines(asked, "steps per window", {"600": (600, 1, 1, ways)})


def overlap(asked: Asked) -> None:
    ways = {"in one pass": {"LONG": NEVER, "MOST_OVERLAP": NEVER}, "query by query": {"LONG": NEVER, "MOST_OVERLAP": 0}}
    engines(asked, "steps per window, 100 queries", {str(n): (n, 1, 100, ways) for n in (1, 2, 4, 8, 16, 31)})


PARTS: Mapping[str, Callable[[Asked], None]] = {f.__name__: f for f in (few, shared, long, base, overlap)}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.closing_ways", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="which (default: all)")
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=16)
    given = parser.parse_args(arguments)
    for part in given.parts or PARTS:
        PARTS[part](Asked(given.groups, given.runs, given.epochs))


if __name__ == "__main__":
    main()
