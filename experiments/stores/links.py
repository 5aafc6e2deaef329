"""C1 and C5: what passes the driver, on hosts of their own (tests/cluster/hosts.py).

Driver, S3 server and each worker are in a network namespace of their own; this runs on the driver's. Everything that
reaches or leaves the driver passes its link: stages and their tasks, answers, log records, what Spark's parts tell each
other. The kernel counts it there.

C1  Bytes over the driver's link per epoch, both ways, with few tuples and with a hundred times as many; generated, and
    in files on the S3 server.
C5  The same life with the driver's link limited in every second epoch: time of free epochs over limited ones.
"""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow.parquet as pq

from experiments.stores.life import Life, Line, Load, plain, ratio, tables
from runtime.store.objects import below, objects_at
from tests.cluster.hosts import DRIVER, Hosts
from tests.cluster.several import SLOW, several

WARM = 2


def bytes_per_epoch(folder: Path, quick: bool, hosts: Hosts) -> list[Line]:
    few, epochs = (1_000 if quick else 4_000), 6
    lines = []
    with several(folder, hosts) as place:
        for source in ("generator", "files"):
            sums = []
            for tuples in (few, 100 * few):
                load = Load(tuples, window=4, hopping=True, partitions=4, spread=4)
                inputs = "" if source == "generator" else place.server.uri(place.server.new_bucket(), "in")
                if inputs:
                    _put_files(load, inputs, WARM + epochs)
                life = Life(folder / f"{source}-{tuples}", place.executor, place.store(), load, inputs)
                life.steps(WARM)
                before = hosts.passed(DRIVER)
                life.steps(epochs)
                came, left = (after - first for after, first in zip(hosts.passed(DRIVER), before, strict=True))
                sums.append((came + left) / epochs)
                text = f"{came / epochs / 1000:,.0f} KB in, {left / epochs / 1000:,.0f} KB out"
                lines.append(Line(f"C1 over the driver's link per epoch, {source}, {tuples:,} tuples per stream", text))
                assert life.close() == plain(folder / f"plain-{source}-{tuples}", load, WARM + epochs)
            growth = sums[1] / sums[0]
            lines.append(Line(f"C1 growth with 100 times the tuples, {source}", f"{growth:.2f}", "<= 2", growth <= 2))
    return lines


def _put_files(load: Load, inputs: str, epochs: int) -> None:
    """Beforehand, because this passes the driver's link, too."""
    for seed, name in enumerate(("V", "W")):
        for epoch, table in enumerate(tables(load, name, seed, epochs)):
            data = io.BytesIO()
            pq.write_table(table, data)
            objects_at(below(inputs, name)).put(f"{epoch:03d}.parquet", data.getbuffer())


def slow_link(folder: Path, quick: bool, hosts: Hosts) -> list[Line]:
    pairs = 4 if quick else 8
    load = Load(100_000 if quick else 400_000, window=4, hopping=True, partitions=4, spread=4)
    with several(folder, hosts) as place:
        life = Life(folder / "near", place.executor, place.store(), load)
        life.steps(WARM)
        for _ in range(pairs):
            for limit in (None, SLOW):
                hosts.limit(DRIVER, limit)
                life.steps(1)
        hosts.limit(DRIVER, None)
        assert life.close() == plain(folder / "plain", load, WARM + 2 * pairs)
    free, slow = life.taken[WARM::2], life.taken[WARM + 1 :: 2]
    found = ratio(free, slow)
    what = f"C5 throughput, driver's link at {SLOW:g} Mbit/s over a free one"
    return [Line(what, f"{found:.2f}", ">= 0.9", found >= 0.9)]
