"""What the platform remembers of results: little per epoch whoever got rows, and of what has gone, that it has."""

from __future__ import annotations

import json
from random import Random

import pytest

from optimizer.errors import FailedPrecondition, InternalError, Unavailable
from runtime.api import Cursor
from runtime.control.expiry import SHARE, TOGETHER, expiring
from runtime.crashpoints import Crashed, arm
from runtime.log.log import Log
from runtime.results.log import ResultLog
from runtime.results.segment import Segment
from runtime.state_tools.verify import verify
from runtime.state_tools.verify_store import verify as verify_store
from tests.runtime.rig import Rig
from tests.tools.store_double import Double

JOIN = "SELECT A.n AS a, B.n AS b FROM A JOIN B ON A.k = B.k WHERE A.k = {} WINDOW TUMBLING (SIZE 1 SECOND)"


def start(directory, queries=2, **config):
    rig = Rig(directory, partitions=2, **config)
    for name in "AB":
        rig.stream(name, k="BIGINT", n="INT")
    for q in range(queries):
        rig.create(f"q{q}", JOIN.format(q))
    return rig


def epochs(rig, numbers, keys=(0, 1)):
    for i in numbers:
        rows = [(k, i, 1000 * i) for k in keys]
        rig.epoch({"A": rows, "B": rows})


def cursors(rig, id, after=None):
    return [b.cursor.epoch for b in rig.engine.read_results(id, after, 1 << 20)]


@pytest.mark.parametrize("seed", range(300))
def test_what_goes(seed):
    rng = Random(seed)
    epoch, kept = rng.randint(1, 3000), rng.choice((1, 4, 60, 500))
    chosen = sorted(rng.sample(range(1, epoch + 1), min(epoch, rng.randint(1, 400))))
    segments = {e: (Segment(f"e{e}", rng.randint(1, 100), 1, 1, 1),) * rng.randint(1, 2) for e in chosen}
    most = rng.choice((1, 500, 10_000, 1 << 40))
    gone = expiring(segments, epoch, kept, most)

    def total(of):
        return sum(x.bytes for e in of for x in segments[e])

    def over(of):
        return of and (of[0] <= epoch - kept or (total(of) > most and of[0] != epoch))

    assert list(gone) == chosen[: len(gone)], "the oldest"
    left = chosen[len(gone) :]
    assert not over(left), "as much as is needed"
    needed = 0
    while over(chosen[needed:]):
        needed += 1
    assert bool(gone) == bool(needed), "nothing before it must"
    assert len(gone) <= max(needed, TOGETHER)
    for e in gone[needed:]:
        assert e <= epoch - kept + kept // SHARE or total([x for x in chosen if x >= e]) > most - most // SHARE


def test_what_is_remembered_of_an_epoch_does_not_grow_with_its_queries(tmp_path):
    sizes = []
    for queries in (10, 40):
        rig = start(tmp_path / str(queries), queries)
        epochs(rig, range(5), range(queries))
        assert sum(len(cursors(rig, f"q{q}")) for q in range(queries)) == 5 * queries
        sizes.append(len(json.dumps(rig.engine.state.to_json()["segments"])))
    assert sizes[1] <= sizes[0] + 5 * 40, "numbers have more digits, that is all"


def test_who_waits_for_rows_looks_at_no_epoch(tmp_path, monkeypatch):
    rig = start(tmp_path)
    epochs(rig, range(1))
    (only,) = rig.engine.read_results("q1")
    epochs(rig, range(1, 6), keys=(0,))

    def never(*_):
        raise AssertionError("nothing is there for it")

    with monkeypatch.context() as patched:
        patched.setattr(ResultLog, "index", never)
        assert rig.engine.read_results("q1", only.cursor) == []
        rig.reopen()
        assert rig.engine.read_results("q1", only.cursor) == []
    epochs(rig, range(6, 7))
    assert cursors(rig, "q1", only.cursor) == [7]


def test_a_query_has_no_rows_in_epochs_before_it(tmp_path, monkeypatch):
    rig = start(tmp_path)
    epochs(rig, range(5))
    rig.create("late", JOIN.format(0))
    epochs(rig, range(5, 8))
    rig.reopen()
    seen, index = [], ResultLog.index
    monkeypatch.setattr(ResultLog, "index", lambda self, e, *s: seen.append(e) or index(self, e, *s))
    assert cursors(rig, "late") == [6, 7, 8] == sorted(set(seen))


