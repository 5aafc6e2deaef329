"""A plan's root need not be a join: a query of one stream ends at its source, next to queries that join it."""

from __future__ import annotations

import json

import networkx as nx
import pytest

from optimizer.cost.model import Weights
from optimizer.errors import InvalidRequest
from optimizer.explain.describe import describe
from optimizer.explain.explain import explain_plan, explain_query, what_sharing_saves
from optimizer.model.changelog import QueryCreated, QueryDeleted, QueryMoved, apply, diff
from optimizer.model.codec import changelog_from_json, changelog_to_json, plan_from_json, plan_to_json
from optimizer.model.graphs import plan_graph
from optimizer.model.invariants import validate_plan
from optimizer.model.plan import Leaf, Placement, Plan, SourceNode
from optimizer.model.stages import stages_of
from optimizer.model.trees import left_deep, order_of, tree_from_order
from optimizer.search.eager import create_delete
from optimizer.search.forced import force_groups, force_order
from tests.builders import join_query, q1, q2, running
from tests.optimizer.models import Accepting, statistics

V = SourceNode(Leaf("V"), 0)


def videos(uid: str = "v"):
    return running(uid, join_query("V", on=[], where=[("V.length", ">", 5)]))


@pytest.fixture
def queries():
    return {rq.uid: rq for rq in (q1(), q2(), videos())}


@pytest.fixture
def plan(queries):
    return create_delete(Plan(), [queries[uid] for uid in ("q1", "q2", "v")], ())


def test_it_runs_where_its_stream_is_read_already(plan, queries):
    placed = plan.by_uid["v"]
    assert placed.root == V and placed.group == plan.by_uid["q1"].group
    assert plan.slots(0) == {0: "q1", 1: "q2", 2: "v"} and list(plan.groups) == [0]
    assert plan.sources[V] == ("q1", "q2", "v")
    assert all("v" not in users for users in plan.nodes.values())
    validate_plan(plan, queries)


def test_alone_it_gets_a_group_of_its_own():
    plan = create_delete(Plan(), [videos()], ())
    assert plan.placements == (Placement("v", 0, 0, V),)
    assert not plan.nodes and plan.words(0) == 1
    validate_plan(plan, {"v": videos()})


def test_the_invariants_see_a_root_that_reads_the_wrong_stream(plan, queries):
    wrong = Plan(1, (Placement("v", 0, 0, SourceNode(Leaf("W"), 0)),))
    with pytest.raises(Exception, match="does not read exactly the sources"):
        validate_plan(wrong, {"v": videos()})
    with pytest.raises(Exception, match="uses V of group 1"):
        validate_plan(Plan(1, (Placement("v", 0, 0, SourceNode(Leaf("V"), 1)),)))
    only_source = Plan(1, (Placement("q1", 0, 0, V),))
    with pytest.raises(Exception, match="does not read exactly the sources"):
        validate_plan(only_source, {"q1": queries["q1"]})


def test_it_survives_the_log(plan):
    assert plan_from_json(json.loads(json.dumps(plan_to_json(plan)))) == plan


def test_changelogs_create_move_and_delete_it(plan, queries):
    joins_only = create_delete(Plan(), [queries["q1"], queries["q2"]], ())
    moved = force_groups(plan, queries, {"v": 3})
    gone = create_delete(moved, [], ["v"])
    kinds = []
    for before, after in ((joins_only, plan), (plan, moved), (moved, gone), (Plan(), plan)):
        log = diff(before, after)
        assert apply(before, changelog_from_json(json.loads(json.dumps(changelog_to_json(log))))) == after
        assert describe(log, {}, after)
        kinds.append({type(e) for e in log.entries})
    assert QueryCreated in kinds[0] and QueryMoved in kinds[1] and QueryDeleted in kinds[2]
    assert moved.by_uid["v"].root == SourceNode(Leaf("V"), 3)
    assert "v created: group 0, slot 2, shares the scan of V with q1, q2" in describe(diff(joins_only, plan), {}, plan)


