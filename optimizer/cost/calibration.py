"""The weights of the cost model, measured on the machine that will run the plans.

The cost of a stage is linear in what it does: tuples indexed, keys intersected, combinations expanded, tuples
exchanged, calls made, tuples folded, entries of closed windows combined. So a few small runs of known size and their
times determine the weights by least squares; weights cannot be negative, and a weight the runs cannot tell apart from
noise falls to zero together with its term (`fit`). The price of a stage has nothing to do with kernels: it is the time
that a stage which does nothing takes on the executor that runs the plans, and is kept with them (`with_stage`).

Nothing here reads a clock or a file. The caller measures (`PROBES` says what), stores the result under `machine_key`
and reads it back the next time: the measurement is done once per machine. `correlation` tells how well predicted and
measured times of real stages agree; it is reported by the benchmark and can be watched in operation.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optimizer.cost.model import Weights
from optimizer.errors import InvalidRequest

FORMAT = 3


@dataclass(frozen=True, slots=True)
class Work:
    """What one run does. Index `tuples` on both sides together, intersect `keys`, expand `combinations`, and so on;
    or fold tuples, or combine entries of `closed` windows."""

    tuples: float = 0.0
    keys: float = 0.0
    combinations: float = 0.0
    exchanged: float = 0.0
    calls: float = 0.0
    folded: float = 0.0
    closed: float = 0.0

    @property
    def values(self) -> tuple[float, ...]:
        return self.tuples, self.keys, self.combinations, self.exchanged, self.calls, self.folded, self.closed


PROBES: tuple[Work, ...] = tuple(
    Work(tuples=2 * n, keys=k, combinations=(n * n / k) if expand else 0, exchanged=n if move else 0, calls=c)
    for n, k, expand, move, c in (
        (1_000, 100, False, False, 3),
        (10_000, 100, False, False, 3),
        (10_000, 5_000, False, False, 3),
        (100_000, 50_000, False, False, 3),
        (100_000, 1_000, False, False, 3),
        (10_000, 5_000, True, False, 4),
        (20_000, 1_000, True, False, 4),
        (100_000, 50_000, True, False, 4),
        (10_000, 5_000, False, True, 4),
        (100_000, 50_000, False, True, 4),
        (100, 50, False, False, 3),
        (100, 50, True, True, 5),
    )
) + tuple(
    Work(calls=1, folded=n if fold else 0, closed=0 if fold else n)
    for n in (1_000, 10_000, 100_000)
    for fold in (True, False)
)
"""Runs that tell the weights apart: n tuples a side over k keys, with or without expansion and exchange; n tuples
folded; n entries of closed windows combined."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Weights in seconds, and how well they explain the runs they came from (1.0: fully)."""

    weights: Weights
    correlation: float


def calibrate(measure: Callable[[Work], float], probes: Sequence[Work] = PROBES) -> Calibration:
    """`measure` performs one probe and returns its seconds; the caller repeats and takes the best of several."""
    return fit([(probe, measure(probe)) for probe in probes])


def fit(runs: Sequence[tuple[Work, float]]) -> Calibration:
    """Non-negative least squares of times against work, relative to the times, so that short runs count as much."""
    usable = [(w.values, seconds) for w, seconds in runs if seconds > 0]
    if len(usable) < len(Work().values):
        raise InvalidRequest(
            f"{len(usable)} timed runs do not determine {len(Work().values)} weights",
            reason="CALIBRATION_TOO_SHORT",
            hint="measure all of PROBES",
        )
    work = np.array([w for w, _ in usable])
    seconds = np.array([s for _, s in usable])
    prices = _non_negative(work / seconds[:, None], np.ones(len(usable)))
    weights = Weights(*(float(w) for w in prices))
    return Calibration(weights, correlation(work @ prices, seconds))


def correlation(
    predicted: Sequence[float] | NDArray[np.float64], measured: Sequence[float] | NDArray[np.float64]
) -> float:
    """Pearson's coefficient; 0 when one of the two does not vary."""
    x, y = np.asarray(predicted, dtype=np.float64), np.asarray(measured, dtype=np.float64)
    if len(x) < 2 or x.std() == 0 or y.std() == 0:
        return 0.0
    return float(np.corrcoef(x, y)[0, 1])


def machine_key(facts: Mapping[str, Any]) -> str:
    """A file-safe name for a machine; `facts` are what its speed depends on (processor, cores, library versions)."""
    text = json.dumps(facts, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def to_json(calibration: Calibration) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "weights": list(calibration.weights.values),
        "stage": calibration.weights.stage,
        "correlation": calibration.correlation,
    }


def from_json(data: Mapping[str, Any]) -> Calibration | None:
    """None when it was written in another format: measure again."""
    if data.get("format") != FORMAT or len(data.get("weights", ())) != len(Weights().values):
        return None
    weights = Weights(*(float(w) for w in data["weights"]))
    return with_stage(Calibration(weights, float(data["correlation"])), float(data["stage"]))


def with_stage(calibration: Calibration, seconds: float) -> Calibration:
    return replace(calibration, weights=replace(calibration.weights, stage=seconds))


def _non_negative(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Least squares with x >= 0, exactly: the best over all sets of columns that may be positive (2^7 of them)."""
    scale = np.linalg.norm(a, axis=0)
    scale[scale == 0] = 1.0
    n = a.shape[1]
    best, best_error = np.zeros(n), float(b @ b)
    for chosen in range(1, 1 << n):
        columns = [i for i in range(n) if chosen >> i & 1]
        x, *_ = np.linalg.lstsq(a[:, columns] / scale[columns], b, rcond=None)
        if (x < 0).any():
            continue
        error = float(np.square(a[:, columns] / scale[columns] @ x - b).sum())
        if error < best_error * (1 - 1e-12):
            best, best_error = np.zeros(n), error
            best[columns] = x / scale[columns]
    return best
