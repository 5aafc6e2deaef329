"""The verbs of the API against a running platform."""

from __future__ import annotations

import json
import threading
from itertools import islice

import pytest

from ajoin import errors
from ajoin.client.results import Batch, Cursor, Progress
from ajoin.platform.catalog import Limits
from runtime.api import QueryState
from runtime.engine.config import EngineConfig
from tests.ajoin.world import JOIN, WAIT, V, W, running, with_streams


@pytest.fixture
def world(tmp_path):
    with with_streams(tmp_path / "state") as running_world:
        yield running_world


def rows_of(results) -> list[tuple]:
    return sorted((r["vID"], r["geo"], r["usrID"]) for r in results)


def feed_window(world, start: int, ids=(1, 2)) -> None:
    """One tuple a side and id, and everything up to the window's end is complete."""
    world.feed(
        {
            "V": [{"ts": start, "vID": i, "geo": f"g{i}"} for i in ids],
            "W": [{"ts": start + 1, "vID": i, "usrID": 10 * i} for i in ids],
        },
        watermark=start + 1000,
    )


def test_streams(world):
    v, w = world.client.streams()
    assert (v.schema.name, w.schema.name) == ("V", "W")
    assert {c.name: c.type for c in v.schema.columns} == V and v.schema.time == "ts"
    assert {c.name: c.type for c in w.schema.columns} == W
    world.client.create_query(JOIN, id="q1")
    assert world.client.stream("V").queries == ("q1",)
    with pytest.raises(errors.FailedPrecondition) as refused:
        world.client.delete_stream("V")
    assert refused.value.reason == "STREAM_IN_USE"
    world.client.delete_query("q1")
    world.client.delete_stream("V")
    assert [s.schema.name for s in world.client.streams()] == ["W"]


def test_a_query_from_creation_to_deletion(world):
    created = world.client.create_query(JOIN, id="q1")
    assert (created.id, created.state, created.active_from) == ("q1", QueryState.RUNNING, None)
    assert created.plan_version == world.platform.plan_version and created.epoch >= 1
    assert created.outputs == ("vID", "geo", "usrID") and created.sql == JOIN
    feed_window(world, 1000)
    results = world.client.results("q1", until=2000, timeout=WAIT)
    assert rows_of(results) == [(1, "g1", 10), (2, "g2", 20)]
    table = results.to_arrow()
    assert table.schema.names == ["window_start", "window_end", "vID", "geo", "usrID"]
    assert table["window_start"].cast("int64").to_pylist() == [1000, 1000]
    assert table["window_end"].cast("int64").to_pylist() == [2000, 2000]
    deleted = world.client.delete_query("q1")
    assert (deleted.state, deleted.rows, deleted.active_until) == (QueryState.DELETED, 2, 2000)
    assert world.client.query("q1") == deleted


def test_a_query_created_while_data_flows_starts_at_the_next_window(world):
    feed_window(world, 1000)
    late = world.client.create_query(JOIN, id="late")
    assert late.active_from == 2000
    feed_window(world, 2500, ids=(7,))
    results = world.client.results("late", until=3000, timeout=WAIT)
    assert rows_of(results) == [(7, "g7", 70)]


def test_deployment_latency_is_remembered(world):
    created = world.client.create_query(JOIN, id="q1")
    assert world.client.query("q1").deployment_latency_ms == created.deployment_latency_ms >= 0
    assert world.client.delete_query("q1").deployment_latency_ms == created.deployment_latency_ms


def test_ids_are_chosen_and_not_taken_twice(world):
    assert world.client.create_query(JOIN, id="q-2").id == "q-2"
    assert world.client.create_query(JOIN).id == "q-1"
    assert world.client.create_query(JOIN).id == "q-3"


def test_many_queries_in_one_batch_have_their_own_outcomes(world):
    before = world.platform.plan_version
    good, twice, bad = world.client.create_queries([JOIN, JOIN, "SELECT nonsense"])
    assert good.plan_version == twice.plan_version == before + 1
    assert isinstance(bad, errors.SqlError)
    first, second = world.client.create_queries({"a": JOIN, "b": JOIN})
    assert (first.id, second.id) == ("a", "b")
    (taken,) = world.client.create_queries({"a": JOIN})
    assert isinstance(taken, errors.AlreadyExists) and taken.reason == "QUERY_EXISTS"


