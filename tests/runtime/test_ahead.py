"""Tuples too far ahead are dead letters, the same ones however often they are read; nobody else notices them."""

from __future__ import annotations

import numpy as np
import pytest

from ajoin.sql import parse_query
from optimizer.errors import InvalidRequest
from runtime.api import CreateQuery
from runtime.buckets.refs import Ahead
from runtime.control.events import EpochCommitted, EpochPlanned
from runtime.crashpoints import Crashed, arm
from runtime.engine.config import EngineConfig
from runtime.engine.engine import Engine
from runtime.log.log import Log
from runtime.operators.ahead import last_believed
from runtime.times import duration, moment
from tests.runtime.damage_world import remove, repairs
from tests.runtime.events import events_of
from tests.runtime.rig import Rig
from tests.runtime.test_pipelining import SQL, Watching, declare

DAY, YEAR_9999 = 86_400_000, 253_402_300_799_000
HOP = "WINDOW HOPPING (SIZE 3 SECONDS, ADVANCE BY 1 SECOND)"
JOIN = f"SELECT A.n AS a, B.n AS b FROM A JOIN B ON A.k = B.k {HOP}"


def believed(times, stood=None, refused=0, jump=10):
    return last_believed(jump, Ahead(None, stood, refused), np.array(times, np.int64))


@pytest.mark.parametrize(
    ("times", "stood", "last"),
    [
        ([], 100, None),
        ([90, 105, 110], 100, None),
        ([105, 115, 125, 135, 145], 100, None),  # far from the start, but neighbours are close
        ([105, 106, 999], 100, 106),
        ([999], 100, 100),  # alone: not enough to believe it
        ([998, 999], 100, 100),
        ([997, 998, 999], 100, None),  # a night has passed
        ([101, 102, 103, 997, 998, 999], 100, 103),  # half is not most
        ([101, 102, 996, 997, 998, 999], 100, None),
        ([101, 500, 501, 502, 503, 9999], 100, 503),  # one jump is believed, the next is not
        ([5, 6, 7, 8, 999], 100, 100),  # late tuples are neighbours too
        ([7], None, None),  # nothing to compare it with
        ([7, 9999], None, 7),
        ([9999, 7, 8, 9], None, 9),
        ([20, 10, 30, 40, 50, 9999], None, 50),
        ([-(1 << 59), 1 << 59, 1 << 59], 0, 0),
    ],
)
def test_who_is_beyond_its_neighbours(times, stood, last):
    assert believed(times, stood) == last
    assert believed(times[::-1], stood) == last, "the order within a read does not matter"


def test_a_gap_blocks_nobody_for_ever():
    assert believed([999], stood=100, refused=1) == 100
    assert believed([999], stood=100, refused=2) is None
    assert believed([1 << 59], stood=-(1 << 59), jump=1 << 63) is None, "a bound of any size"


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0 ms"), (999, "999 ms"), (1000, "1 second"), (90 * 60_000, "1 hour"), (DAY * 3, "3 days"), (1 << 59, None)],
)
def test_durations(ms, text):
    assert duration(ms) == text if text else "years" in duration(ms)


def test_moments():
    assert moment(YEAR_9999) == "9999-12-31 23:59:59.000"
    assert moment(1 << 59) == f"{1 << 59} ms"


# -- through the engine -------------------------------------------------------------------------------------------


def world(path, executor=None, **bounds):
    rig = Rig(path, executor)
    rig.clock.now = 10_000
    for name in "AB":
        rig.stream(name, k="BIGINT", n="INT", delay=500, **bounds)
    rig.create("q", JOIN)
    return rig


def tuples(epoch, *poison):
    """Six of each stream in second `epoch`, and poison in the middle of A's."""
    good = [(n % 2, 10 * epoch + n, 1000 * epoch + 100 * n) for n in range(6)]
    return {"A": [*good[:3], *((0, 99, ts) for ts in poison), *good[3:]], "B": good}


def finished(rig):
    rig.epoch(watermark=20_000)
    return rig.rows("q")


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """The rows of a life without poison."""
    rig = world(tmp_path_factory.mktemp("clean"))
    for epoch in range(5):
        rig.epoch(tuples(epoch))
    rows = finished(rig)
    assert len(rows) > 50
    return rows


BOUNDS = [{"ahead": DAY}, {"jump": 60_000}, {"ahead": DAY, "jump": 60_000}]


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_poison_moves_nothing(tmp_path, clean, bounds):
    rig = world(tmp_path, **bounds)
    for epoch in range(5):
        rig.epoch(tuples(epoch, YEAR_9999, (1 << 59) + epoch))
        rig.clock.advance(1000)
        rig.reopen(kill=epoch % 2 == 0)
    assert rig.engine.stream("A").watermark == rig.engine.stream("B").watermark == 4000
    assert rig.engine.stream("A").dead_letter == 10 and rig.engine.stream("A").tuples == 30
    assert rig.engine.stream("A").late_dropped == 0 and rig.engine.stream("A").max_event_time == 4500
    said = rig.engine.dead_letters("A")
    assert len(said) == 10 and all('"n": 99' in letter.text and letter.place == "tuple 3" for letter in said[::2])
    if "ahead" in bounds:
        assert said[0].reason == (
            "event time 9999-12-31 23:59:59.000 is 8,029 years ahead of the clock; the stream allows 1 day (max_ahead)"
        )
    else:
        assert "beyond the tuples before it, which reach 1970-01-01 00:00:00.500" in said[0].reason
        assert said[0].reason.endswith("the stream allows 1 minute (max_jump)")
    assert finished(rig) == clean


