"""Signs of life in the store, and what one that stands by makes of them."""

from __future__ import annotations

import time

import pytest

from ajoin.platform.platform import Platform, PlatformState
from ajoin.sql import parse_query
from optimizer.errors import FailedPrecondition, Unavailable
from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.api import CreateQuery
from runtime.connectors.base import ConnectorSpec
from runtime.engine.config import EngineConfig
from runtime.engine.engine import Engine
from runtime.execution.executor import LocalExecutor
from runtime.store.arrow import ArrowObjects
from runtime.store.claim import take
from runtime.store.heartbeat import HEARTBEAT, Beat, Heart, Pulse
from runtime.store.watch import PATIENCE, Watch
from tests.ajoin.test_service_life import FailingExecutor
from tests.ajoin.world import QUICK, WAIT, V, wall_clock

PULSE = Pulse(0.01, "here:7411")


def until(condition) -> None:
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def store(tmp_path):
    return ArrowObjects(str(tmp_path / "store"))


# -- beating ------------------------------------------------------------------------------------------------


def test_a_heart_counts_and_says_when_it_ends(store):
    claim = take(store, "a1")
    heart = Heart(claim, PULSE).start()
    until(lambda: (beat := Beat.read(store)) is not None and beat.count > 2)
    beat = Beat.read(store)
    assert (beat.id, beat.address, beat.interval, beat.closed) == ("a1", "here:7411", 0.01, False)
    heart.close()
    last = Beat.read(store)
    assert last.closed and last.count > beat.count


def test_a_heart_that_is_stopped_says_nothing_more(store):
    heart = Heart(take(store, "a1"), PULSE).start()
    until(lambda: Beat.read(store) is not None)
    heart.stop()
    last = Beat.read(store)
    assert not last.closed and not heart._thread.is_alive()


def test_a_heart_that_lost_its_store_stops_and_says_so(store):
    heart = Heart(take(store, "a1"), PULSE).start()
    until(lambda: Beat.read(store) is not None)
    heart.check()
    take(store, "b2")
    store.put(HEARTBEAT, Beat("b2", 1, 1.0, "there").to_json())
    until(lambda: not heart._thread.is_alive())
    with pytest.raises(FailedPrecondition) as lost:
        heart.check()
    assert lost.value.reason == "STATE_TAKEN"
    store.put(HEARTBEAT, Beat("b2", 2, 1.0, "there").to_json())
    heart.close()
    assert Beat.read(store).id == "b2", "its end is nobody's business"


def test_a_heart_beats_again_when_the_store_is_back(store, tmp_path, caplog):
    heart = Heart(take(store, "a1"), PULSE).start()
    until(lambda: Beat.read(store) is not None)
    (tmp_path / "store").rename(tmp_path / "away")
    until(lambda: "no heartbeat" in caplog.text)
    (tmp_path / "away").rename(tmp_path / "store")
    before = Beat.read(store).count
    until(lambda: Beat.read(store).count > before)
    assert caplog.text.count("no heartbeat") == 1
    heart.stop()


def test_an_engine_beats_from_its_claim_to_its_close_and_notices_a_loss_without_writing(tmp_path, store):
    config = EngineConfig(store=store.uri, pulse=PULSE)
    first = Engine.open(tmp_path / "a", LocalExecutor(), config)
    until(lambda: Beat.read(store) is not None)
    assert not first.has_input()
    second = Engine.open(tmp_path / "b", LocalExecutor(), config)

    def lost() -> bool:
        try:
            first.has_input()
        except FailedPrecondition as taken:
            return taken.reason == "STATE_TAKEN"
        return False

    until(lost)
    first.abandon()
    until(lambda: Beat.read(store).id == second.parts.store.claim.id)
    assert not Beat.read(store).closed
    second.close()
    assert Beat.read(store).closed


def test_a_platform_that_has_failed_falls_silent(tmp_path, store):
    executor = FailingExecutor()
    engine = Engine.open(tmp_path / "a", executor, EngineConfig(store=store.uri, pulse=PULSE), wall_clock)
    with Platform(engine, clock=wall_clock, pace=QUICK) as platform:
        columns = tuple(Column(name, ColumnType(type)) for name, type in V.items())
        platform.create_stream(StreamSchema("V", columns, "ts"), ConnectorSpec("push")).result(WAIT)
        platform.create_query("SELECT vID FROM V", "q")
        executor.broken = True
        platform.push("V", [{"ts": 1, "vID": 1, "geo": "x"}]).result(WAIT)
        assert platform.wait_until(lambda: platform.state == PlatformState.FAILED, WAIT)
        assert not platform.is_taken and platform.failure().reason == "PLATFORM_FAILED"
        assert not engine.parts.heart._thread.is_alive() and not Beat.read(store).closed


# -- watching -----------------------------------------------------------------------------------------------


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Watched:
    """A store in memory's place: what a watch reads, with a clock that is moved by hand."""

    def __init__(self, store: ArrowObjects, after_stop: bool = True) -> None:
        self.store, self.clock, self.count, self.takes = store, Clock(), 0, 0.0
        self.watch = Watch(self, 2.0, after_stop, self.clock)
        self.uri, self.away = store.uri, False

    def get(self, name: str) -> bytes | None:
        self.clock.now += self.takes
        if self.away:
            raise Unavailable("away", reason="STORE_UNAVAILABLE")
        return self.store.get(name)

    def beat(self, id: str = "a1", closed: bool = False) -> None:
        self.count += 1
        self.store.put(HEARTBEAT, Beat(id, self.count, 2.0, "here:7411", closed).to_json())

    def looks(self, times: int, after: float = 2.0) -> list[bool]:
        verdicts = []
        for _ in range(times):
            self.clock.now += after
            verdicts.append(self.watch.look())
        return verdicts


