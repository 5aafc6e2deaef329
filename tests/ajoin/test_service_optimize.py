"""Optimize over gRPC: a dry run shows exactly what the real run then does, and changes nothing."""

from __future__ import annotations

import pytest

from ajoin import errors
from tests.ajoin.world import JOIN, WAIT, with_streams


@pytest.fixture
def world(tmp_path):
    """Two equal queries, forced into groups of their own: the optimizer wants them together."""
    with with_streams(tmp_path / "state") as running_world:
        running_world.client.create_queries({"a": JOIN, "b": JOIN})
        for start in (1000, 2000, 3000):
            running_world.feed(
                {
                    "V": [{"ts": start + i, "vID": i, "geo": "x"} for i in range(400)],
                    "W": [{"ts": start + i, "vID": i, "usrID": i} for i in range(400)],
                },
                watermark=start + 1000,
            )
        running_world.client.force_groups({"a": 0, "b": 1})
        running_world.client.unpin()
        yield running_world


def groups(world) -> dict[str, int]:
    return {q.id: q.group for q in world.client.queries()}


def test_a_dry_run_shows_the_diff_and_the_real_run_applies_it(world):
    before, version = groups(world), world.platform.plan_version
    dry = world.client.optimize("full", dry_run=True)
    assert not dry.applied and dry.changes and dry.mode == "full"
    assert dry.cost_after < dry.cost_before and dry.gain == pytest.approx(dry.cost_before - dry.cost_after)
    assert dry.reasons and dry.plan_version == version == world.platform.plan_version
    assert groups(world) == before
    again = world.client.optimize("full", dry_run=True)
    assert (again.changes, again.would_apply) == (dry.changes, dry.would_apply)

    real = world.client.optimize("full")
    assert real.applied and real.plan_version == version + 1 == world.platform.plan_version
    assert set(real.changes) == set(dry.changes)
    assert groups(world) != before
    nothing = world.client.optimize("full", dry_run=True)
    assert not nothing.changes and nothing.gain == 0


def test_optimizing_changes_no_rows(world):
    world.client.optimize("full")
    world.feed(
        {"V": [{"ts": 4000, "vID": 7, "geo": "x"}], "W": [{"ts": 4001, "vID": 7, "usrID": 1}]},
        watermark=5000,
    )
    for id in ("a", "b"):
        assert len(world.client.results(id, until=5000, timeout=WAIT)) == 3 * 400 + 1


def test_an_empty_plan_is_good_already(tmp_path):
    with with_streams(tmp_path / "state") as world:
        done = world.client.optimize()
        assert not done.applied and done.changes == () and done.reasons == ("no query is running",)


def test_a_mode_that_does_not_exist_is_refused(world):
    with pytest.raises(errors.InvalidRequest):
        world.client.optimize("hard")
    with pytest.raises(errors.InvalidRequest) as refused:
        world.platform.optimize("hard").result(WAIT)
    assert refused.value.reason == "INVALID_MODE"
