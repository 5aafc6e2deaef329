"""How far does it go? What a larger cluster would do, computed from what was measured on a small one.

    python -m experiments.store_model [--executors 10 100]

One two-way join, n executors with one core each, a source task per executor and stream, a join task per executor, t
tuples per executor and epoch. Every join task reads a part of each of the 2n new buckets:

    requests  =  2n + n        buckets and segments that are put
               + log           two records, each after a look at who owns the store
               + 2n delete     buckets that are needed no more
               + n * 2n * get  new buckets that every executor reads a part of
    seconds   =  fixed + 3n task + t tuple + t bytes / link + 2n get request / at_once
    driver    =  3n * bytes of a task and its answer

So the driver's part grows with n, and requests with its square. Constants were measured on a busy machine
(docs/decisions/0018-the-store.md), so they are rather too large. Three are assumed, because a single machine cannot
show them: what an epoch costs without tuples, what Spark's scheduler takes per task, and what S3 takes to answer.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Constants:
    """Measured on `local[2]` and a standalone cluster; see the module."""

    fixed: float = 0.2
    """Assumed: seconds of an epoch without tuples."""
    tuple: float = 3.8e-6
    """Seconds of one core per tuple, from source to segment, with as many rows as tuples per stream (C4)."""
    bytes: float = 35.0
    """Of a bucket, per tuple (C2)."""
    get: float = 10.0
    """Requests per new bucket and executor: 9 parts (C2), and one to learn its length."""
    log: float = 6.0
    delete: float = 3.0
    """Requests per deleted bucket, of which pyarrow makes two for itself (C6)."""
    answer: float = 23_000.0
    """Bytes over the driver's link per task, all that passes divided by all tasks (C1)."""
    task: float = 0.003
    """Assumed: seconds of the driver per task."""
    request: float = 0.03
    """Assumed: seconds until S3 answers."""
    at_once: int = 8
    """Requests of a task that wait at the same time (runtime/store/cache.py)."""
    link: float = 125e6
    """Bytes per second of an executor's link: 1 Gbit/s."""


MEASURED = Constants()


@dataclass(frozen=True, slots=True)
class Prediction:
    seconds: float
    tuples_per_second: float
    requests: float
    driver_bytes: float


def predict(executors: int, tuples: float, c: Constants = MEASURED) -> Prediction:
    """Of one epoch with so many tuples per executor."""
    n, buckets = executors, 2 * executors
    requests = buckets + n + c.log + c.delete * buckets + n * buckets * c.get
    waiting = buckets * c.get * c.request / c.at_once
    seconds = c.fixed + c.task * 3 * n + tuples * c.tuple + tuples * c.bytes / c.link + waiting
    return Prediction(seconds, n * tuples / seconds, requests, 3 * n * c.answer)


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