@pytest.mark.parametrize("point", ["result.forgotten", "segment.dropped"])
@pytest.mark.parametrize("stored", [False, True])
def test_a_death_between_forgetting_and_removing(tmp_path, point, stored):
    """The log knows: nobody misses rows in silence, nothing is left behind, and a missing file is damage."""
    more = {"store": str(tmp_path / "store")} if stored else {}
    rig = start(tmp_path / "state", retention_epochs=3, **more)
    epochs(rig, range(3), keys=(0, 1))
    with arm(point), pytest.raises(Crashed):
        epochs(rig, range(3, 4), keys=(0,))
    rig.reopen()
    assert cursors(rig, "q0") == [2, 3, 4] and cursors(rig, "q1") == [2, 3]
    with pytest.raises(FailedPrecondition) as caught:
        rig.engine.read_results("q1", Cursor(0, 0))
    assert caught.value.reason == "CURSOR_EXPIRED"
    assert cursors(rig, "q1", Cursor(1, 0)) == [2, 3]
    listed = {x.file for found in rig.engine.state.segments.values() for x in found}
    assert {str(p.relative_to(rig.folder("results"))) for p in rig.files("results")} == listed
    rig.engine.abandon()
    assert not (verify_store(more["store"]) if stored else verify(rig.directory)).problems


def test_an_outage_while_results_expire_costs_nothing_but_room(tmp_path, monkeypatch):
    """The epoch is committed; nobody may be told that it failed."""
    rig = start(tmp_path, retention_epochs=2)
    epochs(rig, range(2))
    append = Log.append

    def full(self, record):
        if record["$"] == "ResultsExpired":
            raise Unavailable("no room")
        return append(self, record)

    with monkeypatch.context() as patched:
        patched.setattr(Log, "append", full)
        epochs(rig, range(2, 4))
    assert cursors(rig, "q0") == [1, 2, 3, 4]
    epochs(rig, range(4, 5))
    assert cursors(rig, "q0") == [4, 5] and len({p.name[:11] for p in rig.files("results")}) == 2


@pytest.mark.parametrize("kill", [True, False])
def test_only_who_lost_rows_is_told_so(tmp_path, kill):
    rig = start(tmp_path, retention_epochs=2)
    epochs(rig, range(1), keys=(1,))
    (first,) = rig.engine.read_results("q1")
    epochs(rig, range(1, 6), keys=(0,))
    rig.reopen(kill=kill)
    assert rig.engine.read_results("q1", first.cursor) == []
    for id, lost in (("q1", Cursor(0, 0)), ("q0", Cursor(3, 0))):
        with pytest.raises(FailedPrecondition):
            rig.engine.read_results(id, lost)
    epochs(rig, range(6, 7))
    assert cursors(rig, "q1", first.cursor) == [7]


def test_a_damaged_index_stops_its_readers_until_it_has_expired(tmp_path):
    rig = start(tmp_path, retention_epochs=3)
    epochs(rig, range(2))
    segment = rig.engine.state.segments[2][0]
    path = tmp_path / "results" / segment.file
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    rig.reopen()
    with pytest.raises(InternalError, match=f"{segment.file} is damaged at its end") as caught:
        rig.engine.read_results("q0", Cursor(1, 0))
    assert caught.value.reason == "RESULTS_DAMAGED" and "after the cursor 2:" in caught.value.hint
    (problem,) = verify(rig.directory).problems
    assert problem.file == f"results/{segment.file}" and "index" in problem.what
    epochs(rig, range(2, 5))
    for id in ("q0", "q1"):
        with pytest.raises(FailedPrecondition) as refused:
            rig.engine.read_results(id, Cursor(1, 0))
        assert refused.value.reason == "CURSOR_EXPIRED"
        assert cursors(rig, id) == [3, 4, 5]


def test_a_store_is_asked_for_indexes_and_not_for_other_rows(tmp_path):
    store = Double()
    rig = start(tmp_path / "state", store=store.open())
    epochs(rig, range(1), keys=(0, 1))
    epochs(rig, range(1, 4), keys=(0,))
    epochs(rig, range(4, 5), keys=(0, 1))
    rig.engine.abandon()
    rig.engine = rig._open()
    before = store.bytes_read
    assert cursors(rig, "q1") == [1, 5]
    assert 0 < store.bytes_read - before <= sum(x.bytes for of in rig.engine.state.segments.values() for x in of)
    assert cursors(rig, "q1") == [1, 5] and store.bytes_read - before <= sum(
        x.bytes for of in rig.engine.state.segments.values() for x in of
    ), "the second reader is served from the cache"
