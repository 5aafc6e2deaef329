"""The coordinator is a fold over its log: no clock, no files, and the same events give the same state for ever."""

from __future__ import annotations

import json

import pytest

from optimizer.errors import AlreadyExists, FailedPrecondition, NotFound
from optimizer.model.types import Column, ColumnType, StreamSchema
from optimizer.model.windows import PeriodicWindow
from runtime.api import CreateQuery, DeleteQuery, Optimize, ScaleTo
from runtime.connectors.base import ConnectorSpec
from runtime.connectors.position import Position
from runtime.control.coordinator import Coordinator
from runtime.control.events import EpochCommitted, StreamProgress
from runtime.control.fold import DELETED_KEPT, handle
from runtime.control.state import State
from tests.builders import join_query
from tests.runtime.events import logged_life

PUSH = ConnectorSpec("push", ())
SCHEMAS = {
    name: StreamSchema(name, (Column("k", ColumnType.BIGINT), Column("ts", ColumnType.TIMESTAMP)), "ts")
    for name in ("A", "B")
}


def fold(events, state=None):
    coordinator = Coordinator(state)
    for event in events:
        coordinator.handle(event)
    return coordinator.state


def text(state):
    return json.dumps(state.to_json())


@pytest.mark.parametrize("seed", range(20, 26))
def test_the_same_events_give_the_same_state(tmp_path, seed):
    _, events, state = logged_life(tmp_path, seed)
    assert text(fold(events)) == text(fold(events)) == text(state)


@pytest.mark.parametrize("seed", range(30, 34))
def test_a_state_never_changes_and_shares_no_mapping_that_does(tmp_path, seed):
    _, events, _ = logged_life(tmp_path, seed)
    states, texts = [State()], [text(State())]
    for event in events:
        states.append(handle(states[-1], event).state)
        texts.append(text(states[-1]))
    assert [text(s) for s in states] == texts


@pytest.mark.parametrize("seed", range(26, 30))
def test_a_snapshot_and_the_rest_equal_the_whole_log(tmp_path, seed):
    _, events, state = logged_life(tmp_path, seed)
    for at in range(len(events) + 1):
        snapshot = json.loads(text(fold(events[:at])))
        assert text(fold(events[at:], State.from_json(snapshot))) == text(state)


# -- by hand --------------------------------------------------------------------------------------------------


@pytest.fixture
def coordinator():
    c = Coordinator()
    for name, schema in SCHEMAS.items():
        c.handle(c.decide_stream(schema, PUSH, Position.of(0), 0))
        assert c.stream(name).watermark is None
    return c


def asked(window=(1000, 1000)):
    return join_query("A", "B", on=["A.k = B.k"], schemas=SCHEMAS, window=PeriodicWindow(*window))


def batch(c, *controls):
    decision = c.decide_batch(controls, 0)
    if decision.event is not None:
        c.handle(decision.event)
    c.planner.memory = decision.memory
    return list(decision.outcomes)


def epoch(c, raised=None, **times):
    """An epoch in which each named stream brought one tuple of that time."""
    planned = c.decide_epoch({name: Position.of(c.state.epoch + 1) for name in times}, raised or {}, 0)
    c.handle(planned)
    progress = tuple(
        StreamProgress(stream=s, tuples=int(s in times), late=0, dead=0, max_time=times.get(s)) for s in c.state.streams
    )
    c.handle(committed(c.state, planned.epoch, progress))


def committed(s, epoch, progress=()):
    return EpochCommitted(
        epoch=epoch,
        next_bucket=s.next_bucket,
        next_source=s.next_source,
        progress=progress,
        letters=(),
        sources=(),
        joined=(),
        views=(),
        stale=(),
        segments=(),
        delivered=(),
        seconds=(),
    )


def watermark(c, uid="q#1"):
    return c.state.watermark(c.state.queries[uid].query)


def test_deciding_changes_nothing(coordinator):
    before, memory = text(coordinator.state), coordinator.planner.memory
    batches = [CreateQuery("q", asked()), ScaleTo(3), Optimize("full", rescale=True)], [ScaleTo(1)], []
    for controls in batches:
        decision = coordinator.decide_batch(controls, 5)
        again = coordinator.decide_batch(controls, 5)
        assert decision == again
        coordinator.decide_epoch({"A": Position.of(1)}, {}, 5)
        coordinator.decide_stream_deletion("A")
        assert text(coordinator.state) == before and coordinator.planner.memory == memory