@pytest.fixture
def watched(store):
    take(store, "a1")
    made = Watched(store)
    made.beat()
    return made


GONE = [False] * PATIENCE + [True]


def test_three_missing_beats_are_too_many(watched):
    assert watched.looks(1) == [False]
    assert watched.watch.address == "here:7411"
    for _ in range(5):
        watched.beat()
        assert watched.looks(PATIENCE) == [False] * PATIENCE
    assert watched.looks(2) == [True, True]


def test_a_platform_that_never_beat_is_gone_too_but_an_empty_store_is_left_alone(store, tmp_path):
    take(store, "a1")
    assert Watched(store).looks(4) == GONE
    nothing = Watched(ArrowObjects(str(tmp_path / "nothing")))
    assert nothing.looks(50) == [False] * 50


def test_who_has_just_claimed_the_store_has_time_to_recover(watched):
    assert watched.looks(3) == [False] * 3
    take(watched.store, "b2")
    assert watched.looks(4) == GONE
    take(watched.store, "c3")
    watched.beat("c3")
    assert watched.looks(4) == GONE


def test_a_store_that_is_away_for_a_minute_is_no_reason(watched, tmp_path):
    assert watched.looks(3) == [False] * 3
    watched.away = True
    assert watched.looks(30) == [False] * 30
    watched.away = False
    assert watched.looks(PATIENCE) == [False] * PATIENCE, "nobody could beat meanwhile"
    watched.beat()
    assert watched.looks(3) == [False] * 3
    (tmp_path / "store").rename(tmp_path / "unmounted")
    assert watched.looks(30) == [False] * 30
    (tmp_path / "unmounted").rename(tmp_path / "store")
    assert watched.looks(4) == GONE


def test_a_store_that_answers_slowly_is_no_reason(watched):
    watched.takes = 1.5  # twice per look
    assert watched.looks(30) == [False] * 30
    watched.takes = 0.1
    assert watched.looks(4)[-1]


def test_a_watch_that_slept_has_heard_nothing(watched):
    assert watched.looks(3) == [False] * 3
    assert watched.looks(1, after=3600) == [False]
    assert watched.looks(3) == [False, False, True]


@pytest.mark.parametrize("after_stop", [True, False])
def test_a_platform_that_was_stopped_is_not_waited_for_or_waited_for_for_ever(store, after_stop):
    take(store, "a1")
    watched = Watched(store, after_stop)
    watched.beat()
    assert watched.looks(1) == [False]
    watched.beat(closed=True)
    assert watched.looks(10) == [after_stop] * 10
    watched.beat("old", closed=True)
    assert watched.looks(1) == [False], "the end of one that is not the owner"
    take(store, "b2")
    watched.beat("b2")
    assert watched.looks(4) == GONE


@pytest.mark.parametrize("minutes", [-10, 10])
def test_clocks_that_differ_by_minutes_change_nothing(tmp_path, store, minutes):
    """Of the owner, of the one that stands by, and of the one that watches; all that counts is whether beats come."""
    skew = minutes * 60_000
    config = EngineConfig(store=store.uri, pulse=PULSE)
    first = Engine.open(tmp_path / "a", LocalExecutor(), config, lambda: wall_clock() + skew)
    columns = tuple(Column(name, ColumnType(type)) for name, type in V.items())
    first.create_stream(StreamSchema("V", columns, "ts"), ConnectorSpec("push"))
    first.apply([CreateQuery("q", parse_query("SELECT vID FROM V", first.schemas()))])
    until(lambda: Beat.read(store) is not None)
    assert not any("time" in name or name.endswith("_ms") for name in Beat.__dataclass_fields__)
    watched = Watched(store)
    watched.clock.now = 1e9 + 60 * minutes  # its own clock; nobody else's is near it
    for n in range(5):
        first.push("V", [{"ts": n, "vID": n, "geo": "x"}])
        first.run_epoch()
        before = Beat.read(store).count
        until(lambda before=before: Beat.read(store).count > before)
        assert watched.looks(PATIENCE) == [False] * PATIENCE
    first.push("V", [{"ts": 5, "vID": 5, "geo": "x"}])
    first.fall_silent()
    assert watched.looks(PATIENCE + 1)[-1]
    second = Engine.open(tmp_path / "b", LocalExecutor(), config, lambda: wall_clock() - skew)
    with pytest.raises(FailedPrecondition) as taken:
        first.run_epoch()
    assert taken.value.reason == "STATE_TAKEN"
    while second.has_input():
        second.run_epoch()
    assert [v for b in second.read_results("q") for v in b.rows.column("vID").to_pylist()] == list(range(6))
    first.abandon()
    second.close()


def test_opening_a_store_that_somebody_may_still_use_is_noted(tmp_path, store, caplog):
    config = EngineConfig(store=store.uri, pulse=PULSE)
    first = Engine.open(tmp_path / "a", LocalExecutor(), config)
    until(lambda: Beat.read(store) is not None)
    Engine.open(tmp_path / "b", LocalExecutor(), config).close()
    assert "here:7411" in caplog.text and caplog.text.count("has not said that it has ended") == 1
    first.abandon()
    Engine.open(tmp_path / "c", LocalExecutor(), config).close()
    assert caplog.text.count("has not said that it has ended") == 1, "the second one has"
