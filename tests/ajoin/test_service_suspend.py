"""Queries that are stopped and run again, over the wire and on the command line."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from ajoin import errors
from ajoin.cli import app
from runtime.api import QueryState
from tests.ajoin.world import JOIN, with_streams


@pytest.fixture
def world(tmp_path):
    with with_streams(tmp_path / "state") as running_world:
        yield running_world


def fed(world, at):
    world.feed({"V": [{"ts": at, "vID": 1, "geo": "DE"}], "W": [{"ts": at, "vID": 1, "usrID": at}]}, at + 2000)


def test_suspended_and_resumed(world):
    client = world.client
    first = client.create_query(JOIN, id="q")
    fed(world, 100)
    stopped = client.suspend_query("q", "for the night")
    assert (stopped.state, stopped.suspended, stopped.uid) == (QueryState.SUSPENDED, "for the night", first.uid)
    fed(world, 5_000)
    assert client.query("q").rows == 1, "nothing more is delivered"
    assert sum(len(batch) for batch in client.subscribe("q")) == 1, "a subscription comes to its end"
    with pytest.raises(errors.AlreadyExists, match="suspended"):
        client.create_query(JOIN, id="q")
    with pytest.raises(errors.FailedPrecondition):
        client.explain("q")
    again = client.resume_query("q")
    assert again.state == QueryState.RUNNING and again.uid != first.uid and again.active_from == 6_000
    fed(world, 9_000)
    assert client.query("q").rows == 1
    assert client.query("q", uid=first.uid).state == QueryState.DELETED
    with pytest.raises(errors.FailedPrecondition, match="running"):
        client.resume_query("q")
    with pytest.raises(errors.NotFound):
        client.suspend_query("nobody")


def test_on_the_command_line(world):
    world.client.create_query(JOIN, id="q")

    def ajoin(*words: str) -> str:
        result = CliRunner().invoke(app, [*words, "--server", world.address])
        assert result.exit_code == 0, result.output
        return result.output

    assert "suspended query q" in ajoin("query", "suspend", "q", "--reason", "too slow")
    assert "SUSPENDED" in ajoin("query", "list") and "too slow" in ajoin("query", "show", "q")
    assert "resumed query q" in ajoin("query", "resume", "q")
    ajoin("query", "suspend", "q")
    assert "deleted query q" in ajoin("query", "delete", "q")
