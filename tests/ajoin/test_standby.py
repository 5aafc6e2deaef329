"""`ajoin serve --standby` beside a platform, as real processes: killed, stopped, frozen, and a store that goes away.

Files bring the tuples: some before it happens, some in the middle, the rest when another platform serves. A batch join
over all of them says what every subscriber must have got, whoever made its rows.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ajoin.cli import app
from ajoin.client.client import Client
from optimizer.errors import Unavailable
from tests.ajoin.followed import QUERIES, TUPLES, Story, until
from tests.ajoin.standing import Standing, beside
from tests.ajoin.world import WAIT
from tests.runtime.kill_target import SQL
from tests.tools.minio import MinIO


@pytest.fixture
def standing(tmp_path: Path) -> Iterator[Standing]:
    with beside(tmp_path) as made:
        yield made


def test_the_platform_is_killed_while_clients_follow_and_create(standing: Standing) -> None:
    primary, standby = standing.pair()
    known = [standby.address, primary.address]
    with Client(known, timeout=WAIT) as client:
        story = Story(standing.folder, client, known)
        created: list[str] = []
        done = threading.Event()

        def keep_creating() -> None:
            with Client(known, timeout=WAIT) as mine:
                while not done.is_set():  # without an id: one that is created twice would show
                    created.append(mine.create_query(SQL["q1"]).id)

        creator = threading.Thread(target=keep_creating, daemon=True)
        creator.start()
        until(lambda: len(created) >= 2, "nothing was created before the kill")
        before = client.status().epoch
        story.feed()
        primary.kill()
        at_kill = len(created)
        standby.until_said("listening")
        until(lambda: len(created) >= at_kill + 3, "nothing was created after the kill")
        done.set()
        creator.join(WAIT)
        assert client.status().epoch >= before
        story.end()
        assert sorted(q.id for q in client.queries()) == sorted([*QUERIES, *created])


def test_a_stopped_platform_hands_over_at_once(standing: Standing) -> None:
    primary, standby = standing.pair()
    known = [primary.address, standby.address]
    with Client(known, timeout=WAIT) as client:
        story = Story(standing.folder, client, known)
        primary.process.send_signal(signal.SIGTERM)
        story.feed()
        assert primary.process.wait(WAIT) == 0, primary.log
        standby.until_said("listening")
        assert "the platform was stopped" in standby.log
        story.end()
        standby.process.send_signal(signal.SIGTERM)
        assert standby.process.wait(WAIT) == 0, standby.log


@pytest.mark.long
def test_a_standby_may_be_told_to_wait_for_the_return_of_a_stopped_platform(standing: Standing) -> None:
    primary, standby = standing.pair("--set", "standby_after_stop=false")
    primary.process.send_signal(signal.SIGTERM)
    assert primary.process.wait(WAIT) == 0
    until(lambda: "waiting until it is started again" in standby.log, "it does not wait")
    again = standing.primary()
    until(lambda: f"standing by for the platform at {again.address}" in standby.log, "it does not see the return")
    known = [standby.address, again.address]
    with Client(known, timeout=WAIT) as client:
        story = Story(standing.folder, client, known)
        again.kill()
        standby.until_said("listening")
        story.end()


def test_a_frozen_platform_comes_back_and_can_do_nothing(standing: Standing) -> None:
    primary, standby = standing.pair()
    known = [primary.address, standby.address]
    with Client(known, timeout=WAIT) as client:
        story = Story(standing.folder, client, known)
        primary.process.send_signal(signal.SIGSTOP)
        standby.until_said("listening")
        client.create_query(SQL["q1"], id="after")  # it hangs at the frozen one until that is found silent
        story.feed()
        epoch = client.status().epoch
        primary.process.send_signal(signal.SIGCONT)
        assert primary.process.wait(WAIT) == 3, primary.log
        error = primary.until_said("error")["error"]
        assert isinstance(error, dict) and error["reason"] == "STATE_TAKEN" and "taken over" in error["message"]
        assert client.status().epoch >= epoch and client.query("after").state == "RUNNING"
        story.end()


def test_of_two_that_stand_by_one_wins_and_the_other_stands_by_for_it(standing: Standing) -> None:
    primary, first = standing.pair()
    both = [first, standing.standby()]
    known = [p.address for p in standing.all]
    with Client(known, timeout=WAIT) as client:
        story = Story(standing.folder, client, known)
        primary.kill()
        until(lambda: any(s.says("listening") for s in both), "nobody takes over")
        won, other = sorted(both, key=lambda s: not s.says("listening"))
        until(lambda: f"standing by for the platform at {won.address}" in other.log, "the other one does not stand by")
        with Client(other.address) as asking, pytest.raises(Unavailable, match=won.address) as refused:
            asking.status()
        assert refused.value.reason == "STANDBY"
        story.feed()
        won.kill()
        other.until_said("listening")
        story.end()


@pytest.mark.long
def test_a_platform_that_comes_back_may_stand_by_in_its_turn(standing: Standing) -> None:
    """The state directory of a killed primary is that of the next standby."""
    first, second = standing.pair()
    third = standing.reserve()
    known = [first.address, second.address, third]
    with Client(known, timeout=WAIT) as client:
        story = Story(standing.folder, client, known)
        first.kill()
        second.until_said("listening")
        back = standing.standby("--state-dir", str(standing.folder / "p0"), "--listen", third)
        story.feed()
        second.kill()
        back.until_said("listening")
        story.end()


@pytest.mark.long
def test_a_store_that_goes_away_is_no_reason_to_take_over_on_s3(s3: MinIO, tmp_path: Path) -> None:
    with beside(tmp_path, s3.uri(s3.new_bucket())) as standing:
        # pyarrow repeats a request for some seconds; so long may the first beat take after the return
        primary, standby = standing.pair("--set", "heartbeat_interval=4")
        known = [primary.address, standby.address]
        with Client(known, timeout=WAIT) as client:
            story = Story(tmp_path, client, known)
            try:
                s3.stop(kill=True)
                story.feed()
                until(lambda: "cannot see" in standby.log, "the standby sees something")
                until(lambda: "no heartbeat" in primary.log, "the platform beats")
            finally:
                s3.start()
            until(lambda: all(s.tuples >= 2 * TUPLES // 3 for s in client.streams()), "it does not go on")
            assert not standby.says("listening") and primary.process.poll() is None
            primary.kill()
            standby.until_said("listening")
            story.end()


def test_a_standby_ends_when_it_is_told_to_and_waits_where_nothing_is(standing: Standing) -> None:
    alone = standing.standby()
    until(lambda: "holds no platform yet" in alone.log, "it does not say what it waits for")
    with Client(alone.address) as client, pytest.raises(Unavailable) as refused:
        client.status()
    assert refused.value.reason == "STANDBY"
    alone.process.send_signal(signal.SIGTERM)
    assert alone.process.wait(WAIT) == 0, alone.log


def test_a_standby_that_could_not_take_over_does_not_start(standing: Standing, tmp_path: Path) -> None:
    command = ["serve", "--standby", "--set", "executor=local", "--listen", "127.0.0.1:0"]
    done = CliRunner().invoke(app, [*command, "--state-dir", str(tmp_path / "s")])
    assert done.exit_code == 2 and "CONFIG_INVALID" in done.stderr and "set store" in done.stderr
    primary = standing.primary()
    used = ["--state-dir", str(standing.folder / "p0"), "--store", str(tmp_path / "store")]
    done = CliRunner().invoke(app, [*command, *used])
    assert done.exit_code == 1 and "STATE_LOCKED" in done.stderr
    assert primary.process.poll() is None
