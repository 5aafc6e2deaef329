"""How fast are sliding windows over one column, and what does it gain to fold in bulk? Two stacks, two ways.

    python -m experiments.sliding_kernels [--tuples 33554432] [--runs 3]

SUM and MIN over count windows of 1,024 tuples sliding by 64, and of 2**20 sliding by 2**10, of a column of 32-bit
integers (as in the Hammer Slide paper) and of one of 64-bit integers, each larger than the processor's caches. `per
tuple` is the textbook's two stacks, compiled, and `lean` the same without the one column that is never read; `bulk`
folds what enters and leaves together first, with vector
instructions (runtime.kernels.count_windows). Both must give the same numbers. One thread each, taking turns.

Prints a Markdown table: tuples and bytes of the column per second, the share of the bandwidth at which the same column
is copied (bytes read and written), and how many times as fast bulk is as either; medians of the runs, with (smallest
to largest). Before it, which vector instructions the compiled reductions have.
"""

from __future__ import annotations

import argparse
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numba as nb
import numpy as np
import numpy.typing as npt

from runtime.kernels import count_windows

SHAPES = ((1 << 10, 1 << 6), (1 << 20, 1 << 10))
OPERATIONS = (("SUM", count_windows.SUM), ("MIN", count_windows.MIN))
TARGET = 10.0
HEAD = (
    "",
    "column",
    "size",
    "slide",
    "per tuple, M tuples/s",
    "lean",
    "bulk",
    "GB/s",
    "of copying",
    "times",
    "times lean",
)


def seconds(work: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def copying(values: npt.NDArray[Any], runs: int) -> float:
    """Bytes read and written per second when the column is copied."""
    target = np.empty_like(values)
    np.copyto(target, values)
    return 2 * values.nbytes / statistics.median(seconds(lambda: np.copyto(target, values)) for _ in range(runs))


def compare(values: npt.NDArray[Any], size: int, slide: int, name: str, operation: int, runs: int) -> tuple[str, float]:
    """A row of the table, and how many times as fast as the textbook's way."""

    def bulk() -> Any:
        return count_windows.bulk(values, size, slide, operation)

    def per_tuple() -> Any:
        return count_windows.per_tuple(values, size, slide, operation)

    def lean() -> Any:
        return count_windows.per_tuple(values, size, slide, operation, lean=True)

    assert (bulk() == per_tuple()).all() and (bulk() == lean()).all()
    bandwidth = copying(values, runs)
    taken = [(seconds(bulk), seconds(per_tuple), seconds(lean)) for _ in range(runs)]
    fast, slow, less = ([len(values) / t / 1e6 for t in way] for way in zip(*taken, strict=True))
    ratios, lean_ratios = ([t[way] / t[0] for t in taken] for way in (1, 2))
    rate = statistics.median(fast) * 1e6 * values.itemsize
    cells = (
        name,
        f"int{8 * values.itemsize}",
        f"{size:,}",
        f"{slide:,}",
        spread(slow, ",.0f"),
        spread(less, ",.0f"),
        spread(fast, ",.0f"),
        f"{rate / 1e9:.1f}",
        f"{rate / bandwidth:.0%}",
        spread(ratios, ".1f"),
        spread(lean_ratios, ".1f"),
    )
    return f"| {' | '.join(cells)} |", statistics.median(ratios)


def spread(values: list[float], form: str) -> str:
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def instructions(kernel: Any) -> str:
    """The packed instructions of a kernel's loops, by how many there are; compiled anew, as the cache has no text."""
    found: Counter[str] = Counter()
    for text in nb.njit(kernel.signatures)(kernel.py_func).inspect_asm().values():
        found.update(re.findall(r"^\s+(vp?(?:add|min)s?[qd])\s.*[yz]mm", text, re.MULTILINE))
    return ", ".join(f"{n} {name}" for name, n in sorted(found.items())) or "none"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tuples", type=int, default=1 << 25)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    random = np.random.default_rng(1)
    for name, kernel in (("sums", count_windows.piece_sums), ("minima", count_windows.piece_minima)):
        print(f"packed instructions in {name}: {instructions(kernel)}")
    print(
        "\n| | column | size | slide | per tuple, M tuples/s | lean | bulk | GB/s | of copying | times | times lean |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    reached = []
    for kind in (np.int32, np.int64):
        values = random.integers(0, 1 << 20, args.tuples).astype(kind)
        for size, slide in SHAPES:
            for name, operation in OPERATIONS:
                row, ratio = compare(values, size, slide, name, operation, args.runs)
                print(row, flush=True)
                reached.append(ratio)
    print(f"\nat least {TARGET:.0f} times as fast in {sum(r >= TARGET for r in reached)} of {len(reached)}")


if __name__ == "__main__":
    main()
