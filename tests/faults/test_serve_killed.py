"""`ajoin serve` on Spark: a Python worker is killed, then the driver, both in the middle of an epoch; nobody notices.

Generators bring the same tuples whoever reads them, so a batch join over all of them says what the queries must have
got. Subscribers keep the cursor they had before the kill, and go on from it at the next process.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from random import Random

import pyarrow as pa
import pytest

from ajoin.client.client import Client
from ajoin.sql import parse_query
from optimizer.errors import AJoinError
from runtime.connectors.generator import GeneratorSource, parse_config
from runtime.crashpoints import AT, ONCE
from tests.faults.processes import serving, until
from tests.oracle import freeze
from tests.oracle.join import Tuple, windowed_join
from tests.runtime.kill_target import SQL, generator, schema
from tests.runtime.rig import plain

pytestmark = pytest.mark.spark

TUPLES, BATCH = 600, 12
COLUMNS = {c.name: c.type.value for c in schema("A").columns}


def options(name, count=TUPLES):
    return dict(generator(name).options) | {"limit": str(count), "batch": str(BATCH)}


def tuples(name, count=TUPLES):
    source = GeneratorSource(parse_config(options(name, count), schema(name)))
    out = []
    for read in source.reads({"n": 0, "t0": 0}, {"n": count, "t0": 0}):
        table = read.load(schema(name)).table
        table = table.set_column(table.column_names.index("ts"), "ts", table["ts"].cast(pa.int64()))
        out += [Tuple(1, row["ts"], row) for row in table.to_pylist()]
    return out


class Subscriber:
    """Reads one query until its server is gone; what it has and where it stands outlive the server."""

    def __init__(self, id):
        self.id, self.cursor, self.rows, self.reader = id, None, Counter(), None

    def follow(self, address):
        if self.reader is not None:
            self.reader.join()
        self.reader = threading.Thread(target=self._read, args=(address,), daemon=True)
        self.reader.start()

    def _read(self, address):
        try:
            with Client(address) as client:
                outputs = client.query(self.id).outputs
                for batch in client.subscribe(self.id, cursor=self.cursor):
                    for row in plain(batch.table.combine_chunks()):
                        self.rows[freeze(row[0], row[1], dict(zip(outputs, row[2:], strict=True)))] += 1
                    self.cursor = batch.cursor
        except AJoinError as gone:
            assert gone.reason in ("UNREACHABLE", "STOPPING", "UNAVAILABLE"), gone


def begin(client):
    for name in "ABC":
        s = schema(name)
        client.create_stream(
            name, columns=COLUMNS, time=s.time, options=options(name), watermark_delay_ms=s.watermark_delay_ms
        )
    for id in ("q1", "q2"):
        client.create_query(SQL[id], id=id)
    client.scale(3)


def by_itself(folder, crash_at):
    """The environment in which a process kills itself."""
    (folder / "once").mkdir()
    return {AT: crash_at, ONCE: str(folder / "once")}


def check(client, subscribers):
    """All tuples were read once, and every subscriber has what a batch join has."""
    every = {name: tuples(name) for name in "ABC"}
    schemas = {name: schema(name) for name in "ABC"}
    for stream in client.streams():
        assert (stream.tuples, stream.late_dropped, stream.dead_letter) == (TUPLES, 0, 0)
    for s in subscribers:
        info = client.query(s.id)
        wanted = windowed_join(parse_query(SQL[s.id], schemas), every, info.active_from)
        until(lambda s=s, info=info: s.rows.total() >= info.rows, f"{s.id}: the subscriber has no more rows")
        assert s.rows == wanted, f"{s.id}: {s.rows - wanted} too many, {wanted - s.rows} missing"
        assert info.rows == wanted.total() > 100


def finish(served, subscribers):
    with Client(served.address) as client:
        until(lambda: all(s.tuples == TUPLES for s in client.streams()), "not all tuples were read")
        check(client, subscribers)


@pytest.mark.parametrize(
    "crash_at",
    [
        "bucket.renamed:4,epoch.commit:20",
        pytest.param("segment.renamed:3,log.append.torn:35", marks=pytest.mark.long),
        pytest.param("bucket.written:6,epoch.committed:18", marks=pytest.mark.long),
    ],
)
def test_a_worker_and_then_the_driver_die_within_epochs(tmp_path, crash_at):
    subscribers = [Subscriber("q1"), Subscriber("q2")]
    with serving(tmp_path, by_itself(tmp_path, crash_at)) as served:
        with Client(served.address) as client:
            begin(client)
            for s in subscribers:
                s.follow(served.address)
            before = client.status()
        served.wait_until_killed()
    died = {part.partition(":")[0] for part in crash_at.split(",")}
    assert {p.name for p in (tmp_path / "once").iterdir()} == died, "a worker and the driver killed themselves"
    with serving(tmp_path) as served:
        for s in subscribers:
            s.follow(served.address)
        with Client(served.address) as client:
            after = client.status()
        assert (after.epoch > before.epoch, after.plan_version >= before.plan_version) == (True, True)
        assert all(s.cursor is not None for s in subscribers), "the cursors are from before the kill"
        finish(served, subscribers)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_anything_is_killed_at_any_moment(tmp_path, seed):
    """A Python worker, the process that forks them, the driver: from outside, without asking where they are."""
    rng = Random(seed)
    subscribers = [Subscriber("q1"), Subscriber("q2")]
    for number in range(3):
        with serving(tmp_path) as served, Client(served.address) as client:
            if number == 0:
                begin(client)
            for s in subscribers:
                s.follow(served.address)
            for victim in ("workers", "daemon"):
                at = client.status().epoch
                pids = served.below("-m runtime.spark.daemon")  # the oldest forks the others
                os.kill(min(pids) if victim == "daemon" else rng.choice(pids[1:] or pids), signal.SIGKILL)
                until(lambda at=at, client=client: client.status().epoch > at + 1, "epochs do not go on")
            threading.Event().wait(rng.uniform(0, 0.3))
            served.kill()
    with serving(tmp_path) as served:
        for s in subscribers:
            s.follow(served.address)
        finish(served, subscribers)
