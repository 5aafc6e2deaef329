"""Event times that are wrong, over the wire and on the command line: refused, and put right afterwards."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from ajoin import errors
from ajoin.cli import app
from ajoin.config import load
from ajoin.platform.catalog import Limits
from tests.ajoin.world import JOIN, WAIT, V, running, with_streams

DAY, YEAR_9999 = 86_400_000, 253_402_300_799_000


@pytest.fixture
def world(tmp_path):
    with with_streams(tmp_path / "state") as running_world:
        yield running_world


def command(world, *words, code=0):
    result = CliRunner().invoke(app, [*words, "--server", world.address])
    assert result.exit_code == code, result.output
    return result.output


def test_a_served_stream_allows_a_day_unless_it_says_otherwise(tmp_path):
    assert load().settings.limits.ahead_ms == DAY
    assert load({"max_ahead": "0"}).settings.limits.ahead_ms is None
    with running(tmp_path / "state", limits=replace(Limits(), ahead_ms=DAY)) as world:
        create = ("--column", "ts:TIMESTAMP", "--time", "ts", "--source", "push")
        client = world.client
        assert client.create_stream("A", columns=V, time="ts", source="push").schema.max_ahead_ms == DAY
        command(world, "stream", "create", "B", *create, "--max-ahead-ms", "none")
        command(world, "stream", "create", "C", *create, "--max-ahead-ms", "5000", "--max-jump-ms", "60000")
        assert "BAD_OPTION" in command(world, "stream", "create", "D", *create, "--max-ahead-ms", "soon", code=1)
        bounds = {s.schema.name: (s.schema.max_ahead_ms, s.schema.max_jump_ms) for s in client.streams()}
        assert bounds == {"A": (DAY, None), "B": (None, None), "C": (5000, 60_000)}
        shown = command(world, "stream", "show", "C")
        assert "5 seconds" in shown and "1 minute" in shown
        now = time.time_ns() // 1_000_000
        rows = [{"ts": 5}, {"ts": now}, {"ts": YEAR_9999}]
        world.feed(dict.fromkeys("ABC", rows))
        dead = {s.schema.name: s.dead_letter for s in client.streams()}
        assert dead == {"A": 1, "B": 0, "C": 2} and client.stream("A").watermark == now, "C does not jump either"
        assert "the stream allows 1 day (max_ahead)" in client.dead_letters("A")[0].reason
        with pytest.raises(errors.InvalidRequest, match="ahead of the clock"):
            world.platform.raise_watermark("A", YEAR_9999).result(WAIT)


def test_a_poisoned_watermark_is_moved_back(world):
    client = world.client
    client.create_query(JOIN, id="q")
    world.feed({"V": [{"ts": 1000, "vID": 1, "geo": "x"}], "W": [{"ts": 1000, "vID": 1, "usrID": 1}]}, 2000)
    world.feed({"V": [{"ts": YEAR_9999, "vID": 1, "geo": "x"}]})
    with pytest.raises(errors.FailedPrecondition) as refused:
        client.reset_watermark("V", 1999)
    assert refused.value.reason == "WATERMARK_IN_USE" and "'q'" in refused.value.message
    assert "WATERMARK_IN_USE" in command(world, "stream", "reset-watermark", "V", "--to", "1999", code=1)
    said = command(world, "stream", "reset-watermark", "V", "--to", "1970-01-01T01:00:02+01:00")
    assert "the watermark of stream V is 1970-01-01 00:00:02.000" in said
    assert "BAD_TIME" in command(world, "stream", "reset-watermark", "V", "--to", "soon", code=1)
    world.feed({"V": [{"ts": 2100, "vID": 1, "geo": "y"}], "W": [{"ts": 2200, "vID": 1, "usrID": 2}]})
    assert client.query("q").rows == 2 and client.stream("V").late_dropped == 0
    with pytest.raises(errors.FailedPrecondition):
        client.reset_watermark("V", YEAR_9999)


def test_a_stream_is_restarted(world):
    client = world.client
    client.create_query(JOIN, id="q")
    world.feed({"V": [{"ts": YEAR_9999, "vID": 1, "geo": "x"}]})
    with pytest.raises(errors.FailedPrecondition, match="1 running queries: q"):
        client.restart_stream("V")
    client.suspend_query("q", "its stream has seen the year 9999")
    with pytest.raises(errors.InvalidRequest) as refused:
        client.restart_stream("V", at="7")
    assert refused.value.reason == "BAD_OFFSET"
    assert "restarted stream V at latest" in command(world, "stream", "restart", "V", "--at", "latest")
    assert "restarted stream V where it stood" in command(world, "stream", "restart", "V")
    assert client.stream("V").watermark is None
    assert client.resume_query("q").active_from is None
    world.feed({"V": [{"ts": 10, "vID": 1, "geo": "x"}], "W": [{"ts": 20, "vID": 1, "usrID": 1}]})
    assert client.query("q").rows == 1