def test_listing_pages(world):
    ids = [f"p{i:02}" for i in range(7)]
    world.client.create_queries(dict.fromkeys(ids, JOIN))
    assert [q.id for q in world.client.queries(page_size=3)] == ids
    world.client.delete_query("p03")
    states = {q.id: q.state for q in world.client.queries(page_size=1)}
    assert states.pop("p03") == QueryState.DELETED and set(states.values()) == {QueryState.RUNNING}


def test_the_limit_of_queries(tmp_path):
    with with_streams(tmp_path / "state", limits=Limits(queries=2)) as world:
        outcomes = world.client.create_queries([JOIN, JOIN, JOIN])
        assert [type(o).__name__ for o in outcomes] == ["QueryInfo", "QueryInfo", "ResourceExhausted"]
        assert outcomes[2].reason == "TOO_MANY_QUERIES"


# -- subscriptions ---------------------------------------------------------------------------------------


def test_resuming_by_cursor_misses_and_repeats_nothing(world):
    world.client.create_query(JOIN, id="q1")
    for start in (1000, 2000, 3000):
        feed_window(world, start, ids=(start,))
    whole = rows_of(world.client.results("q1", until=4000, timeout=WAIT))
    seen, cursor = [], None
    for _ in range(3):
        piece = world.client.results("q1", cursor=cursor, limit=1, timeout=WAIT)
        assert len(piece) == 1
        seen += rows_of(piece)
        cursor = Cursor.parse(str(piece.cursor))
    assert sorted(seen) == whole
    rest = world.client.results("q1", cursor=cursor)
    assert len(rest) == 0 and rest.to_arrow().num_rows == 0


def test_resuming_inside_a_batch(world):
    world.client.create_query(JOIN, id="q1")
    feed_window(world, 1000, ids=range(20))
    whole = rows_of(world.client.results("q1", until=2000, timeout=WAIT))
    first = world.client.results("q1", limit=13, timeout=WAIT)
    rest = world.client.results("q1", cursor=first.cursor)
    assert len(first) == 13 and sorted(rows_of(first) + rows_of(rest)) == whole


def test_from_now_sees_only_what_comes(world):
    world.client.create_query(JOIN, id="q1")
    feed_window(world, 1000)
    items = world.client.subscribe("q1", start="now", progress=True, timeout=WAIT)
    first = next(items)
    assert isinstance(first, Progress) and first.watermark == 2000
    feed_window(world, 2000, ids=(5,))
    batch = next(i for i in items if isinstance(i, Batch))
    assert batch.table["vID"].to_pylist() == [5] and batch.cursor > first.cursor


