"""C4 and C6: what a store costs on the machine of the driver, on `local[2]`.

C4  The same epochs in the state directory, with a store that is a path, and with one on an S3 server, in turn, epoch by
    epoch, so that all meet the same machine. The S3 server shares the two cores with everything else.
C6  Requests per epoch as the S3 server counts them, log and deletions included, with more and more open buckets.
    Windows hop, so the state is steady: with every epoch a pair of buckets comes and one goes. The first epochs, in
    which the state still grows, are not counted. Rows are few, so that no results expire: that would cost three
    requests per segment, whatever is open.
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from pathlib import Path

from experiments.stores.life import Life, Line, Load, plain, ratio
from experiments.stores.requests import requests, serving
from runtime.execution.executor import Executor
from runtime.spark.executor import SparkExecutor

MASTER, WARM = "local[2]", 2
KINDS = {"put": "putobject putobjectpart newmultipartupload completemultipartupload", "get": "getobject headobject"}


def throughput(folder: Path, quick: bool) -> list[Line]:
    load, epochs = Load(tuples=100_000 if quick else 500_000), 4 if quick else 8
    with ExitStack() as stack:
        server = stack.enter_context(serving(folder / "minio"))
        executor = SparkExecutor.start(MASTER, local_dir=folder)
        stack.callback(executor.stop)
        places = {"state directory": None, "file": str(folder / "store"), "MinIO": server.uri(server.new_bucket())}
        lives = {name: Life(folder / name, executor, store, load) for name, store in places.items()}
        for _ in range(WARM + epochs):
            for life in lives.values():
                life.steps(1)
        taken = {name: life.taken[WARM:] for name, life in lives.items()}
        rows = {name: life.close() for name, life in lives.items()}
    assert len(set(rows.values())) == 1, rows
    lines = []
    for name, least in (("file", 0.9), ("MinIO", 0.5)):
        found = ratio(taken["state directory"], taken[name])
        lines.append(Line(f"C4 throughput, {name} over state directory", f"{found:.2f}", f">= {least}", found >= least))
    rate = 2 * load.tuples / statistics.median(taken["state directory"])
    made = rows["file"][0] / (WARM + epochs)
    lines.append(Line(f"C4 {load.tuples:,} tuples per stream and epoch", f"{rate:,.0f}/s, {made:,.0f} rows per epoch"))
    return lines


def per_epoch(folder: Path, quick: bool) -> list[Line]:
    windows, epochs = ((2, 8) if quick else (2, 8, 32)), 5
    lines, sums = [], []
    with ExitStack() as stack:
        server = stack.enter_context(serving(folder / "minio"))
        executor: Executor = SparkExecutor.start(MASTER, local_dir=folder)
        stack.callback(executor.stop)
        for window in windows:
            load = Load(tuples=20_000, window=window, hopping=True, partitions=8, spread=100)
            life = Life(folder / f"near-{window}", executor, server.uri(server.new_bucket()), load)
            life.steps(window + 3)
            before = requests(server.address)
            life.steps(epochs)
            counted = requests(server.address) - before
            opened = len(life.open_bytes)
            assert life.close() == plain(folder / f"plain-{window}", load, window + 3 + epochs)
            sums.append(counted.total() / epochs)
            kinds = {kind: sum(counted[name] for name in names.split()) / epochs for kind, names in KINDS.items()}
            other = (counted.total() / epochs) - sum(kinds.values())
            text = ", ".join(f"{kind} {number:.1f}" for kind, number in (*kinds.items(), ("other", other)))
            lines.append(Line(f"C6 requests per epoch, {opened} open buckets", f"{sums[-1]:.1f} ({text})"))
    most = sums[-1] / sums[0]
    lines.append(Line(f"C6 window of {windows[-1]} epochs over {windows[0]}", f"{most:.2f}", "<= 1.2", most <= 1.2))
    return lines
