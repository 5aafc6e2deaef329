"""Deciding changes nothing, not even what the planner remembers.

What is refused, what could not be written to the log and what was only a dry run must leave an engine that decides
exactly like one that was never asked: every test compares the two.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ajoin.sql import parse_query
from optimizer.errors import AJoinError, ResourceExhausted, Unavailable
from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.api import Control, CreateQuery, DeleteQuery, ForceGroups, Optimization, Optimize, ScaleTo, Unpin
from runtime.connectors.base import ConnectorSpec
from runtime.engine.config import EngineConfig
from runtime.engine.engine import Engine
from runtime.execution.executor import LocalExecutor
from runtime.log import log as log_module

TWO = "SELECT A.k FROM A JOIN B ON A.k = B.k WINDOW TUMBLING (SIZE 1 SECOND)"
MORE = "SELECT A.k FROM A JOIN B ON A.k = B.k JOIN C ON B.k = C.k WINDOW TUMBLING (SIZE 60 SECONDS)"


class Pair:
    """Two engines with the same life; only `one` is asked for what comes to nothing."""

    def __init__(self, directory: Path, max_cost: float | None = None) -> None:
        self.one, self.other = (_opened(directory / name, max_cost) for name in ("one", "other"))

    def both(self, do: Callable[[Engine], Any]) -> list[Any]:
        return [do(self.one), do(self.other)]

    def apply(self, *controls: Control) -> list[Any]:
        done = self.both(lambda engine: engine.apply(controls))
        assert not [o for outcomes in done for o in outcomes if isinstance(o, AJoinError)]
        return done

    def alike(self) -> None:
        """They remember the same, and the next optimizations find the same, for the same reasons."""
        assert self.one.parts.planner.memory == self.other.parts.planner.memory
        for _ in range(3):
            first, second = self.both(lambda engine: _judged(engine))
            assert first == second


def _opened(directory: Path, max_cost: float | None) -> Engine:
    engine = Engine.open(directory, LocalExecutor(), EngineConfig(max_cost=max_cost), lambda: 0)
    for name in "ABC":
        columns = (Column("ts", ColumnType.TIMESTAMP), Column("k", ColumnType.BIGINT))
        engine.create_stream(StreamSchema(name, columns, "ts"), ConnectorSpec("push"))
    return engine


def _judged(engine: Engine) -> tuple[Optimization, int]:
    """What the periodic optimizer would say now; then it does say it."""
    said = engine.optimize("incremental", dry_run=True)
    engine.apply([Optimize("incremental", force=False)])
    return said, engine.plan.version


def create(engine: Engine, id: str, sql: str = TWO) -> CreateQuery:
    return CreateQuery(id, parse_query(sql, engine.schemas()))


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """Two equal queries that were forced apart, and data: the optimizer wants to bring them together."""
    made = Pair(tmp_path)
    made.apply(create(made.one, "a"), create(made.one, "b"))
    made.apply(ForceGroups((("a", 0), ("b", 1))), Unpin())
    for start in (1000, 2000, 3000):
        rows = [{"ts": start + i, "k": i} for i in range(200)]
        for engine in (made.one, made.other):
            for stream in "AB":
                engine.push(stream, rows)
            engine.run_epoch()
    # measured times differ, and are not what is tested
    made.other.parts.planner.statistics = made.one.parts.planner.statistics
    made.both(lambda engine: engine.optimize("full"))
    made.apply(ForceGroups((("a", 0), ("b", 1))), Unpin())
    yield made
    made.both(lambda engine: engine.close())


def full_disk(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


def without_room(monkeypatch: pytest.MonkeyPatch, engine: Engine, *controls: Control) -> None:
    with monkeypatch.context() as m:
        m.setattr(log_module.os, "fsync", full_disk)
        with pytest.raises(Unavailable):
            engine.apply(controls)


def test_a_query_that_costs_too_much_is_not_remembered(tmp_path: Path) -> None:
    free = _opened(tmp_path / "free", None)
    free.apply([create(free, "q1")])
    cost = free.parts.planner.estimate(free.plan, free.state.running).cost
    free.close()
    pair = Pair(tmp_path, 1.01 * cost)
    pair.apply(create(pair.one, "q1"))
    pair.both(lambda engine: engine.optimize("full"))
    for n in range(5):
        (refused,) = pair.one.apply([create(pair.one, f"big{n}", MORE)])
        assert isinstance(refused, ResourceExhausted) and refused.reason == "COST_LIMIT"
    pair.alike()
    pair.both(lambda engine: engine.close())


def test_what_is_refused_in_a_batch_is_not_remembered_and_the_rest_is(pair: Pair) -> None:
    taken, unknown, accepted = pair.one.apply([create(pair.one, "a"), DeleteQuery("nobody"), create(pair.one, "c")])
    assert isinstance(taken, AJoinError) and isinstance(unknown, AJoinError) and not isinstance(accepted, AJoinError)
    pair.other.apply([create(pair.other, "c")])
    pair.alike()


@pytest.mark.parametrize("name", ["create", "delete", "optimize", "rescale"])
def test_what_could_not_be_logged_is_not_remembered(pair: Pair, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    controls: dict[str, list[Control]] = {
        "create": [create(pair.one, "c"), create(pair.one, "d")],
        "delete": [DeleteQuery("a"), DeleteQuery("b")],
        "optimize": [Optimize("full")],
        "rescale": [Optimize("incremental", force=False, rescale=True), ScaleTo(3)],
    }
    without_room(monkeypatch, pair.one, *controls[name])
    assert pair.one.plan == pair.other.plan
    pair.alike()


def test_hysteresis_counts_only_what_was_logged(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change must be wanted some times in a row; a judgement that was lost with its batch is none of them."""
    wish = Optimize("full", force=False)
    without_room(monkeypatch, pair.one, wish, ScaleTo(3))
    versions = []
    for _ in range(6):
        pair.both(lambda engine: engine.apply([wish]))
        assert pair.one.plan == pair.other.plan
        versions.append(pair.one.plan.version)
    assert versions[0] < versions[-1], "it was wanted often enough in the end"


def test_a_judgement_that_changes_no_plan_is_remembered(pair: Pair) -> None:
    before = pair.one.parts.planner.memory
    pair.one.apply([Optimize("full", force=False)])
    assert pair.one.plan == pair.other.plan
    assert pair.one.parts.planner.memory != before


def test_a_dry_run_is_not_remembered(pair: Pair) -> None:
    before = pair.one.parts.planner.memory
    for _ in range(4):
        pair.one.optimize("full", dry_run=True)
    assert pair.one.parts.planner.memory == before
    pair.alike()
