"""C2, C3 and C8: what executors fetch, keep and are sent, on a standalone cluster with 1, 2 and 4 of them.

Every executor has one core and a directory of its own, so a cache of its own; the store is a folder that cannot be
mapped. Workers are added to one cluster, and each size begins a new life. Tasks tell what they asked of the store
(runtime/spark/executors.py).

C2  Bytes that an executor fetches per epoch, and all together over the bytes written. A bucket is large enough (a few
    hundred thousand tuples) that the chunks at the ends of a range do not count for much.
C8  Bytes that stages share and that are sent with them, per epoch, with more and more open buckets (one executor).
C3  Of the buckets that are open at the end, how much the fullest cache holds.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from experiments.stores.life import Life, Line, Load, plain
from runtime import plugins
from runtime.api import ExecutorStatus
from runtime.spark.executor import SparkExecutor
from runtime.spark.standalone import Standalone
from tests.cluster.tasks import where

SIZES, WARM = (1, 2, 4), 2
PATIENCE = 300.0
OPTIONS = {"spark.executor.memory": "512m", "spark.executorEnv.PYTHONPATH": str(Path(__file__).parents[2])}


class Seen(NamedTuple):
    """Per epoch, but `share`: of open state in the fullest cache."""

    fetched: list[float]
    requests: float
    written: float
    share: float


def executors(folder: Path, quick: bool) -> list[Line]:
    plugins.load(("tests.tools.opaque_store",))
    tuples, reads = (300_000, 1) if quick else (600_000, 2)
    load = Load(tuples, window=8, hopping=True, reads=reads, partitions=4, spread=10)
    epochs = 4
    seen: dict[int, Seen] = {}
    with ExitStack() as stack:
        cluster = stack.enter_context(Standalone(folder, workers=1))
        executor = SparkExecutor.start(cluster.url, local_dir=folder / "driver", options=OPTIONS | cluster.options)
        stack.callback(executor.stop)
        expected = plain(folder / "plain", load, WARM + epochs)
        for size in SIZES:
            while len(cluster.workers) < size:
                cluster.add_worker()
            _until(executor, size)
            life = Life(folder / f"near-{size}", executor, f"opaque://{folder.resolve()}/store-{size}", load)
            life.steps(WARM)
            before = executor.executors(load.partitions)
            life.steps(epochs)
            seen[size] = _seen(cluster.directory, life, before, executor.executors(load.partitions), epochs)
            assert life.close() == expected
    return _lines(seen, reads)


def shipped(folder: Path, quick: bool) -> list[Line]:
    plugins.load(("tests.tools.opaque_store",))
    windows, epochs = ((2, 8) if quick else (2, 8, 32)), 5
    lines, sums = [], []
    with ExitStack() as stack:
        cluster = stack.enter_context(Standalone(folder, workers=1))
        executor = SparkExecutor.start(cluster.url, local_dir=folder / "driver", options=OPTIONS | cluster.options)
        stack.callback(executor.stop)
        for window in windows:
            load = Load(tuples=20_000, window=window, hopping=True, partitions=4, spread=100)
            life = Life(folder / f"near-{window}", executor, f"opaque://{folder.resolve()}/store-{window}", load)
            life.steps(window + 3)
            before = executor.shipping.bytes
            life.steps(epochs)
            sums.append((executor.shipping.bytes - before) / epochs)
            lines.append(
                Line(
                    f"C8 bytes sent with the stages of an epoch, {len(life.open_bytes)} open buckets",
                    f"{sums[-1]:,.0f}",
                )
            )
            assert life.close() == plain(folder / f"plain-{window}", load, window + 3 + epochs)
    most = sums[-1] / sums[0]
    lines.append(Line(f"C8 window of {windows[-1]} epochs over {windows[0]}", f"{most:.2f}", "<= 1.2", most <= 1.2))
    return lines


def _lines(seen: dict[int, Seen], reads: int) -> list[Line]:
    lines = []
    for size, found in seen.items():
        over = sum(found.fetched) / found.written
        text = (
            f"{max(found.fetched) / 1e6:.1f} MB by one, together {over:.2f} x the {found.written / 1e6:.1f} MB written"
        )
        lines.append(Line(f"C2 fetched per epoch, executors: {size}", text, "together <= 1.5", over <= 1.5))
        each = found.requests / size / (2 * reads)
        lines.append(Line(f"C2 requests per executor and new bucket, executors: {size}", f"{each:.1f}"))
    for size in SIZES[1:]:
        factor = max(seen[size].fetched) * size / sum(seen[1].fetched)
        lines.append(Line(f"C2 most fetched by one of {size}, over 1/{size}", f"{factor:.2f}", "<= 1.3", factor <= 1.3))
    share = seen[SIZES[-1]].share
    lines.append(Line(f"C3 open state in the fullest of {SIZES[-1]} caches", f"{share:.2f}", "<= 0.35", share <= 0.35))
    return lines


def _seen(
    cluster: Path, life: Life, before: tuple[ExecutorStatus, ...], after: tuple[ExecutorStatus, ...], epochs: int
) -> Seen:
    began = {told.executor: told for told in before}
    grown = [(told, began[told.executor]) for told in after]
    fetched = [(now.fetched_bytes - old.fetched_bytes) / epochs for now, old in grown]
    requests = sum(now.requests - old.requests for now, old in grown) / epochs
    return Seen(fetched, requests, life.written(epochs) / epochs, _share(cluster, life.open_bytes))


def _share(cluster: Path, opened: dict[str, int]) -> float:
    names = {f"buckets~{file.replace('/', '~')}" for file in opened}
    held: dict[str, int] = {}
    for file in cluster.glob("worker-*/local/**/ajoin-cache/*"):
        if file.name in names:
            worker = file.relative_to(cluster).parts[0]
            held[worker] = held.get(worker, 0) + file.stat().st_blocks * 512
    return max(held.values()) / sum(opened.values())


def _until(executor: SparkExecutor, size: int) -> None:
    """Spark needs a moment to give out executors."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if len(set(executor.run("where", where, None, range(2 * size)))) == size:
            return
        time.sleep(0.1)
    raise SystemExit(f"there were not {size} executors in {PATIENCE:g} s")
