"""Signs of life in the store, and what one that stands by makes of them."""

from __future__ import annotations

import time

import pytest

from ajoin.platform.platform import Platform, PlatformState
from optimizer.errors import FailedPrecondition, Unavailable
from optimizer.model.types import Column, ColumnType, StreamSchema
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
def tier(tmp_path):
    return ArrowObjects(str(tmp_path / "tier"))


# -- beating ------------------------------------------------------------------------------------------------


def test_a_heart_counts_and_says_when_it_ends(tier):
    claim = take(tier, "a1")
    heart = Heart(claim, PULSE).start()
    until(lambda: (beat := Beat.read(tier)) is not None and beat.count > 2)
    beat = Beat.read(tier)
    assert (beat.id, beat.address, beat.interval, beat.closed) == ("a1", "here:7411", 0.01, False)
    heart.close()
    last = Beat.read(tier)
    assert last.closed and last.count > beat.count


def test_a_heart_that_is_stopped_says_nothing_more(tier):
    heart = Heart(take(tier, "a1"), PULSE).start()
    until(lambda: Beat.read(tier) is not None)
    heart.stop()
    last = Beat.read(tier)
    assert not last.closed and not heart._thread.is_alive()


def test_a_heart_that_lost_its_tier_stops_and_says_so(tier):
    heart = Heart(take(tier, "a1"), PULSE).start()
    until(lambda: Beat.read(tier) is not None)
    heart.check()
    take(tier, "b2")
    tier.put(HEARTBEAT, Beat("b2", 1, 1.0, "there").to_json())
    until(lambda: not heart._thread.is_alive())
    with pytest.raises(FailedPrecondition) as lost:
        heart.check()
    assert lost.value.reason == "STATE_TAKEN"
    tier.put(HEARTBEAT, Beat("b2", 2, 1.0, "there").to_json())
    heart.close()
    assert Beat.read(tier).id == "b2", "its end is nobody's business"


def test_a_heart_beats_again_when_the_tier_is_back(tier, tmp_path, caplog):
    heart = Heart(take(tier, "a1"), PULSE).start()
    until(lambda: Beat.read(tier) is not None)
    (tmp_path / "tier").rename(tmp_path / "away")
    until(lambda: "no heartbeat" in caplog.text)
    (tmp_path / "away").rename(tmp_path / "tier")
    before = Beat.read(tier).count
    until(lambda: Beat.read(tier).count > before)
    assert caplog.text.count("no heartbeat") == 1
    heart.stop()


def test_an_engine_beats_from_its_claim_to_its_close_and_notices_a_loss_without_writing(tmp_path, tier):
    config = EngineConfig(store=tier.uri, pulse=PULSE)
    first = Engine.open(tmp_path / "a", LocalExecutor(), config)
    until(lambda: Beat.read(tier) is not None)
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
    until(lambda: Beat.read(tier).id == second.parts.durability.claim.id)
    assert not Beat.read(tier).closed
    second.close()
    assert Beat.read(tier).closed


def test_a_platform_that_has_failed_falls_silent(tmp_path, tier):
    executor = FailingExecutor()
    engine = Engine.open(tmp_path / "a", executor, EngineConfig(store=tier.uri, pulse=PULSE), wall_clock)
    with Platform(engine, clock=wall_clock, pace=QUICK) as platform:
        columns = tuple(Column(name, ColumnType(type)) for name, type in V.items())
        platform.create_stream(StreamSchema("V", columns, "ts"), ConnectorSpec("push")).result(WAIT)
        platform.create_query("SELECT vID FROM V", "q")
        executor.broken = True
        platform.push("V", [{"ts": 1, "vID": 1, "geo": "x"}]).result(WAIT)
        assert platform.wait_until(lambda: platform.state == PlatformState.FAILED, WAIT)
        assert not platform.is_taken and platform.failure().reason == "PLATFORM_FAILED"
        assert not engine.parts.heart._thread.is_alive() and not Beat.read(tier).closed


# -- watching -----------------------------------------------------------------------------------------------


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Watched:
    """A tier in memory's place: what a watch reads, with a clock that is moved by hand."""

    def __init__(self, tier: ArrowObjects, after_stop: bool = True) -> None:
        self.tier, self.clock, self.count, self.takes = tier, Clock(), 0, 0.0
        self.watch = Watch(self, 2.0, after_stop, self.clock)
        self.shown, self.away = tier.shown, False

    def get(self, name: str) -> bytes | None:
        self.clock.now += self.takes
        if self.away:
            raise Unavailable("away", reason="STORE_UNAVAILABLE")
        return self.tier.get(name)

    def beat(self, id: str = "a1", closed: bool = False) -> None:
        self.count += 1
        self.tier.put(HEARTBEAT, Beat(id, self.count, 2.0, "here:7411", closed).to_json())

    def looks(self, times: int, after: float = 2.0) -> list[bool]:
        verdicts = []
        for _ in range(times):
            self.clock.now += after
            verdicts.append(self.watch.look())
        return verdicts


@pytest.fixture
def watched(tier):
    take(tier, "a1")
    made = Watched(tier)
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


def test_a_platform_that_never_beat_is_gone_too_but_an_empty_tier_is_left_alone(tier, tmp_path):
    take(tier, "a1")
    assert Watched(tier).looks(4) == GONE
    nothing = Watched(ArrowObjects(str(tmp_path / "nothing")))
    assert nothing.looks(50) == [False] * 50


def test_who_has_just_claimed_the_tier_has_time_to_recover(watched):
    assert watched.looks(3) == [False] * 3
    take(watched.tier, "b2")
    assert watched.looks(4) == GONE
    take(watched.tier, "c3")
    watched.beat("c3")
    assert watched.looks(4) == GONE


def test_a_tier_that_is_away_for_a_minute_is_no_reason(watched, tmp_path):
    assert watched.looks(3) == [False] * 3
    watched.away = True
    assert watched.looks(30) == [False] * 30
    watched.away = False
    assert watched.looks(PATIENCE) == [False] * PATIENCE, "nobody could beat meanwhile"
    watched.beat()
    assert watched.looks(3) == [False] * 3
    (tmp_path / "tier").rename(tmp_path / "unmounted")
    assert watched.looks(30) == [False] * 30
    (tmp_path / "unmounted").rename(tmp_path / "tier")
    assert watched.looks(4) == GONE


def test_a_tier_that_answers_slowly_is_no_reason(watched):
    watched.takes = 1.5  # twice per look
    assert watched.looks(30) == [False] * 30
    watched.takes = 0.1
    assert watched.looks(4)[-1]


def test_a_watch_that_slept_has_heard_nothing(watched):
    assert watched.looks(3) == [False] * 3
    assert watched.looks(1, after=3600) == [False]
    assert watched.looks(3) == [False, False, True]


@pytest.mark.parametrize("after_stop", [True, False])
def test_a_platform_that_was_stopped_is_not_waited_for_or_waited_for_for_ever(tier, after_stop):
    take(tier, "a1")
    watched = Watched(tier, after_stop)
    watched.beat()
    assert watched.looks(1) == [False]
    watched.beat(closed=True)
    assert watched.looks(10) == [after_stop] * 10
    watched.beat("old", closed=True)
    assert watched.looks(1) == [False], "the end of one that is not the owner"
    take(tier, "b2")
    watched.beat("b2")
    assert watched.looks(4) == GONE
