"""Equations 1 and 2 and Figure 6 of the paper, and the identities the search relies on."""

from __future__ import annotations

import random
from itertools import combinations

import numpy as np
import pytest

from experiments.optimizer_workloads import small_world
from optimizer.cost.model import Shared, Sink, Weights
from optimizer.search.clusters import together
from optimizer.search.dynamic import best_tree
from optimizer.search.grouping import group_shape
from tests.builders import join_query, running
from tests.optimizer.exhaustive import all_trees
from tests.optimizer.models import search_space, statistics

PAIRS = Weights(index=0, intersection=0, materialization=1, exchange=0, fixed=0)
EQUATION_2 = Weights(index=1, intersection=1, materialization=1, exchange=1, fixed=0)


def two_way(uid):
    return running(uid, join_query("V", "W", on=["V.vID = W.vID"]))


def figure_6():
    """Q4 takes t1-t3 of V and t4-t6 of W, Q5 takes t7-t9 and t10-t12; all tuples have the same key."""
    wants = {
        "V": {"Q4": "111000", "Q5": "000111"},
        "W": {"Q4": "111000", "Q5": "000111"},
    }
    stats = statistics({"V": 6, "W": 6}, wants, {"V.vID": 1, "W.vID": 1})
    return {"Q4": two_way("Q4"), "Q5": two_way("Q5")}, stats


def test_figure_6_shared_36_against_18():
    queries, stats = figure_6()
    model, singles = search_space(queries, stats, PAIRS)
    q4, q5 = singles["Q4"], singles["Q5"]
    join = best_tree(model, q4)
    shared = model.cost([(together([q4, q5]), join)])
    separate = model.cost([(q4, join)]) + model.cost([(q5, join)])
    assert shared == 6 * 6 == 36
    assert separate == 3 * 3 + 3 * 3 == 18


def test_figure_6_ends_in_two_groups():
    queries, stats = figure_6()
    model, singles = search_space(queries, stats, PAIRS)
    assert [c.uids for c in group_shape(model, list(singles.values()))] == [("Q4",), ("Q5",)]


def test_equation_1_union_by_inclusion_and_exclusion():
    rng = random.Random(4)
    a, b, c = (rng.getrandbits(300) for _ in range(3))
    n = int.bit_count
    by_hand = n(a) + n(b) + n(c) - n(a & b) - n(b & c) - n(a & c) + n(a & b & c)
    assert by_hand == n(a | b | c)


def test_equation_2_two_way():
    """Half of V and all of W; every key has 10 tuples, so 5 of 10 tuples keep nearly every key."""
    stats = statistics({"V": 100, "W": 200}, {"V": {"q": "10"}, "W": {"q": "11"}}, {"V.vID": 10, "W.vID": 20})
    model, singles = search_space({"q": two_way("q")}, stats, EQUATION_2)
    keys = 10 * (1 - 0.5**10)
    combinations_ = 50 * 200 / 20
    assert model.cost([(singles["q"], best_tree(model, singles["q"]))]) == pytest.approx(
        50 + 200 + keys + combinations_
    )


def test_an_exchange_is_paid_only_when_the_key_changes():
    same = running("s", join_query("W", "C", "R", on=["W.usrID = C.usrID", "C.usrID = R.usrID"]))
    other = running("o", join_query("V", "W", "C", on=["V.vID = W.vID", "W.usrID = C.usrID"]))
    model, singles = search_space({"s": same, "o": other}, statistics({}))
    assert not Shared(model, [(singles["s"], best_tree(model, singles["s"]))]).exchanges
    assert len(Shared(model, [(singles["o"], best_tree(model, singles["o"]))]).exchanges) == 1


def test_a_composite_key_keeps_its_partitioning_only_as_a_whole():
    """(V ⋈ W on vID and geo) ⋈ C on one of the two columns is an exchange."""
    on = ["V.vID = W.vID", "V.length = W.duration", "W.vID = C.usrID"]
    model, singles = search_space({"q": running("q", join_query("V", "W", "C", on=on))}, statistics({}))
    trees = {model.shapes.text(t): t for t in all_trees(model, singles["q"].shape)}
    assert len(model.shapes.joins[trees["(C ⋈ (V ⋈ W))"]].exchanges) == 1


def test_group_pays_an_index_once_over_the_union():
    wants = {"V": {"a": "1100", "b": "0110"}, "W": {"a": "1111", "b": "1111"}}
    stats = statistics({"V": 400, "W": 400}, wants)
    index_only = Weights(index=1, intersection=0, materialization=0, exchange=0, fixed=0)
    model, singles = search_space({"a": two_way("a"), "b": two_way("b")}, stats, index_only)
    join = best_tree(model, singles["a"])
    assert model.cost([(together(list(singles.values())), join)]) == pytest.approx(300 + 400)


@pytest.mark.parametrize("seed", range(12))
def test_array_formula_equals_the_sum_over_parts(seed):
    rng = random.Random(seed)
    world = small_world(rng)
    model, singles = search_space(world.queries, world.statistics(rng))
    for single in singles.values():
        card = model.cardinalities
        fractions = {
            leaf: card.fraction(leaf, bits) for leaf, bits in zip(single.shape.leaves, single.bits, strict=True)
        }
        for tree in all_trees(model, single.shape):
            exact = model.cost([(single, tree)])
            assert model.tree_cost(Sink(tree, single.shape.fold), fractions, single.seconds) == pytest.approx(exact)
            arrays = {leaf: np.array([f, f]) for leaf, f in fractions.items()}
            many = model.tree_cost(Sink(tree, single.shape.fold), arrays, np.array([single.seconds] * 2))
            assert list(many) == pytest.approx([exact, exact])


@pytest.mark.parametrize("seed", range(12))
def test_absorption_is_the_difference_of_costs_but_for_surviving_keys(seed):
    rng = random.Random(seed)
    world = small_world(rng)
    no_keys = Weights(intersection=0)
    model, singles = search_space(world.queries, world.statistics(rng), no_keys)
    trees = [(m, best_tree(model, m)) for m in singles.values()]
    for a, b in combinations(trees, 2):
        one, two = Shared(model, [a]), Shared(model, [b])
        apart = one.cost() + two.cost()
        expected = model.cost([a, b]) - apart
        assert one.absorption(two) == pytest.approx(expected, abs=1e-6 * apart)
        one.absorb(two)
        assert one.cost() == pytest.approx(apart + expected)
