"""Do predicted and measured times agree? Measures the probes on this machine, fits the weights, predicts other runs.

    python -m experiments.optimizer_calibration [--runs 40]

The weights come from `optimizer.cost.calibration.PROBES`; the correlation is reported for the probes and, which
is what counts, for random runs the weights have not seen, of joins and of folds (with 2 to 50 tuples per group, or
entries per row; the probes have 8).
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable

from optimizer.cost.calibration import PROBES, Work, calibrate, correlation
from runtime.kernels.warm import warm_up
from runtime.machine.calibrate import measure


def random_run(rng: random.Random) -> Work:
    n = int(10 ** rng.uniform(2, 5.3))
    keys = max(1, int(n / 10 ** rng.uniform(0, 2)))
    pairs = n * n / keys if rng.random() < 0.5 and n * n / keys < 5e6 else 0.0
    moved = n if rng.random() < 0.5 else 0
    return Work(2 * n, keys, pairs, moved, 3 + bool(pairs) + bool(moved))


def random_fold(rng: random.Random) -> Work:
    n = int(10 ** rng.uniform(2, 5.3))
    return Work(calls=1, folded=n) if rng.random() < 0.5 else Work(calls=1, closed=n)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40)
    args = parser.parse_args()
    warm_up()
    begin = time.perf_counter()
    found = calibrate(lambda work: measure(work, time.perf_counter))
    print(f"measured {len(PROBES)} probes in {time.perf_counter() - begin:.2f} s")
    names = (
        "indexed tuple",
        "intersected key",
        "expanded combination",
        "exchanged tuple",
        "call",
        "folded tuple",
        "closed entry",
    )
    for name, weight in zip(names, found.weights.values, strict=True):
        print(f"  {name:<22} {weight * 1e9:>10.2f} ns")
    print(f"correlation on the probes:     {found.correlation:.3f}")
    rng = random.Random(3)
    kinds: list[tuple[str, Callable[[random.Random], Work], Callable[[], int]]] = [
        ("joins", random_run, lambda: 8),
        ("folds", random_fold, lambda: rng.randint(2, 50)),
    ]
    for kind, draw, each in kinds:
        runs = [draw(rng) for _ in range(args.runs)]
        predicted = [sum(w * v for w, v in zip(found.weights.values, r.values, strict=True)) for r in runs]
        measured = [measure(r, time.perf_counter, each=each()) for r in runs]
        print(f"correlation on {args.runs} other runs of {kind}: {correlation(predicted, measured):.3f}")


if __name__ == "__main__":
    main()