def test_its_only_order_is_its_alias(plan):
    rq = videos()
    assert tree_from_order(rq, "V", 0) == left_deep(rq, 0) == V
    assert order_of(rq, V) == "V"
    assert force_order(plan, rq, "V") is plan
    with pytest.raises(InvalidRequest, match="it reads one stream, so there is nothing to order") as refused:
        force_order(plan, rq, ["V", "W"])
    assert refused.value.reason == "INVALID_JOIN_ORDER"
    with pytest.raises(InvalidRequest, match="has no alias 'W'"):
        force_order(plan, rq, "W")


def test_explain_shows_it(plan, queries):
    figures = {V.name: 7.0}
    text = explain_plan(plan, queries, "text", observed=figures)
    assert "V  index vID" in text and "7/s observed" in text and "→ v" in text
    own = explain_query(plan, queries, "v", "text")
    assert "reads       V" in own and "shares      the scan of V with q1, q2" in own
    assert own.splitlines()[-1].startswith("V ") and own.endswith("→ v")

    document = json.loads(explain_plan(plan, queries, "json"))
    assert next(q for q in document["queries"] if q["id"] == "v")["root"] == V.name == "g0-V"
    assert [n["sinks"] for n in document["nodes"] if n["name"] == V.name] == [["v"]]
    one = json.loads(explain_query(plan, queries, "v", "json"))
    assert one["order"] == "V" and [n["kind"] for n in one["nodes"]] == ["source"]

    dot = explain_plan(plan, queries, "dot")
    assert '"g0-V" -> "sink v"' in dot
    assert explain_query(plan, queries, "v", "dot").count("->") == 1


def test_it_asks_for_a_scan_and_for_nothing_else():
    saved = what_sharing_saves(create_delete(Plan(), [videos("a"), videos("b")], ()))
    assert (saved.scans_asked, saved.scans_run, saved.joins_asked, saved.indexes_asked) == (2, 1, 0, 0)


def test_stages_of_a_plan_hold_only_joins(plan):
    assert [[str(n) for n in joins] for joins in stages_of(plan).joins] == [["(V ⋈ W)"], ["(C ⋈ (V ⋈ W))"]]
    assert stages_of(create_delete(Plan(), [videos()], ())).joins == stages_of(Plan()).joins == []
    graph = plan_graph([*plan.sources, *plan.nodes])
    assert nx.is_directed_acyclic_graph(graph) and nx.ancestors(graph, plan.by_uid["q1"].root) == {
        V,
        SourceNode(Leaf("W"), 0),
    }


@pytest.mark.parametrize("mode", ["full", "incremental"])
def test_the_optimizer_places_and_prices_it(mode):
    """Four queries want the same two thirds of V, one the last third: each pays for one pass, and for its rows."""
    optimizer = Accepting()
    queries = {rq.uid: rq for rq in (q1(), *(videos(f"v{i}") for i in range(5)))}
    wants = {f"v{i}": "110" for i in range(4)} | {"v4": "001", "q1": "111"}
    stats = statistics({"V": 300, "W": 300}, {"V": wants, "W": {"q1": "111"}})
    plan = optimizer.create_delete(Plan(), [queries[u] for u in ("q1", "v0", "v1", "v2")], ())
    optimizer.optimize(plan, queries, stats, "full", force=True)
    plan = optimizer.create_delete(plan, [queries["v3"], queries["v4"]], ())
    proposal = optimizer.optimize(plan, queries, stats, mode, force=True)
    validate_plan(proposal.plan, queries)
    assert apply(plan, diff(plan, proposal.plan)) == proposal.plan
    assert proposal.cost_after <= proposal.cost_before
    estimate = optimizer.estimate(proposal.plan, queries, stats)
    assert estimate.cost == pytest.approx(proposal.cost_after) == pytest.approx(sum(estimate.shared.values()))
    w = Weights()
    price = {n: n * (w.index + w.materialization) + w.fixed for n in (100, 200)}
    assert estimate.alone["v0"] == pytest.approx(price[200]) and estimate.alone["v4"] == pytest.approx(price[100])
