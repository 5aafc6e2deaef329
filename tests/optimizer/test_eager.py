"""Step 1 of the optimizer, told with the queries of Figure 1."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.errors import InternalError
from optimizer.model.invariants import validate_plan
from optimizer.model.plan import JoinNode, Plan, RunningQuery, changelog_set
from optimizer.model.trees import leaves_of, order_of, tree_from_order
from optimizer.optimize import CostBasedOptimizer
from optimizer.policy.memory import Memory
from optimizer.search.eager import create_delete, place, without
from tests.builders import join_query, q1, q2, q3, running, running_queries
from tests.folds import Folding, count


def deploy(*queries: RunningQuery) -> Plan:
    plan = Plan()
    for rq in queries:
        plan = create_delete(plan, [rq], ())
    return plan


def shared(plan: Plan) -> dict[str, tuple[str, ...]]:
    return {str(node): users for node, users in plan.nodes.items() if len(users) > 1}


# -- Section 4, "the optimizer deploys Q2 as (V ⋈ W) ⋈ C" ------------------------------------------


def test_q2_created_after_q1_reuses_its_join() -> None:
    plan = deploy(q1(), q2())
    assert shared(plan) == {"(V ⋈ W)": ("q1", "q2")}
    assert plan.by_uid["q2"].root == tree_from_order(q2(), [["V", "W"], "C"], 0)
    assert [(p.uid, p.group, p.slot) for p in plan.placements] == [("q1", 0, 0), ("q2", 0, 1)]


def test_q2_created_after_q3_reuses_its_join_instead() -> None:
    plan = deploy(q3(), q2())
    assert shared(plan) == {"(C ⋈ W)": ("q2", "q3")}
    assert plan.by_uid["q2"].root == tree_from_order(q2(), ["V", ["W", "C"]], 0)


def test_q3_after_q1_and_q2_has_no_common_subquery_and_shares_scans() -> None:
    plan = deploy(q1(), q2(), q3())
    assert shared(plan) == {"(V ⋈ W)": ("q1", "q2")}
    assert plan.by_uid["q3"].group == 0
    scans = {str(node): users for node, users in plan.sources.items()}
    assert scans["W"] == ("q1", "q2", "q3")
    assert scans["C"] == ("q2", "q3")
    assert scans["R"] == ("q3",)


def test_deleting_q1_keeps_the_join_q2_still_uses() -> None:
    plan = create_delete(deploy(q1(), q2(), q3()), [], ["q1"])
    assert {str(n): users for n, users in plan.nodes.items()} == {
        "(V ⋈ W)": ("q2",),
        "(C ⋈ W)": ("q3",),
        "(C ⋈ (V ⋈ W))": ("q2",),
        "((C ⋈ W) ⋈ R)": ("q3",),
    }


def test_q7_of_section_4_shares_q3s_join_whatever_its_selections() -> None:
    q7 = running("q7", join_query("C", "W", on=["C.usrID = W.usrID"], where=[("W.geo", "=", "nowhere")]))
    assert shared(deploy(q3(), q7)) == {"(C ⋈ W)": ("q3", "q7")}


# -- which subquery is common ----------------------------------------------------------------------


def test_the_largest_common_subquery_wins_over_the_most_used_one() -> None:
    again = q2("again")
    plan = deploy(q1(), q1("q1b"), q1("q1c"), q2(), again)
    assert plan.by_uid["again"].root == plan.by_uid["q2"].root


def test_among_equally_large_ones_the_most_used_wins() -> None:
    views_and_comments = join_query("W", "C", on=["W.usrID = C.usrID"])
    plan = deploy(q1(), running("wc1", views_and_comments), running("wc2", views_and_comments), q2())
    assert order_of(q2(), plan.by_uid["q2"].root) == ("V", ("W", "C"))


def test_another_key_is_another_join() -> None:
    by_geo = running("geo", join_query("V", "W", on=["V.geo = W.geo"]))
    both = running("both", join_query("V", "W", on=["V.geo = W.geo", "V.vID = W.vID"]))
    plan = deploy(q1(), by_geo, both)
    assert shared(plan) == {}
    assert {p.group for p in plan.placements} == {0}, "but the scans of V and W are shared"


def test_a_subplan_is_only_common_if_it_matches_at_every_level() -> None:
    """The same three leaves and the same top key, but V ⋈ W by another attribute below."""
    other = running("o", join_query("V", "W", "C", on=["V.geo = W.geo", "W.usrID = C.usrID"]))
    plan = deploy(other, q2())
    assert shared(plan) == {}


def test_the_rest_may_match_another_subplan_and_give_a_bushy_tree() -> None:
    reactions = running("cr", join_query("C", "R", on=["C.usrID = R.usrID"]))
    bridge = running("rv", join_query("R", "V", on=["R.usrID = V.length"]))
    both = running(
        "four", join_query("V", "W", "C", "R", on=["V.vID = W.vID", "W.usrID = C.usrID", "C.usrID = R.usrID"])
    )
    plan = deploy(q1(), bridge, reactions, both)
    assert {p.group for p in plan.placements} == {0}
    assert str(plan.by_uid["four"].root) == "((C ⋈ R) ⋈ (V ⋈ W))"
    assert shared(plan) == {"(C ⋈ R)": ("cr", "four"), "(V ⋈ W)": ("four", "q1")}


def test_self_joins_match_by_occurrence() -> None:
    friends = join_query("W a", "W b", on=["a.vID = b.vID"])
    threesome = running("t", join_query("W x", "W y", "C", on=["x.vID = y.vID", "y.usrID = C.usrID"]))
    plan = deploy(running("f", friends), threesome)
    assert shared(plan) == {"(W ⋈ W'1)": ("f", "t")}


# -- groups and slots ------------------------------------------------------------------------------


def test_nothing_in_common_means_a_group_of_its_own() -> None:
    reactions = running("rr", join_query("R a", "R b", on=["a.usrID = b.usrID"]))
    plan = deploy(q1(), reactions)
    assert [(p.group, p.slot) for p in plan.placements] == [(0, 0), (1, 0)]


def test_a_group_number_is_used_again() -> None:
    reactions = running("rr", join_query("R a", "R b", on=["a.usrID = b.usrID"]))
    plan = create_delete(deploy(q1(), reactions), [q1("new")], ["q1"])
    assert plan.by_uid["new"].group == 0


def test_scan_sharing_chooses_the_group_with_most_common_sources() -> None:
    plan = deploy(q1(), running("rr", join_query("R a", "R b", on=["a.usrID = b.usrID"])))
    lengths = running("rv", join_query("R", "R r", "V", on=["R.reaction = r.reaction", "r.usrID = V.length"]))
    assert place(plan, lengths).group == 1


def test_a_slot_freed_in_a_batch_serves_a_query_created_in_it() -> None:
    before = deploy(q1(), q2())
    after = create_delete(before, [q1("q9")], ["q1"])
    assert after.by_uid["q9"].slot == 0
    assert changelog_set(before.slots(0), after.slots(0)) == {1}, "only q2's bit kept its meaning"


def test_a_batch_shares_among_its_own_queries() -> None:
    plan = create_delete(Plan(), [q1(), q2(), q3()], ())
    assert plan == replace(deploy(q1(), q2(), q3()), version=1)


def test_an_empty_batch_is_no_new_version() -> None:
    plan = deploy(q1())
    assert create_delete(plan, [], []) is plan


def test_bugs_of_the_caller_are_named() -> None:
    plan = deploy(q1())
    with pytest.raises(InternalError, match="already in plan version 1"):
        create_delete(plan, [q1()], [])
    with pytest.raises(InternalError, match="does not run nobody"):
        without(plan, ["nobody"])


# -- for any life ----------------------------------------------------------------------------------


@given(running_queries(max_queries=10), st.data())
def test_any_life_of_creations_and_deletions_keeps_the_plan_valid(
    queries: list[RunningQuery], data: st.DataObject
) -> None:
    plan, alive = Plan(), dict[str, RunningQuery]()
    while queries:
        batch = [queries.pop() for _ in range(min(len(queries), data.draw(st.integers(1, 3))))]
        gone = data.draw(st.sets(st.sampled_from(sorted(alive)))) if alive else set()
        before = plan
        plan = create_delete(plan, batch, gone)
        alive = {uid: rq for uid, rq in alive.items() if uid not in gone} | {rq.uid: rq for rq in batch}

        validate_plan(plan, alive)
        assert plan.version == before.version + 1
        for uid in alive.keys() & before.by_uid.keys():
            assert plan.by_uid[uid] == before.by_uid[uid], "a running query never notices"


FOLDS = [
    running(f"f{i}", Folding(stream).query(group=[f"{stream}.{column}"], select={"n": count()}, window=1000 + i))
    for i, (stream, column) in enumerate([("W", "geo"), ("W", "vID"), ("W", "geo"), ("C", "length"), ("W", "geo")])
]


@given(running_queries(max_queries=8), st.data())
def test_a_table_that_is_kept_places_queries_as_a_new_one_does(
    queries: list[RunningQuery], data: st.DataObject
) -> None:
    """Whatever is refused in between, and whoever is kept apart at the moment."""
    optimizer, plan, alive = CostBasedOptimizer(), Plan(), dict[str, RunningQuery]()
    coming = data.draw(st.permutations([*queries, *FOLDS]))
    while coming:
        batch = [coming.pop() for _ in range(min(len(coming), data.draw(st.integers(1, 3))))]
        gone = data.draw(st.sets(st.sampled_from(sorted(alive)), max_size=2)) if alive else set()
        heavy = data.draw(st.sets(st.sampled_from(sorted(alive)), max_size=2)) if alive else set()
        behind = dict.fromkeys(heavy, 10)
        step = optimizer.create_delete(plan, batch, gone, Memory(), behind, alive)
        assert step.plan == create_delete(plan, batch, gone, heavy, alive)
        if data.draw(st.integers(0, 3)):  # else it was refused
            plan = step.plan
            alive = {uid: rq for uid, rq in alive.items() if uid not in gone} | {rq.uid: rq for rq in batch}


def computes(rq: RunningQuery, node: JoinNode) -> bool:
    """Slow and obvious: its joins check exactly what the query asks between their inputs."""
    leaf = leaves_of(rq)
    asked = {
        frozenset({(leaf[p.left.alias], p.left.column), (leaf[p.right.alias], p.right.column)}) for p in rq.query.equi
    }
    if not set(node.leaves) <= set(leaf.values()):
        return False
    for n in node.joins:
        checked = {frozenset({(k.left.leaf, k.left.column), (k.right.leaf, k.right.column)}) for k in n.keys}
        across = {
            ends
            for ends in asked
            for left, right in [sorted(ends), sorted(ends, reverse=True)]
            if left[0] in n.left.leaves and right[0] in n.right.leaves
        }
        if checked != across:
            return False
    return True


@given(running_queries(max_queries=6))
def test_the_first_common_subquery_is_really_the_largest(queries: list[RunningQuery]) -> None:
    """Against an obvious search: every running join whose tree the query could have written itself."""
    *others, rq = queries
    plan = create_delete(Plan(), others, ())
    placed = place(plan, rq)
    mine = set(placed.root.joins)

    best = max((len(n.leaves) for n in mine if n in plan.nodes), default=0)
    possible = [len(n.leaves) for n in plan.nodes if computes(rq, n)]
    assert best == max(possible, default=0)
