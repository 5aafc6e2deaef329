"""`python -m tests.lives.reproduce PROFILE SEED`: one life again, and how small it can become.

Prints what differs between engine and oracle. With --shrink the life is made small first (a
minute or so) and written to a file that `ajoin replay` can read.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from runtime.engine import close_stage
from runtime.execution.executor import Executor, LocalExecutor
from runtime.kernels import hashing
from runtime.spark.executor import SparkExecutor
from tests.lives import PROFILES, describe, make_life, shrink
from tests.lives.engine import Paced, Stored, differences
from tests.lives.executors import Recycled, Stubborn

WEAK_MASK = np.uint64(0b111 << 61)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lives.reproduce", description=__doc__)
    parser.add_argument("profile", choices=sorted(PROFILES))
    parser.add_argument("seed", type=int)
    parser.add_argument("--spark", action="store_true", help="on a real local Spark, not in this process")
    parser.add_argument("--stubborn", action="store_true", help="every task twice, in any order")
    parser.add_argument("--recycled", action="store_true", help="workers and executors are replaced")
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--sharing", choices=["cost", "off", "astream"], default="cost")
    parser.add_argument("--store", choices=["path", "objects", "failing"], help="the state is in a store")
    parser.add_argument("--killed", action="store_true", help="before and after every epoch")
    parser.add_argument("--kept", action="store_true", help="restarts find the local directory as it was")
    parser.add_argument("--cache-bytes", type=int, default=0, help="bound of the cache")
    parser.add_argument("--rotting", type=int, help="damage bucket files, with this seed")
    parser.add_argument("--paced", type=int, help="rows that a query may make in an epoch")
    parser.add_argument("--at-once", action="store_true", help="with --paced: postponed work is done before all else")
    parser.add_argument("--weak-hash", action="store_true", help="3 bits for strings and composite keys")
    parser.add_argument("--carry-from", type=int, help="partials of so many buckets are carried into one")
    parser.add_argument("--shrink", action="store_true", help="look for a smaller life that still fails")
    asked = parser.parse_args(arguments)
    if asked.weak_hash:
        hashing.CANDIDATE_MASK = WEAK_MASK
    if asked.carry_from is not None:
        close_stage.CARRY_FROM = asked.carry_from
    executor = _executor(asked)
    try:
        return _run(asked, executor)
    finally:
        executor.stop()


def _executor(asked: argparse.Namespace) -> Executor:
    if asked.spark:
        return SparkExecutor.start("local[2]", local_dir=Path(tempfile.mkdtemp(prefix="ajoin-spark-")))
    if asked.recycled:
        return Recycled(Path(tempfile.mkdtemp(prefix="ajoin-pieces-")), asked.seed)
    return Stubborn(asked.seed) if asked.stubborn else LocalExecutor()


def _run(asked: argparse.Namespace, executor: Executor) -> int:
    life = make_life(Random(asked.seed), asked.profile)

    def wrong(life: list[dict[str, Any]]) -> list[str]:
        try:
            stored = None
            if asked.store:
                kind = asked.store
                stored = Stored(kind != "path", asked.killed, not asked.kept, asked.cache_bytes, kind == "failing")
            paced = Paced(asked.paced, asked.at_once) if asked.paced is not None else None
            how = (asked.partitions, asked.sharing, stored, asked.rotting, paced)
            return differences(life, executor, *how)
        except Exception as error:
            return [f"{type(error).__name__}: {error}"]

    found = wrong(life)
    if found and asked.shrink:
        life = shrink(life, lambda smaller: bool(wrong(smaller)))
        found = wrong(life)
    path = Path(tempfile.gettempdir()) / f"ajoin-life-{asked.profile}-{asked.seed}.jsonl"
    path.write_text(describe(life), encoding="utf-8")
    print(f"{len(life)} lines: {path}")
    print("\n".join(found) or "engine and oracle agree")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
