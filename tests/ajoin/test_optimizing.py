"""The periodic optimizer beside a running platform: nobody waits for it, and what it finds late is made where it still
fits. No test sleeps: a search ends when the test says so."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ajoin import errors
from ajoin.platform.optimizing import Optimizing
from optimizer.beside import Found, Situation
from tests.ajoin.world import JOIN, WAIT, World, with_streams


class Held(Optimizing):
    """Searches, and then waits with the result until it may go on."""

    def __init__(self, world: World) -> None:
        super().__init__(world.platform)
        self.searching, self.go_on = threading.Event(), threading.Event()
        self.found: Found | None = None

    def search(self, situation: Situation) -> Found:
        self.found = super().search(situation)
        self.searching.set()
        assert self.go_on.wait(WAIT)
        return self.found

    def begin(self) -> threading.Thread:
        thread = threading.Thread(target=self.once)
        thread.start()
        assert self.searching.wait(WAIT)
        return thread

    def end(self, thread: threading.Thread) -> None:
        self.go_on.set()
        thread.join(WAIT)
        assert not thread.is_alive()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Two equal queries in groups of their own, which should be together: once is wanted already."""
    with with_streams(tmp_path / "state") as running_world:
        client = running_world.client
        client.create_queries({"a": JOIN, "b": JOIN})
        client.force_groups({"a": 0, "b": 1})
        client.set("optimize_period", 1000)
        client.set("optimize_confirmations", 1)
        for start in (1000, 2000, 3000, 4000):
            running_world.feed(
                {
                    "V": [{"ts": start + i, "vID": i, "geo": "x"} for i in range(400)],
                    "W": [{"ts": start + i, "vID": i, "usrID": i} for i in range(400)],
                },
                watermark=start + 1000,
            )
        Optimizing(running_world.platform).once()  # nobody is new any more
        assert groups(running_world)["a"] != groups(running_world)["b"], "they are pinned"
        client.unpin()
        yield running_world


def groups(world: World) -> dict[str, int]:
    return {q.id: q.group for q in world.client.queries()}


def test_batches_and_epochs_go_on_while_it_searches_and_what_it_found_is_made(world: World) -> None:
    held = Held(world)
    thread = held.begin()
    assert held.found is not None and held.found.proposal.applied
    version = world.platform.plan_version
    info = world.client.create_query(JOIN.replace("SELECT", "SELECT  "), id="c")
    assert info.plan_version == version + 1
    world.feed({"V": [{"ts": 5000, "vID": 1, "geo": "x"}], "W": [{"ts": 5000, "vID": 1, "usrID": 1}]}, watermark=6000)
    assert thread.is_alive() and groups(world)["a"] != groups(world)["b"]
    held.end(thread)
    now = groups(world)
    assert now["a"] == now["b"] and world.platform.plan_version == version + 2
    assert len(world.client.results("c", until=6000, timeout=WAIT)) == 1


def test_what_moves_a_query_that_is_gone_is_thrown_away(world: World) -> None:
    held = Held(world)
    thread = held.begin()
    assert held.found is not None
    (part,) = held.found.proposal.parts
    (mover,) = part.uids
    world.client.delete_query(mover.partition("#")[0])
    version = world.platform.plan_version
    held.end(thread)
    assert world.platform.plan_version == version


def test_what_was_pinned_meanwhile_stays(world: World) -> None:
    before = groups(world)
    held = Held(world)
    thread = held.begin()
    world.client.force_groups(before)  # changes no plan, but somebody has decided
    held.end(thread)
    assert groups(world) == before
    assert world.client.query("a").pins == ("group",) and world.client.status().pins == ("the group of a, b",)
    world.client.unpin(["a", "b"])
    Optimizing(world.platform).once()
    assert len(set(groups(world).values())) == 1


def test_settings_are_changed_while_it_runs_and_checked(world: World) -> None:
    client = world.client
    now = {s.name: s for s in client.settings()}
    assert now["optimize_confirmations"].value == 1 and now["optimize_confirmations"].changed
    assert (
        now["optimize_min_gain"].value == now["optimize_min_gain"].configured and not now["optimize_min_gain"].changed
    )
    assert world.platform.situation().result(WAIT).config.hysteresis.confirmations == 1
    client.set("optimize_min_gain", 0.5)
    assert world.platform.situation().result(WAIT).config.hysteresis.min_gain == 0.5
    for name, value, reason in (
        ("optimize_min_gain", "-1", "SETTING_INVALID"),
        ("optimize_min_gain", "much", "SETTING_INVALID"),
        ("optimize_period", "inf", "SETTING_INVALID"),
        ("scale_below", "0.9", "SETTING_INVALID"),
        ("listen", "here:1", "SETTING_NOT_STEERABLE"),
    ):
        with pytest.raises(errors.InvalidRequest) as refused:
            client.set(name, value)
        assert refused.value.reason == reason and name in str(refused.value)
    assert client.set("optimize_min_gain", None).value == now["optimize_min_gain"].configured
