"""Join trees: every shape checks every predicate once, and an order goes in and comes back."""

from __future__ import annotations

import pytest
from hypothesis import given

from optimizer.errors import InvalidRequest
from optimizer.model.plan import JoinNode, Leaf, RunningQuery, walk
from optimizer.model.trees import crossing, leaves_of, left_deep, order_of, predicates, regroup, tree_from_order
from tests.builders import join_query, q2, running, running_queries

V, W, C = Leaf("V"), Leaf("W"), Leaf("C")


def keys(node: JoinNode) -> list[str]:
    return [f"{k.left} = {k.right}" for k in node.keys]


def test_the_two_orders_of_q2_in_section_6() -> None:
    first = tree_from_order(q2(), [["V", "W"], "C"], 0)
    second = tree_from_order(q2(), ["V", ["W", "C"]], 0)

    assert order_of(q2(), first) == (("V", "W"), "C")
    assert order_of(q2(), second) == ("V", ("W", "C"))
    assert [keys(n) for n in first.joins] == [["V.vID = W.vID"], ["C.usrID = W.usrID"]]
    assert [keys(n) for n in second.joins] == [["C.usrID = W.usrID"], ["W.vID = V.vID"]]
    assert first.leaves == second.leaves == (C, V, W)


def test_a_flat_list_is_folded_from_the_left() -> None:
    assert tree_from_order(q2(), ["V", "W", "C"], 0) == tree_from_order(q2(), [["V", "W"], "C"], 0)


def test_the_order_of_a_pair_is_not_a_decision() -> None:
    assert tree_from_order(q2(), ["C", ["W", "V"]], 0) == tree_from_order(q2(), (("V", "W"), "C"), 0)


def test_a_cycle_closes_with_a_composite_key() -> None:
    triangle = running(
        "q",
        join_query("V", "W", "C", on=["V.vID = W.vID", "W.usrID = C.usrID", "C.length = V.length"]),
    )
    root = tree_from_order(triangle, ["V", "W", "C"], 0)
    assert keys(root) == ["C.length = V.length", "C.usrID = W.usrID"]


def test_an_equality_written_in_both_directions_is_one_key_part() -> None:
    twice = running("q", join_query("V", "W", on=["V.vID = W.vID", "W.vID = V.vID"]))
    assert len(crossing(predicates(twice), [V], [W])) == 1
    assert crossing(predicates(twice), [W], [V])[0].left.leaf == W


def test_self_joins_use_one_leaf_per_occurrence() -> None:
    rq = running("q", join_query("W a", "V", "W b", on=["a.vID = V.vID", "V.vID = b.vID"]))
    assert leaves_of(rq) == {"a": Leaf("W", 0), "V": V, "b": Leaf("W", 1)}
    assert tree_from_order(rq, order_of(rq, left_deep(rq, 3)), 3) == left_deep(rq, 3)


def test_left_deep_follows_from_but_never_makes_a_cross_product() -> None:
    rq = running("q", join_query("V", "C", "W", on=["V.vID = W.vID", "W.usrID = C.usrID"]))
    assert str(left_deep(rq, 0)) == "(C ⋈ (V ⋈ W))"


@pytest.mark.parametrize(
    ("order", "says"),
    [
        (["V", "C", "W"], "no equality connects V and C"),
        ([["V", "C"], "W"], "no equality connects V and C"),
        (["V", "W"], "leaves out C"),
        (["V", "W", "C", "V"], "'V' is named twice"),
        (["V", "W", "X"], "no alias 'X'"),
        ([["V", "W"], ["C"]], "at least two"),
        ([], "at least two"),
        ("V", "leaves out W, C"),
        (["V", "W", 3], "neither an alias nor a list"),
        (None, "neither an alias nor a list"),
        ({"V": "W"}, "neither an alias nor a list"),
        ([[[[["V", "W"], "C"], "C"], "C"], "C"], "nested deeper"),
    ],
)
def test_a_wrong_order_is_refused_with_its_reason(order: object, says: str) -> None:
    with pytest.raises(InvalidRequest, match="not a join order of query 'q2'") as caught:
        tree_from_order(q2(), order, 0)
    assert caught.value.reason == "INVALID_JOIN_ORDER"
    assert says in caught.value.message
    assert "V, W, C" in caught.value.hint


@given(running_queries(max_queries=1, max_sources=8))
def test_order_and_tree_are_inverse_and_every_predicate_is_checked_once(queries: list[RunningQuery]) -> None:
    rq = queries[0]
    root = left_deep(rq, 1)
    assert tree_from_order(rq, order_of(rq, root), 1) == root
    assert regroup(regroup(root, 5), 1) == root
    assert {n.group for n in walk(regroup(root, 5))} == {5}

    leaf = leaves_of(rq)
    asked = {
        frozenset({(leaf[p.left.alias], p.left.column), (leaf[p.right.alias], p.right.column)}) for p in rq.query.equi
    }
    checked = [
        frozenset({(k.left.leaf, k.left.column), (k.right.leaf, k.right.column)}) for n in root.joins for k in n.keys
    ]
    assert len(checked) == len(set(checked))
    assert set(checked) == asked