def test_refusals_keep_their_place_and_do_nothing(coordinator):
    """What was refused at the door, and what is refused here, stands where the control stood."""
    at_the_door = NotFound("no such column")
    created, refused, taken, scaled = batch(
        coordinator, CreateQuery("q", asked()), at_the_door, CreateQuery("q", asked()), ScaleTo(3)
    )
    assert (created, refused, scaled) == ("q#1", at_the_door, None)
    assert isinstance(taken, AlreadyExists)
    decision = coordinator.decide_batch([at_the_door, taken], 0)
    assert (decision.event, decision.outcomes) == (None, (at_the_door, taken))
    assert decision.memory == coordinator.planner.memory


def test_active_from_is_the_first_window_after_everything_accepted(coordinator):
    c = coordinator
    batch(c, CreateQuery("early", asked()))
    assert c.record("early").query.active_from is None
    epoch(c, A=999)
    batch(c, CreateQuery("one", asked()))
    epoch(c, B=1000)
    batch(c, CreateQuery("two", asked()), CreateQuery("hop", asked((500, 300))))
    # T is 1000 for the first (999 was the greatest), 1001 for the others
    assert c.record("one").query.active_from == 1000
    assert c.record("two").query.active_from == 2000
    assert c.record("hop").query.active_from == 1200


def test_a_querys_watermark_is_the_minimum_and_never_moves_back(coordinator):
    c = coordinator
    batch(c, CreateQuery("q", asked()))
    assert watermark(c) is None
    epoch(c, A=5000)
    assert watermark(c) is None, "B has none"
    epoch(c, B=3000)
    assert watermark(c) == 3000
    epoch(c, A=100, B=100)
    assert watermark(c) == 3000
    epoch(c, raised={"B": 4000})
    assert watermark(c) == 4000


def test_a_deleted_query_keeps_its_bound_and_its_name_becomes_free(coordinator):
    c = coordinator
    (first,) = batch(c, CreateQuery("q", asked()))
    epoch(c, A=5000, B=3000)
    assert batch(c, DeleteQuery("q")) == [first]
    assert (c.record("q").running, c.record("q").active_until) == (False, 3000)
    (error,) = batch(c, DeleteQuery("q"))
    assert isinstance(error, FailedPrecondition) and error.reason == "QUERY_DELETED"
    (second,) = batch(c, CreateQuery("q", asked()))
    assert second != first
    assert c.record("q").running
    assert c.state.queries[first].active_until == 3000


def test_in_one_batch_each_control_has_its_own_outcome_and_there_is_one_changelog(coordinator):
    c = coordinator
    version = c.state.plan.version
    a, twice, b, missing, deleted, scaled = batch(
        c,
        CreateQuery("a", asked()),
        CreateQuery("a", asked()),
        CreateQuery("b", asked()),
        DeleteQuery("nobody"),
        DeleteQuery("a"),
        ScaleTo(3),
    )
    assert isinstance(twice, AlreadyExists) and isinstance(missing, NotFound)
    assert (a, deleted, scaled) == ("a#1", "a#1", None)
    assert c.state.plan.version == version + 1
    assert [p.uid for p in c.state.plan.placements] == [b]
    assert c.state.plan.partitioning.count == 3
    assert c.record("a").running is False
    assert len(c.state.plans) == 1


def test_a_stream_in_use_cannot_go(coordinator):
    c = coordinator
    batch(c, CreateQuery("q", asked()))
    with pytest.raises(FailedPrecondition) as caught:
        c.decide_stream_deletion("A")
    assert caught.value.reason == "STREAM_IN_USE"
    batch(c, DeleteQuery("q"))
    epoch(c)
    c.handle(c.decide_stream_deletion("A"))
    with pytest.raises(NotFound):
        c.stream("A")
    epoch(c, B=1)


def test_an_unplanned_epoch_is_never_committed(coordinator):
    s = coordinator.state
    with pytest.raises(AssertionError, match="planned before"):
        coordinator.handle(committed(s, 1))


def test_queries_that_the_last_epoch_ran_are_remembered_until_another_one_ran(coordinator):
    """After a restart the plan of the last epoch is compiled again, with all its queries."""
    c = coordinator
    ids = [f"q{i}" for i in range(DELETED_KEPT + 5)]
    batch(c, *(CreateQuery(id, asked()) for id in ids))
    epoch(c, A=1, B=1)
    batch(c, *(DeleteQuery(id) for id in ids))
    assert c.state.executed.by_uid.keys() <= c.state.queries.keys()
    epoch(c, A=2)
    batch(c, CreateQuery("last", asked()))
    assert len(c.state.queries) == DELETED_KEPT + 1
