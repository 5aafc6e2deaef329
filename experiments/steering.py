"""What the periodic optimizer costs those who create queries: deployment latency with it on, off, and inside the batch.

    python -m experiments.steering [--queries 1000] [--probes 150] [--period 2] [--rounds 2]

A platform in this process (local executor) runs many queries over four streams while data flows. One query after the
other is created and deleted, and the time until each call is answered is measured. `beside` is what the platform does:
searches run on a thread of their own. `inside` asks for the same optimizations as a request in the query batch, which
everybody in the batch then waits for. Modes take turns, so that other load on the machine meets all of them.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import numpy as np

from ajoin.platform.optimizing import Optimizing
from ajoin.platform.periodic import Periodic
from ajoin.platform.platform import Pace, Platform, Wanted, only
from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.api import Optimize
from runtime.connectors.base import ConnectorSpec
from runtime.control.steering import Steering
from runtime.engine.config import EngineConfig
from runtime.engine.engine import Engine, wall_clock_ms
from runtime.execution.executor import LocalExecutor

STREAMS = "ABCD"
MODES = ("off", "beside", "inside")


def sql(rng: random.Random) -> str:
    size = rng.choice((2, 2, 3))
    start = rng.randrange(len(STREAMS) - size + 1)
    names = STREAMS[start : start + size]
    joins = " ".join(f"JOIN {b} ON {a}.k = {b}.k" for a, b in pairwise(names))
    low = rng.randrange(80)
    where = " AND ".join(f"{s}.v >= {low} AND {s}.v < {low + 5}" for s in names)
    size_s = rng.choice((1, 2))
    return f"SELECT {names[0]}.v FROM {names[0]} {joins} WHERE {where} WINDOW TUMBLING (SIZE {size_s} SECONDS)"


def fed(platform: Platform, stopped: threading.Event) -> None:
    rng, now = random.Random(1), 0
    while not stopped.wait(0.2):
        for stream in STREAMS:
            rows = [{"k": rng.randrange(100), "v": rng.randrange(100), "ts": now + i} for i in range(100)]
            platform.push(stream, rows).result()
        now += 100


def probed(platform: Platform, rng: random.Random, probes: int) -> list[float]:
    seconds = []
    for n in range(probes):
        began = time.perf_counter()
        platform.create_query(sql(rng), f"probe{n}")
        seconds.append(time.perf_counter() - began)
        only(platform.delete_queries([f"probe{n}"]).result())
    return seconds


def job(mode: str, platform: Platform) -> Callable[[], None] | None:
    if mode == "off":
        return None
    if mode == "inside":
        return lambda: only(platform.control(Optimize("incremental", force=False)).result())
    return Optimizing(platform).once


def measure(queries: int, probes: int, period: float, rounds: int, every: int) -> dict[str, list[float]]:
    rng = random.Random(7)
    found: dict[str, list[float]] = {mode: [] for mode in MODES}
    with ExitStack() as parts:
        directory = parts.enter_context(tempfile.TemporaryDirectory(prefix="ajoin-steering-"))
        config = EngineConfig(steering=Steering(optimize_full_every=every))
        engine = Engine.open(Path(directory), LocalExecutor(), config)
        pace = Pace(batch_interval=0.05, epoch_interval=0.5)
        platform = parts.enter_context(Platform(engine, clock=wall_clock_ms, pace=pace))
        columns = (Column("ts", ColumnType.TIMESTAMP), Column("k", ColumnType.BIGINT), Column("v", ColumnType.BIGINT))
        for stream in STREAMS:
            platform.create_stream(StreamSchema(stream, columns, "ts"), ConnectorSpec("push")).result()
        platform.create_queries([Wanted(f"q{n}", sql(rng)) for n in range(queries)]).result()
        stopped = threading.Event()
        feeder = threading.Thread(target=fed, args=(platform, stopped), daemon=True)
        feeder.start()
        parts.callback(feeder.join)
        parts.callback(stopped.set)
        platform.wait_until(lambda: platform.epoch >= 3)
        Optimizing(platform).once()  # the plan settles first
        Optimizing(platform).once()
        for _ in range(rounds):
            for mode in MODES:
                with ExitStack() as running:
                    if (work := job(mode, platform)) is not None:
                        running.enter_context(Periodic(mode, work, lambda: period))
                    found[mode] += probed(platform, rng, probes)
                print(mode, said(found[mode]), flush=True)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--probes", type=int, default=150)
    parser.add_argument("--period", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--every", type=int, default=6, help="which run is a full one; 1: all")
    asked = parser.parse_args(arguments)
    found = measure(asked.queries, asked.probes, asked.period, asked.rounds, asked.every)
    print(f"{asked.queries} queries, an optimization {asked.period:g} s after the last, {asked.rounds} rounds")
    for mode, seconds in found.items():
        print(f"{mode:<7} {said(seconds)}")


def said(seconds: Sequence[float]) -> str:
    p50, p90, p99 = np.percentile(seconds, (50, 90, 99))
    return f"n={len(seconds)}  p50 {p50:.3f} s  p90 {p90:.3f} s  p99 {p99:.3f} s"


if __name__ == "__main__":
    main()
