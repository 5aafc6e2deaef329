"""What somebody has forced stays, through optimizations and restarts, until it is released."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ajoin.testing import LocalEngine
from optimizer.model.trees import order_of
from optimizer.optimize import CostBasedOptimizer
from runtime.api import Adopt, ForceGroups, ForceOrder, Optimize, ScaleTo, SplitPartition, SuspendQuery, Unpin

SQL = "SELECT A.k FROM A JOIN B ON A.k = B.k JOIN C ON B.j = C.j WINDOW TUMBLING (SIZE 1 SECOND)"


@pytest.fixture
def local() -> Iterator[LocalEngine]:
    with LocalEngine() as made:
        for stream in "ABC":
            made.create_stream(stream, columns={"k": "BIGINT", "j": "BIGINT", "ts": "TIMESTAMP"})
        for id in ("x", "y", "z"):
            made.create_query(SQL, id=id)
        feed(made)
        yield made


def feed(local: LocalEngine) -> None:
    for _ in range(3):
        start = 300 * local.engine.epoch
        for stream in "ABC":
            local.push(stream, *({"k": i % 50, "j": i % 3, "ts": start + i} for i in range(100)))
        local.run_epoch()


def optimized(local: LocalEngine) -> None:
    """In every way there is."""
    engine = local.engine
    engine.optimize("full")
    for _ in range(4):
        situation = engine.situation()
        assert situation is not None
        engine.apply([Adopt(situation.search(CostBasedOptimizer(), "full"))])
    engine.apply([Optimize("incremental", force=False, rescale=True)])


def order(local: LocalEngine, id: str) -> object:
    engine = local.engine
    uid = engine.query(id).uid
    return order_of(engine.state.running[uid], engine.plan.by_uid[uid].root)


def test_forced_orders_groups_and_scale_stay_until_they_are_released(local: LocalEngine) -> None:
    local.engine.optimize("full")
    best = order(local, "x")
    other = (("A", "B"), "C") if best != (("A", "B"), "C") else ("A", ("B", "C"))
    local.apply(ForceOrder("x", other))
    forced = order(local, "x")
    assert forced != best
    local.apply(ForceGroups((("y", 7),)))
    local.apply(ScaleTo(3))
    local.apply(SplitPartition(1, 2))
    for kill in (None, False, True):
        if kill is not None:
            local.restart(kill=kill)
            feed(local)
        optimized(local)
        assert order(local, "x") == forced and local.engine.query("y").group == 7
        assert local.engine.plan.partitioning.count == 3 and local.engine.plan.partitioning.ways(1) == 2
        assert [local.engine.query(id).pins for id in "xyz"] == [("order",), ("group",), ()]
    told = local.engine.status().pins
    assert told == ("the join order of x", "the group of y", "the partition function")
    assert "pinned: order" in local.engine.explain(id="x") and "pinned" not in local.engine.explain(id="z")
    whole = local.engine.explain()
    assert "scale pinned" in whole and "pinned: x (order)" in whole and "pinned: y (group)" in whole
    local.apply(Unpin(("x",)))
    local.engine.optimize("full")
    assert order(local, "x") == best and local.engine.query("y").group == 7
    local.apply(Unpin())
    local.engine.optimize("full")
    assert len({q.group for q in local.engine.queries()}) == 1 and local.engine.status().pins == ()


def test_a_new_query_may_share_with_a_pinned_one_and_moves_nobody(local: LocalEngine) -> None:
    local.apply(ForceGroups((("x", 5),)))
    before = {p.uid: p for p in local.engine.plan.placements}
    local.create_query(SQL, id="new")
    assert {uid: local.engine.plan.by_uid[uid] for uid in before} == before


def test_a_query_that_ends_takes_its_pins_with_it(local: LocalEngine) -> None:
    local.apply(ForceGroups((("x", 5), ("y", 6))))
    local.apply(SuspendQuery("x", "test"))
    local.delete_query("y")
    assert not local.engine.state.plan_pins


def test_releasing_changes_no_plan_and_names_what_is_unknown(local: LocalEngine) -> None:
    from optimizer.errors import NotFound

    local.apply(ForceGroups((("x", 5),)))
    version = local.engine.plan.version
    with pytest.raises(NotFound):
        local.apply(Unpin(("nobody",)))
    local.apply(Unpin(("x",)))
    assert local.engine.plan.version == version and not local.engine.state.plan_pins


def test_a_changed_setting_survives_restarts_and_wins(tmp_path: Path) -> None:
    with LocalEngine(tmp_path / "s") as local:
        local.engine.change_setting("optimize_confirmations", 5)
        local.engine.change_setting("scale_above", 0.9)
        local.engine.change_setting("scale_above", None)
        for kill in (True, False):
            local.restart(kill=kill)
            assert local.engine.steering().optimize_confirmations == 5 and local.engine.steering().scale_above == 0.8
            config = local.engine.parts.planner.optimizer.config
            assert config.hysteresis.confirmations == 5 and config.scaling.high == 0.8