def test_progress_follows_the_rows_it_speaks_of(world):
    world.client.create_query(JOIN, id="q1")
    complete, rows = [], 0
    thread = threading.Thread(target=lambda: [feed_window(world, s) for s in range(1000, 11_000, 1000)])
    thread.start()
    for item in world.client.subscribe("q1", progress=True, timeout=WAIT):
        if isinstance(item, Batch):
            rows += len(item)
        elif item.watermark is not None:
            # Two rows a window: every window that ends at or before the watermark must have been delivered.
            assert rows >= 2 * (item.watermark // 1000 - 1)
            complete.append(item.watermark)
            if item.watermark == 11_000:
                break
    thread.join()
    assert complete == sorted(complete) and rows == 20


def test_a_subscription_ends_with_its_query(world):
    world.client.create_query(JOIN, id="q1")
    items = world.client.subscribe("q1", progress=True, timeout=WAIT)
    assert isinstance(next(items), Progress)
    feed_window(world, 1000)
    world.client.delete_query("q1")
    rest = list(items)
    assert sum(len(i) for i in rest if isinstance(i, Batch)) == 2
    assert rest[-1].state == QueryState.DELETED
    assert rows_of(world.client.results("q1")) == [(1, "g1", 10), (2, "g2", 20)]


def test_a_subscription_gets_its_tail_when_its_id_is_used_again(world):
    old = world.client.create_query(JOIN, id="q1")
    items = world.client.subscribe("q1", progress=True, timeout=WAIT)
    next(items)
    feed_window(world, 1000)
    world.client.delete_query("q1")
    new = world.client.create_query(JOIN.replace("V.geo", "V.geo AS place"), id="q1")
    feed_window(world, 2000, ids=(7,))
    rest = list(items)
    assert [v for i in rest if isinstance(i, Batch) for v in i.table["geo"].to_pylist()] == ["g1", "g2"]
    assert rest[-1].state == QueryState.DELETED
    # Whoever was not there in time names the query by its uid.
    assert rows_of(world.client.results("q1", uid=old.uid)) == [(1, "g1", 10), (2, "g2", 20)]
    assert world.client.query("q1", uid=old.uid).state == QueryState.DELETED
    assert [r["place"] for r in world.client.results("q1", until=3000, timeout=WAIT)] == ["g7"]
    assert world.client.query("q1").uid == new.uid
    with pytest.raises(errors.NotFound):
        world.client.results("q2", uid=old.uid)


def test_a_cursor_that_the_retention_has_overtaken_is_reported(tmp_path):
    with with_streams(tmp_path / "state", engine=EngineConfig(retention_epochs=3)) as world:
        world.client.create_query(JOIN, id="q1")
        feed_window(world, 1000)
        early = world.client.results("q1", until=2000, timeout=WAIT)
        assert len(early) == 2
        start = 2000
        while len(world.client.results("q1")) == world.client.query("q1").rows or start < 7000:
            feed_window(world, start)
            start += 1000
        with pytest.raises(errors.FailedPrecondition) as refused:
            world.client.results("q1", cursor=early.cursor)
        assert refused.value.reason == "CURSOR_EXPIRED"
        oldest = Cursor.parse(refused.value.hint.rsplit(" ", 1)[1])
        kept = world.client.results("q1")
        assert rows_of(world.client.results("q1", cursor=oldest)) == rows_of(kept) != []


# -- plan and status -------------------------------------------------------------------------------------


def test_explain(world):
    world.client.create_query(JOIN, id="q1")
    assert "V" in world.client.explain() and "q1" in world.client.explain()
    assert "q1" in world.client.explain("q1")
    assert "W" in world.client.explain(sql=JOIN)
    assert isinstance(json.loads(world.client.explain(format="json")), dict)
    assert "digraph" in world.client.explain("q1", format="dot")
    assert [q.id for q in world.client.queries()] == ["q1"]


def test_watching_the_plan(world):
    before = world.platform.plan_version
    world.client.create_query(JOIN, id="q1")
    events = world.client.watch_plan(after_version=before, timeout=WAIT)
    first = next(events)
    assert first.version == before + 1 and any("q1" in change for change in first.changes)
    world.client.delete_query("q1")
    second = next(events)
    assert second.version == before + 2 and second.epoch >= first.epoch
    history = islice(world.client.watch_plan(after_version=0, timeout=WAIT), 3)
    assert [e.version for e in history] == [1, 2, 3]


def test_steering_changes_no_rows(world):
    world.client.create_queries({"a": JOIN, "b": JOIN})
    feed_window(world, 1000)
    version = world.client.scale(4)
    assert world.client.split(1, 2) > version
    world.client.force_groups({"a": 0, "b": 1})
    world.client.force_order("a", ["W", "V"])
    world.client.optimize("incremental")
    feed_window(world, 2000, ids=(3,))
    expected = [(1, "g1", 10), (2, "g2", 20), (3, "g3", 30)]
    for id in ("a", "b"):
        assert rows_of(world.client.results(id, until=3000, timeout=WAIT)) == expected


def test_status_and_statistics(world):
    world.client.create_query(JOIN, id="q1")
    feed_window(world, 1000)
    status = world.client.status()
    assert (status.state, status.streams, status.queries, status.tuples, status.rows) == ("RUNNING", 2, 1, 4, 2)
    assert status.epoch == world.platform.epoch and status.message == ""
    statistics = world.client.statistics()
    assert [s.tuples for s in statistics.streams] == [2, 2]
    assert [(q.id, q.rows) for q in statistics.queries] == [("q1", 2)]
    assert sum(e.rows for e in statistics.epochs) == 2
    assert len(world.client.statistics(epochs=1).epochs) == 1


def test_dead_letters(world):
    world.feed({"V": [{"ts": None, "vID": 1, "geo": "x"}, {"ts": 5, "vID": 1, "geo": "x"}]})
    info = world.client.stream("V")
    assert (info.tuples, info.dead_letter) == (1, 1)
    (letter,) = world.client.dead_letters("V")
    assert letter.stream == "V" and letter.reason
    assert world.client.dead_letters("W") == []


def test_an_empty_platform(tmp_path):
    with running(tmp_path / "state") as world:
        assert world.client.streams() == [] and list(world.client.queries()) == []
        assert world.client.status().state == "RUNNING"
        assert isinstance(world.client.explain(), str)
