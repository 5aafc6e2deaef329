"""A small world for tests of damage: what a life without damage delivers is what a life with it must deliver."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from runtime.log.log import Log
from runtime.store.log import read
from tests.runtime.rig import Rig

HOP = "WINDOW HOPPING (SIZE 3 SECONDS, ADVANCE BY 1 SECOND)"
TWO = f"SELECT A.n AS a, B.n AS b FROM A JOIN B ON A.k = B.k {HOP}"
THREE = f"SELECT A.n AS a, B.n AS b, C.n AS c FROM A JOIN B ON A.k = B.k JOIN C ON B.j = C.j {HOP}"


def kinds(state):
    """Open bucket files by kind."""
    sources = state.sources.values()
    return {
        "base": sorted(r.file for r in sources),
        "view": sorted({v.file for r in sources for v in r.views} - {r.file for r in sources}),
        "joined": sorted(r.file for r in state.joined.values()),
    }


def repairs(engine):
    """How often the log says that buckets were repaired."""
    _, records = records_of(engine)
    return sum(r["$"] == "BucketsRepaired" for r in records)


def records_of(engine):
    """Snapshot and records, wherever the log is."""
    if engine.config.store is None:
        return Log(engine.directory / "log").read()
    claim = engine.parts.store.claim
    return read(replace(claim, truth=claim.term, objects=claim.store.list()), map).contents


def joining(path, executor=None, **config):
    rig = Rig(path, executor, **config)
    for name in "ABC":
        rig.stream(name, k="BIGINT", j="BIGINT", n="INT", delay=500)
    rig.create("two", TWO)
    rig.create("three", THREE)
    rig.epoch(tuples(0))
    rig.epoch(tuples(1))
    return rig


def tuples(epoch):
    rng = Random(epoch)
    return {
        s: [(rng.randrange(3), rng.randrange(2), 10 * epoch + n, 1000 * epoch + 100 * n) for n in range(6)]
        for s in "ABC"
    }


def finish(rig, first=2, last=5):
    for epoch in range(first, last):
        rig.epoch(tuples(epoch))
    rig.epoch(watermark=1 << 40)
    return {q.id: rig.rows(q.id) for q in rig.engine.queries()}


def remove(rig, names):
    for name in names:
        (rig.folder("buckets") / name).unlink()
