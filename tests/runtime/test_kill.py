"""kill -9, again and again, at random moments: in the end the result log holds a batch join's rows, each once.

The victim (kill_target.py) runs in a process of its own, one epoch for every line it is sent. The killer sends a random
number of lines, waits for all answers but the last, and then a random moment longer: so it hits planning, tasks,
commits, clean-up and recovery alike.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from functools import cache
from random import Random

import pyarrow as pa
import pytest

from ajoin.sql import parse_query
from runtime.connectors.generator import GeneratorSource, parse_config
from runtime.crashpoints import AT
from tests.oracle import freeze
from tests.oracle.join import Tuple, windowed_join
from tests.runtime.kill_target import BATCH, CREATED, SQL, TUPLES, generator, open_engine, schema, step
from tests.runtime.rig import plain

KILLS = 5


def kill_in_epoch(directory, epochs, seconds):
    """Start the victim and kill it inside the last of so many epochs (0: while it opens); what it had time to tell."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.runtime.kill_target", str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout.readline() == "open\n"
        told = []
        for _ in range(epochs):
            told.append(int(child.stdout.readline()))
            child.stdin.write("epoch\n")
            child.stdin.flush()
        threading.Event().wait(seconds)
        os.kill(child.pid, signal.SIGKILL)
        told += [int(line) for line in child.stdout.read().split()]
        assert child.wait() == -signal.SIGKILL
        return told
    finally:
        child.kill()
        child.communicate()


@cache
def tuples(name):
    """All tuples of a generator, read in one piece."""
    source = GeneratorSource(parse_config(generator(name).settings, schema(name)))
    out = []
    for read in source.reads({"n": 0, "t0": 0}, {"n": TUPLES, "t0": 0}):
        table = read.load(schema(name)).table
        table = table.set_column(table.column_names.index("ts"), "ts", table["ts"].cast(pa.int64()))
        out += [Tuple(1, row["ts"], row) for row in table.to_pylist()]
    return out


@cache
def expected(id, active_from):
    schemas = {name: schema(name) for name in "ABC"}
    return windowed_join(parse_query(SQL[id], schemas), {name: tuples(name) for name in "ABC"}, active_from)


def delivered(engine, id):
    outputs = engine.query(id).outputs
    rows = Counter()
    for batch in engine.read_results(id, None, 1 << 30):
        rows.update(freeze(r[0], r[1], dict(zip(outputs, r[2:], strict=True))) for r in plain(batch.rows))
    return rows


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long), pytest.param(3, marks=pytest.mark.long)])
def test_killed_again_and_again_and_every_row_exactly_once(tmp_path, seed):
    rng = Random(seed)
    told = [kill_in_epoch(tmp_path, rng.randint(0, 4), rng.uniform(0, 0.04)) for _ in range(KILLS)]
    finish(tmp_path, told)


NAMED = ("epoch.commit:2", "log.append.torn:3", "bucket.renamed:4")
MORE = (
    "snapshot.renamed:1",
    "epoch.join:3",
    "segment.renamed:5",
    "recover.cleaned:1",
    "epoch.committed:4",
    "epoch.planned:1",
)


@pytest.mark.parametrize("points", [NAMED, pytest.param(MORE, marks=pytest.mark.long)], ids=["some", "more"])
def test_it_kills_itself_at_named_points(tmp_path, points):
    finish(tmp_path, [kill_itself(tmp_path, point) for point in points])


def kill_itself(directory, point):
    """A victim that is told to die at a crash point, by a real SIGKILL; what it had time to tell."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.runtime.kill_target", str(directory)],
        input="epoch\n" * (TUPLES // BATCH),
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {AT: point},
    )
    assert done.returncode == -signal.SIGKILL, f"it did not come along {point}"
    return [int(line) for line in done.stdout.split()[1:]]


def finish(directory, told):
    """The rest of the story in this process, and what must have come out."""
    engine = open_engine(directory)
    committed = engine.epoch
    while step(engine):
        pass

    assert all(numbers == sorted(numbers) for numbers in told)
    assert max((n for numbers in told for n in numbers), default=0) <= committed, "what was told was on disk"
    assert committed < TUPLES // BATCH, "the kills came while there was work"
    for stream in engine.streams():
        assert (stream.tuples, stream.late_dropped, stream.dead_letter) == (TUPLES, 0, 0)
    for id in SQL:
        query = engine.query(id)
        assert (query.active_from is None) == (CREATED[id] == 0)
        wanted = expected(id, query.active_from)
        found = delivered(engine, id)
        assert sum(wanted.values()) > 200
        assert found == wanted, f"{id}: {found - wanted} too many, {wanted - found} missing"
        assert query.rows == sum(wanted.values())
    engine.close()
