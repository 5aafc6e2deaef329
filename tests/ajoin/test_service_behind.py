"""What people see of a query that does not keep up: client, command line, metrics, explain; and what others see."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ajoin.cli import app
from ajoin.client.client import Client
from ajoin.platform.metrics import PlatformCollector, serve_metrics
from ajoin.service.security import Security
from ajoin.service.tokens import Role, TokenFile, create_token
from runtime.control.state import State
from tests.ajoin.world import JOIN, WAIT, World, with_streams


@pytest.fixture
def heavy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every query with "heavy" in its id has work put off since epoch 1."""

    def behind(state: State) -> dict[str, int]:
        return {uid: 1 for uid in state.running if "heavy" in uid}

    monkeypatch.setattr(State, "behind", property(behind))


def fed(world: World) -> None:
    """Epochs enough to be far behind; V is 3 s ahead of W."""
    for n in range(6):
        world.feed({"V": [{"ts": 4000 + n, "vID": n, "geo": "x"}], "W": [{"ts": 1000 + n, "vID": n, "usrID": 1}]})
    assert world.platform.wait_until(lambda: world.platform.status().epoch > 3, WAIT)


@pytest.mark.usefixtures("heavy")
def test_an_operator_sees_who_is_behind_and_what_is_done_about_it(tmp_path: Path) -> None:
    with with_streams(tmp_path / "s") as world:
        client = world.client
        client.create_queries({"heavy": JOIN, "light": JOIN})
        fed(world)
        assert client.query("light").epochs_behind == 0 and client.query("light").lag_ms == 3000
        behind = client.query("heavy")
        assert behind.epochs_behind >= 3 and behind.lag_ms is not None

        assert re.search(r"lag: +3\.0 s \(\d+ epochs behind\)", ajoin(world, "query", "show", "heavy"))
        heading, first, second = ajoin(world, "query", "list").splitlines()
        assert "lag" in heading.split() and "epochs behind)" in first and "3.0 s" in second and "behind" not in second
        assert json.loads(ajoin(world, "query", "show", "light", "--json"))["lag_ms"] == 3000

        with (
            serve_metrics("127.0.0.1", 0, PlatformCollector(world.platform)) as address,
            urllib.request.urlopen(f"http://{address}/metrics") as answer,
        ):
            text = answer.read().decode()
        assert 'ajoin_query_epochs_behind{query="heavy"}' in text
        assert 'ajoin_query_lag_seconds{query="heavy"} 3.0' in text
        assert "light" not in text

        told = client.optimize("incremental")
        assert told.applied and told.reasons[0].startswith("heavy gets a group of its own: it is ")
        assert "heavy (bit 0) · apart: heavy" in ajoin(world, "explain")


@pytest.fixture
def tenants(tmp_path: Path) -> Iterator[tuple[World, Client]]:
    file = tmp_path / "tokens.toml"
    operator, hers = create_token(file, "operator", Role.admin), create_token(file, "hers", Role.write, "rival")
    mine = create_token(file, "mine", Role.write, "a")
    with (
        with_streams(tmp_path / "s", security=Security(tokens=TokenFile(file)), token=operator) as world,
        Client(world.address, token=hers, timeout=WAIT) as rival,
        Client(world.address, token=mine, timeout=WAIT) as client,
    ):
        rival.create_query(JOIN, id="heavy")
        client.create_query(JOIN, id="mine")
        yield world, client


@pytest.mark.usefixtures("heavy")
def test_a_tenant_sees_only_whether_its_own_are_behind(tenants: tuple[World, Client]) -> None:
    world, client = tenants
    for _ in range(2):  # while they share a group, and after
        fed(world)
        for format in ("text", "json", "dot"):
            told = client.explain("mine", format=format)
            assert "heavy" not in told and "rival" not in told
        assert [(q.id, q.epochs_behind) for q in client.queries()] == [("mine", 0)]
        world.client.optimize("incremental")
    client.create_query(JOIN, id="my-heavy")
    fed(world)
    world.client.optimize("incremental")
    assert "apart: heavy" in client.explain("my-heavy") and client.query("my-heavy").epochs_behind > 0


def ajoin(world: World, *words: str) -> str:
    done = CliRunner().invoke(app, list(words), env={"AJOIN_SERVER": world.address, "COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    return done.stdout
