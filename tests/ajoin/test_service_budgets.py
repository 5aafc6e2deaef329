"""What people can ask for and see of budgets: refusals, tenants' caps, the client, the command line, subscriptions."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ajoin import AtLimit, Budget, errors
from ajoin.cli import app
from ajoin.client.client import Client
from ajoin.client.results import Progress
from ajoin.config import Settings
from ajoin.platform.budgets import granted, parsed, repeats
from ajoin.platform.catalog import Limits
from ajoin.platform.control_messages import parse
from ajoin.platform.control_topic import carry_out
from ajoin.platform.metrics import PlatformCollector, serve_metrics
from ajoin.platform.tenancy import Quota
from ajoin.service.security import Security, from_settings
from ajoin.service.tokens import Role, TokenFile, create_token, read_tokens
from ajoin.v1 import queries_pb2
from ajoin.wire import convert
from runtime.api import NO_BUDGET, QueryInfo, QueryState
from runtime.control.budgets import OVER_BUDGET
from tests.ajoin.world import JOIN, WAIT, World, with_streams

SAMPLE = Budget(rows=10, at_limit=AtLimit.SAMPLE)
FULL = Budget(10, 1 << 20, 1 << 30, 2.5, 1 << 40, AtLimit.SAMPLE)


def ajoin(world: World, *words: str, code: int = 0) -> str:
    env = {"AJOIN_SERVER": world.address, "COLUMNS": "250"}
    done = CliRunner().invoke(app, list(words), env=env)
    assert done.exit_code == code, done.output
    return done.output


def flood(world: World, at: int, tuples: int = 30) -> None:
    """All of one key: tuples squared rows, in the window around `at`."""
    v = [{"ts": at + n, "vID": 1, "geo": "x"} for n in range(tuples)]
    world.feed({"V": v, "W": [{"ts": at + n, "vID": 1, "usrID": n} for n in range(tuples)]})


# -- what may be asked for ----------------------------------------------------------------------------------------


def test_no_wish_means_the_cap_and_a_wish_within_it_is_granted() -> None:
    cap = Budget(rows=100, seconds=2.5)
    assert granted(NO_BUDGET, cap) == cap
    assert granted(Budget(rows=7, bytes=1), cap) == Budget(rows=7, bytes=1, seconds=2.5)
    assert granted(Budget(rows=100, at_limit=AtLimit.FAIL), cap) == Budget(100, seconds=2.5, at_limit=AtLimit.FAIL)
    assert granted(FULL, NO_BUDGET) == FULL


@pytest.mark.parametrize(
    "wish",
    [Budget(rows=0), Budget(bytes=-1), Budget(seconds=float("nan")), Budget(seconds=float("inf")), Budget(1 << 63)],
)
def test_what_is_no_budget_is_refused(wish: Budget) -> None:
    with pytest.raises(errors.InvalidRequest) as refused:
        granted(wish, NO_BUDGET)
    assert refused.value.reason == "BUDGET_INVALID"


@pytest.mark.parametrize("name", ["rows", "bytes", "retained_bytes", "seconds", "state_bytes"])
def test_more_than_the_cap_is_refused_and_says_who_can_raise_it(name: str) -> None:
    for tenant, words in (("", "(a setting)"), ("a", "of tenant 'a', in the token file")):
        with pytest.raises(errors.InvalidRequest) as refused:
            granted(Budget(**{name: 1001}), Budget(**{name: 1000}), tenant)
        assert refused.value.reason == "BUDGET_TOO_LARGE" and "1,000 are the most" in refused.value.message
        assert f"max_query_{name}" in refused.value.hint and words in refused.value.hint


def test_budgets_as_people_write_them() -> None:
    assert parsed({"rows": "1_000", "seconds": "0.5"}, "fail") == Budget(1000, seconds=0.5, at_limit=AtLimit.FAIL)
    assert parsed({"rows": 5, "seconds": 2}) == Budget(5, seconds=2.0)
    wrong: list[tuple[dict[str, Any], Any]] = [
        ({"row": 5}, None),
        ({"rows": "many"}, None),
        ({"rows": 1.5}, None),
        ({"rows": True}, None),
        ({"rows": None}, None),
        ({"seconds": [1]}, None),
        ({}, "stop"),
        ({}, ["pause"]),
    ]
    for values, at_limit in wrong:
        with pytest.raises(errors.InvalidRequest) as refused:
            parsed(values, at_limit)
        assert refused.value.reason == "BUDGET_INVALID"


def test_budgets_travel() -> None:
    for budget in (NO_BUDGET, FULL, Budget(at_limit=AtLimit.FAIL)):
        assert convert.budget_from_pb(convert.budget_to_pb(budget)) == budget
    assert convert.budget_from_pb(queries_pb2.Budget()) == NO_BUDGET
    with pytest.raises(errors.InvalidRequest):
        convert.budget_from_pb(queries_pb2.Budget(at_limit=77))  # type: ignore[arg-type]


def test_a_request_that_is_repeated_with_another_budget_is_another_request(tmp_path: Path) -> None:
    with with_streams(tmp_path / "s", limits=Limits(budget=Budget(rows=1000, bytes=77))) as world:
        client = world.client
        first = client.create_query(JOIN, id="q", budget=SAMPLE, request_id="r1")
        assert first.budget == Budget(rows=10, bytes=77, at_limit=AtLimit.SAMPLE)
        assert client.create_query(JOIN, id="q", budget=SAMPLE, request_id="r1").uid == first.uid
        with pytest.raises(errors.InvalidRequest, match="different request"):
            client.create_query(JOIN, id="q", budget=Budget(rows=11), request_id="r1")
        with pytest.raises(errors.InvalidRequest) as large:
            client.create_query(JOIN, id="large", budget=Budget(rows=1001))
        assert large.value.reason == "BUDGET_TOO_LARGE"
        one, two = client.create_queries({"a": JOIN, "b": JOIN}, budget=Budget(bytes=0))
        assert {getattr(o, "reason", None) for o in (one, two)} == {"BUDGET_INVALID"}
        assert [q.id for q in client.queries()] == ["q"]


def test_control_messages_have_budgets(tmp_path: Path) -> None:
    def message(budget: Any) -> bytes:
        return json.dumps({"request_id": "r", "create": "q", "sql": JOIN, "budget": budget}).encode()

    for wrong in (7, {"rows": "x"}, {"at_limit": 3}, {"at_limit": ["pause"]}, {"lines": 3}):
        assert parse(message(wrong)).refused is not None
    with with_streams(tmp_path / "s", limits=Limits(budget=Budget(rows=1000))) as world:
        request = parse(message({"bytes": 500, "at_limit": "sample"}))
        for _ in range(2):  # the second time it was carried out before
            (query,) = carry_out(world.platform, [request])
            assert isinstance(query, QueryInfo)
            assert query.budget == Budget(1000, 500, at_limit=AtLimit.SAMPLE)
            assert repeats(request.budget, query.budget)
        (other,) = carry_out(world.platform, [parse(message({"bytes": 501, "at_limit": "sample"}))])
        assert isinstance(other, errors.AlreadyExists)
        (large,) = carry_out(world.platform, [parse(message({"rows": 1001}).replace(b'"q"', b'"q2"'))])
        assert isinstance(large, errors.InvalidRequest) and large.reason == "BUDGET_TOO_LARGE"


# -- tenants ------------------------------------------------------------------------------------------------------


def test_results_and_state_of_tenants_have_a_bound_by_default(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    token = create_token(file, "hers", Role.write, "a")
    file.write_text(file.read_text() + "\n[tenant.a]\nmax_query_rows = 5\nmax_query_seconds = 1.5\n")
    settings = Settings(token_file=str(file), retention_bytes=4000, max_query_rows=9, max_query_bytes=70)
    assert settings.limits.budget == Budget(rows=9, bytes=70), "an operator may take as much as there is"
    tokens = from_settings(settings).tokens
    assert tokens is not None
    who = tokens.find(token)
    assert who is not None and who.quota.budget == Budget(5, 70, 1000, 1.5, 4000)
    chosen = Settings(retention_bytes=4000, max_query_retained_bytes=3000, max_query_state_bytes=8000).tenant_budget
    assert chosen == Budget(retained_bytes=3000, state_bytes=8000)


@pytest.mark.parametrize(
    "entry", ["rows = 0", "rows = -1", "rows = true", "rows = 1.5", "seconds = inf", "bytes = '1'"]
)
def test_a_cap_of_the_token_file_is_a_number_above_0(tmp_path: Path, entry: str) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text(f"[tenant.a]\nmax_query_{entry}\n")
    with pytest.raises(errors.InvalidRequest, match="max_query_"):
        read_tokens(file)


@pytest.fixture
def tenants(tmp_path: Path) -> Iterator[tuple[World, Client]]:
    file = tmp_path / "tokens.toml"
    operator, mine = create_token(file, "operator", Role.admin), create_token(file, "mine", Role.write, "a")
    file.write_text(file.read_text() + "\n[tenant.a]\nmax_query_rows = 50\n")
    security = Security(tokens=TokenFile(file, Quota(query_rows=10, query_state_bytes=1 << 40)))
    with (
        with_streams(tmp_path / "s", security=security, token=operator) as world,
        Client(world.address, token=mine, timeout=WAIT) as client,
    ):
        yield world, client


def test_a_tenant_has_caps_of_its_own_and_reads_why_its_query_was_stopped(tenants: tuple[World, Client]) -> None:
    world, client = tenants
    assert client.create_query(JOIN, id="default").budget == Budget(50, state_bytes=1 << 40)
    assert world.client.create_query(JOIN, id="theirs").budget == NO_BUDGET
    with pytest.raises(errors.InvalidRequest) as large:
        client.create_query(JOIN, id="large", budget=Budget(rows=51))
    assert large.value.reason == "BUDGET_TOO_LARGE" and "of tenant 'a'" in large.value.hint
    client.create_query(JOIN, id="strict", budget=Budget(at_limit=AtLimit.FAIL))
    flood(world, 1000)
    assert world.platform.wait_until(lambda: world.platform.query("a/strict").state == QueryState.SUSPENDED, WAIT)
    assert client.query("strict").suspended.startswith(OVER_BUDGET)
    assert "may make" in client.query("strict").suspended, "it speaks of nobody else's"
    assert world.platform.wait_until(lambda: world.platform.query("a/default").rows == 900, WAIT)
    assert world.client.query("theirs").rows == 900


# -- what people see ----------------------------------------------------------------------------------------------


def test_who_reads_a_sample_is_told_where_it_has_gaps(tmp_path: Path) -> None:
    with with_streams(tmp_path / "s") as world:
        ajoin(world, "query", "create", "--id", "s", "--limit", "rows=10,seconds=9.5", "--at-limit", "sample", JOIN)
        world.client.create_query(JOIN, id="whole")
        world.feed({"V": [{"ts": 10, "vID": 1, "geo": "x"}], "W": [{"ts": 20, "vID": 1, "usrID": 1}]}, 2000)
        calm = world.client.results("s")
        assert calm.incomplete is None and len(calm) == 1
        flood(world, 3000)
        info = world.client.query("s")
        assert info.budget == Budget(10, seconds=9.5, at_limit=AtLimit.SAMPLE) and 1 < info.rows < 900
        assert info.usage.bytes == info.usage.retained_bytes > 0 and info.usage.seconds > 0
        assert info.incomplete is not None and info.incomplete.until == 3029
        assert info.incomplete.after is not None and info.incomplete.after >= 2000

        items = list(world.client.subscribe("s", follow=False, progress=True))
        last = items[-1]
        assert isinstance(last, Progress) and last.incomplete == info.incomplete
        assert world.client.results("s").incomplete == info.incomplete
        assert "incomplete=" in repr(world.client.results("s"))
        assert world.client.results("whole").incomplete is None and len(world.client.results("whole")) == 901

        shown = ajoin(world, "query", "show", "s")
        assert "rows left out in windows that end after 1970-01-01 00:00:0" in shown
        assert "start at 1970-01-01 00:00:03.029 or before" in shown
        assert "10 rows an epoch, 9.5 seconds of tasks an epoch; then sample" in shown
        told = json.loads(ajoin(world, "query", "show", "s", "--json"))
        assert told["budget"]["at_limit"] == "sample" and told["incomplete"]["until"] == 3029
        assert told["usage"]["bytes"] == info.usage.bytes
        listed = ajoin(world, "query", "list").splitlines()
        assert "RUNNING, rows left out" in listed[1] and "left out" not in listed[2]
        world.feed({"V": [], "W": []}, 3500)
        assert 'ajoin_query_incomplete{query="s"} 1.0' in metrics(world)
        world.feed({"V": [], "W": []}, 9000)
        assert "ajoin_query_incomplete{" not in metrics(world), "its windows with gaps are closed"


def metrics(world: World) -> str:
    with (
        serve_metrics("127.0.0.1", 0, PlatformCollector(world.platform)) as address,
        urllib.request.urlopen(f"http://{address}/metrics") as answer,
    ):
        text: str = answer.read().decode()
    return text


def test_a_query_that_was_stopped_says_up_to_where_it_is_complete(tmp_path: Path) -> None:
    with with_streams(tmp_path / "s") as world:
        budget = Budget(rows=10, at_limit=AtLimit.FAIL)
        world.client.create_query(JOIN, id="f", budget=budget)
        world.feed({"V": [], "W": []}, 2000)
        flood(world, 3000)
        assert world.platform.wait_until(lambda: world.platform.query("f").state == QueryState.SUSPENDED, WAIT)
        info = world.client.query("f")
        assert info.active_until is not None and 2000 <= info.active_until < 3029
        items = list(world.client.subscribe("f", progress=True))
        last = items[-1]
        assert isinstance(last, Progress) and last.state == QueryState.SUSPENDED, "its subscribers are told the end"
        assert last.watermark == info.active_until
        shown = " ".join(ajoin(world, "query", "show", "f").split())
        assert OVER_BUDGET in shown and "complete up to 1970-01-01 00:00:0" in shown
        resumed = world.client.resume_query("f")
        assert resumed.budget == budget and resumed.state == QueryState.RUNNING


def test_the_command_line_refuses_what_is_no_budget(tmp_path: Path) -> None:
    with with_streams(tmp_path / "s") as world:
        assert "BUDGET_INVALID" in ajoin(world, "query", "create", "--limit", "lines=3", JOIN, code=1)
        assert "BUDGET_INVALID" in ajoin(world, "query", "create", "--limit", "rows=0", JOIN, code=1)
        ajoin(world, "query", "create", "--limit", "rows", JOIN, code=2)
        ajoin(world, "query", "create", "--at-limit", "perhaps", JOIN, code=2)
        assert world.client.query(ajoin_id(world, "--limit", "rows=5", "--limit", "bytes=6")).budget == Budget(5, 6)


def ajoin_id(world: World, *options: str) -> str:
    created = json.loads(ajoin(world, "query", "create", *options, "--json", JOIN))
    return str(created["id"])