@pytest.mark.parametrize("point", ["epoch.planned", "epoch.source", "epoch.commit", "epoch.committed"])
def test_the_clock_of_an_epoch_is_the_one_it_was_planned_with(tmp_path, point):
    """What is refused stays refused when the epoch is run again two days later."""
    rig = world(tmp_path, ahead=DAY)
    rig.local.push("A", {"k": 1, "n": 1, "ts": 10_000 + DAY}, {"k": 1, "n": 2, "ts": 10_001 + DAY})
    with arm(point), pytest.raises(Crashed):
        rig.epoch()
    rig.clock.advance(2 * DAY)
    rig.reopen()
    assert rig.engine.epoch == 1
    assert (rig.engine.stream("A").tuples, rig.engine.stream("A").dead_letter) == (1, 1)


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_a_lost_bucket_is_read_again_without_what_was_refused(tmp_path, clean, bounds):
    rig = world(tmp_path, **bounds)
    for epoch in range(5):
        rig.epoch(tuples(epoch, 11_000 + DAY * (epoch + 1)))
        rig.clock.advance(DAY)
        remove(rig, sorted(ref.file for ref in rig.engine.state.sources.values()))
    assert finished(rig) == clean
    assert repairs(rig.engine) >= 4 and rig.engine.stream("A").dead_letter == 5


def test_at_the_bound_and_one_beyond(tmp_path):
    rig = world(tmp_path, ahead=1000)
    rig.epoch({"A": [(1, 1, 11_000), (1, 2, 11_001), (1, 3, -(1 << 59))]})
    assert (rig.engine.stream("A").tuples, rig.engine.stream("A").dead_letter) == (2, 1)
    assert rig.engine.stream("A").max_event_time == 11_000


def test_a_stream_of_single_tuples_gets_over_a_gap(tmp_path):
    rig = world(tmp_path, jump=1000)
    rig.epoch({"A": [(1, 1, 100)]})
    for ts in (50_000, 50_001):
        rig.epoch({"A": [(1, 1, ts)]})
        rig.reopen()
    assert rig.engine.stream("A").max_event_time == 100 and rig.engine.stream("A").dead_letter == 2
    rig.epoch({"A": [(1, 1, 50_002)]})
    assert rig.engine.stream("A").max_event_time == 50_002
    for ts in (900_000, 50_003, 900_001, 50_004, 900_002):
        rig.epoch({"A": [(1, 1, ts)]})
    assert rig.engine.stream("A").max_event_time == 50_004, "what comes back is no gap"


def test_without_bounds_everything_is_accepted(tmp_path):
    rig = world(tmp_path)
    rig.epoch({"A": [(1, 1, YEAR_9999), (1, 2, 5)]})
    assert rig.engine.stream("A").tuples == 2 and rig.engine.stream("A").watermark == YEAR_9999 - 500


def test_an_explicit_watermark_has_the_same_bound(tmp_path):
    rig = world(tmp_path, ahead=DAY)
    with pytest.raises(InvalidRequest, match=r"watermark 9999-12-31 .* ahead of the clock") as refused:
        rig.engine.raise_watermark("A", YEAR_9999)
    assert refused.value.reason == "WATERMARK_AHEAD" and not rig.engine.has_input()
    rig.engine.raise_watermark("A", 10_000 + DAY)
    rig.epoch()
    assert rig.engine.stream("A").watermark == 10_000 + DAY
    rig.epoch(watermark=None)
    rig.engine.raise_watermark("B", None)
    rig.epoch()
    assert rig.engine.stream("B").watermark > YEAR_9999, "the end of a stream is no time"


def test_what_is_read_ahead_has_the_clock_that_its_plan_records(tmp_path):
    now = [0]

    def clock():
        now[0] += 13
        return now[0]

    executor = Watching()
    engine = Engine.open(tmp_path, executor, EngineConfig(pipelined=True, snapshot_every=1 << 30), clock)
    declare(engine, max_ahead_ms=2_000)
    engine.apply([CreateQuery("q1", parse_query(SQL["q1"], engine.schemas()))])
    for _ in range(8):
        engine.run_epoch()
    assert all(s.dead_letter and s.tuples for s in engine.streams())
    engine.abandon()
    order = {name: i for i, name in reversed(list(enumerate(executor.stages)))}
    assert any(order.get(f"epoch {e + 1}: source", 99) < order.get(f"epoch {e}: join 1", -1) for e in range(1, 8))
    events = events_of(Log(tmp_path / "log").read()[1])
    clocks = {e.epoch: e.at_ms for e in events if isinstance(e, EpochPlanned)}
    buckets = [(e.epoch, ref) for e in events if isinstance(e, EpochCommitted) for ref in e.sources]
    assert len(buckets) > 8
    assert all(ref.origin.ahead.accept_until == clocks[epoch] + 2_000 for epoch, ref in buckets)
