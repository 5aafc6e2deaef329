"""`validate_state` notices every kind of nonsense; the random lives show that it complains about nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from optimizer.errors import InternalError
from runtime.api import Cursor, ScaleTo
from runtime.control.events import EpochPlanned, StreamEnd
from runtime.control.fold import handle
from runtime.control.invariants import validate_state
from tests.runtime.rig import Rig


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    """Two queries, one of them over three streams, a deleted one, a plan change, rows, and an epoch that is planned."""
    rig = Rig(tmp_path_factory.mktemp("state"))
    for name in "ABC":
        rig.stream(name, k="BIGINT", delay=100_000)
    window = "WINDOW TUMBLING (SIZE 1 SECOND)"
    rig.create("gone", f"SELECT A.k FROM A JOIN B ON A.k = B.k {window}")
    rig.create("two", f"SELECT A.k FROM A JOIN B ON A.k = B.k {window}")
    rig.create("three", f"SELECT A.k FROM A JOIN B ON A.k = B.k JOIN C ON B.k = C.k {window}")
    rig.create("count", f"SELECT COUNT(*) AS n FROM A JOIN B ON A.k = B.k {window}")
    for epoch in range(2):
        rig.epoch({name: [(1, 10 + epoch)] for name in "ABC"})
    rig.delete("gone")
    rig.control(ScaleTo(3))
    s = rig.engine.state
    planned = rig.engine.parts.coordinator.decide_epoch({"A": s.streams["A"].position}, {}, 0)
    rig.engine.close()
    whole = handle(s, planned).state
    validate_state(whole)
    assert whole.joined and whole.partials and whole.marks and whole.segments
    return whole


def first(mapping):
    return next(iter(mapping.items()))


def broken(s):
    """(what is wrong, the state with it)"""
    uid, record = first(s.running)[0], s.queries[first(s.running)[0]]
    bucket, ref = first(s.sources)
    joined_id, joined = first(s.joined)
    name, stream = first(s.streams)
    epoch, segments = first(s.segments)
    queries = {**s.queries, uid: replace(record, group=record.group + 7)}
    yield "recorded in group", replace(s, queries=queries)
    yield "newer than the newest", replace(s, serial=0)
    yield "begins after", replace(s, queries={**s.queries, uid: replace(record, epoch=s.epoch + 2)})
    yield "rows, the last at", replace(s, queries={**s.queries, uid: replace(record, last=None, rows=3)})
    yield "rows, the last at", replace(s, queries={**s.queries, uid: replace(record, last=Cursor(99, 0), rows=3)})
    yield "leads to", replace(s, names={**s.names, "two": "nobody#1"})
    yield "its name leads to", replace(s, names={id: u for id, u in s.names.items() if id != "two"})
    yield "should run but do not", replace(s, plan=replace(s.plan, placements=s.plan.placements[1:]))
    yield "a stream that is not there", replace(s, streams={}, planned=None)
    yield "does not follow", replace(s, plans=s.plans[1:])
    yield "its changelogs lead to", replace(s, plans=s.plans[:-1])
    yield "slot table", replace(s, slots={v: t for v, t in s.slots.items() if v != s.plan.version})
    yield "is planned with", replace(s, epoch=s.epoch + 1)
    ends = (StreamEnd("Z", stream.position),)
    planned = EpochPlanned(epoch=s.epoch + 1, version=s.plan.version, at_ms=0, ends=ends, raised=())
    yield "which is not there", replace(s, planned=planned)
    yield "has the schema of", replace(s, streams={**s.streams, name: s.streams["C"]})
    yield "its watermark is", replace(s, streams={**s.streams, name: replace(stream, watermark=None)})
    yield "stands at", replace(s, sources={bucket + 2000: ref})
    yield "stands at", replace(s, next_source=0)
    yield "stands at", replace(s, next_bucket=0)
    yield "nobody knows the slots", replace(s, slots={s.plan.version: s.slots[s.plan.version]})
    yield "was not run", replace(s, joined={joined_id: replace(joined, node="g9-nothing")})
    yield "is listed twice", replace(s, joined={joined_id: replace(joined, file=ref.file)})
    yield "is listed twice", replace(s, segments={epoch: (segments[0], segments[0])})
    yield "not in order", replace(s, segments={99: segments})
    yield "is forgotten", replace(s, expired={"nobody#1": Cursor(1, 0)})
    file, partial = first(s.partials)
    yield "stands at", replace(s, partials={"elsewhere.bucket": partial})
    yield "stands at", replace(s, partials={file: replace(partial, epoch=s.epoch + 1)})
    yield "nobody knows the slots", replace(s, partials={file: replace(partial, version=999)})
    yield "is listed twice", replace(s, partials={ref.file: replace(partial, file=ref.file)})
    folding, marks = first(s.marks)
    yield "are not in order", replace(s, marks={"nobody#1": marks})
    yield "are not in order", replace(s, marks={folding: (*marks, marks[-1])})


def test_every_rule_is_checked(state):
    for what, wrong in broken(state):
        with pytest.raises(InternalError, match=what):
            validate_state(wrong)
