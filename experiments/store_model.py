"""How far does it go? What a larger cluster would do, computed from what was measured on a small one.

    python -m experiments.store_model [--executors 10 100]

One two-way join, a source task per executor and stream, a join task per executor, all with one core. With n executors
and T tuples per epoch (of both streams):

    requests(n)  =  put n (2 streams + 1 segment)  +  log  +  deleted buckets  +  n * 2n * get
    seconds(n)   =  fixed  +  task * 2n  +  T * tuple / n  +  (T * bytes / n) / link  +  2n * get * request / at once

`get`: requests with which one executor reads its range of one new bucket. Every executor reads a part of every new
bucket, and there are as many as source tasks, so requests grow with the square; so do the parts' ends, which are whole
chunks. The driver's part grows with n: tasks and references. The constants were measured (docs/decisions/0018) but
`task` and `request`, which this machine cannot show: what Spark's scheduler takes per task, and S3 to answer.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Constants:
    """Measured on `local[2]` and a standalone cluster; see the module."""

    fixed: float = 0.25
    """Seconds of an epoch without tuples."""
    tuple: float = 2.0e-6
    """Seconds of one core per tuple, from source to segment."""
    bytes: float = 30.0
    """Of a bucket, per tuple."""
    get: float = 8.0
    """Requests per new bucket and executor."""
    log: float = 4.0
    """Requests per epoch for its records."""
    delete: float = 3.0
    """Requests per deleted bucket."""
    reference: float = 4_000.0
    """Bytes over the driver's link per task."""
    task: float = 0.003
    """Assumed: seconds of the driver per task."""
    request: float = 0.03
    """Assumed: seconds until S3 answers."""
    at_once: int = 8
    """Requests of a task that wait at the same time."""
    link: float = 125e6
    """Bytes per second of an executor's link: 1 Gbit/s."""


@dataclass(frozen=True, slots=True)
class Prediction:
    seconds: float
    tuples_per_second: float
    requests: float
    driver_bytes: float


def predict(executors: int, tuples: float, c: Constants = Constants()) -> Prediction:  # noqa: B008 - frozen
    """Of one epoch with so many tuples per executor."""
    n = executors
    whole = n * tuples
    buckets = 2 * n
    requests = buckets + n + c.log + c.delete * buckets + n * buckets * c.get
    waiting = buckets * c.get * c.request / c.at_once
    seconds = c.fixed + c.task * 3 * n + tuples * c.tuple + tuples * c.bytes / c.link + waiting
    return Prediction(seconds, whole / seconds, requests, 3 * n * c.reference)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--executors", type=int, nargs="+", default=[1, 4, 10, 100])
    parser.add_argument("--tuples", type=int, default=1_000_000, help="per executor and epoch")
    asked = parser.parse_args()
    print("| executors | epoch | tuples/s | requests per epoch | per second | driver, per epoch |")
    print("|---|---|---|---|---|---|")
    for n in asked.executors:
        p = predict(n, asked.tuples)
        rate = p.requests / p.seconds
        cells = (f"{p.seconds:.1f} s", f"{p.tuples_per_second / 1e6:.1f} M", f"{p.requests:,.0f}", f"{rate:,.0f}")
        print(f"| {n} | {' | '.join(cells)} | {p.driver_bytes / 1e3:,.0f} KB |")


if __name__ == "__main__":
    main()
