"""Join orders: dynamic programming against all trees, the group's orders against all combinations, odd join graphs."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings

from experiments.optimizer_workloads import small_world
from optimizer.cost.model import Shared
from optimizer.search.clusters import members_of
from optimizer.search.dynamic import best_tree
from optimizer.search.ordering import iterate, order
from optimizer.statistics.model import StatisticsModel
from tests.builders import join_query, running, running_queries
from tests.optimizer.exhaustive import all_trees
from tests.optimizer.models import search_space, statistics

VW, WC, CR = "V.vID = W.vID", "W.usrID = C.usrID", "C.usrID = R.usrID"


@pytest.mark.parametrize("seed", range(20))
def test_dynamic_programming_finds_the_best_tree_of_one_query(seed):
    rng = random.Random(seed)
    world = small_world(rng, max_streams=5)
    model, singles = search_space(world.queries, world.statistics(rng))
    for single in singles.values():
        best = min(model.cost([(single, t)]) for t in all_trees(model, single.shape))
        assert model.cost([(single, best_tree(model, single))]) == pytest.approx(best)


def test_what_others_have_is_free():
    """Alone, Q would start with C ⋈ R; next to a query that runs V ⋈ W it uses that join."""
    queries = {
        "p": running("p", join_query("V", "W", on=[VW])),
        "q": running("q", join_query("V", "W", "C", on=[VW, WC])),
    }
    stats = statistics({"V": 3000, "W": 1000, "C": 900}, keys={"W.usrID": 900, "C.usrID": 900, "V.vID": 900})
    model, singles = search_space(queries, stats)
    p, q = singles["p"], singles["q"]
    assert model.shapes.text(best_tree(model, q)) == "((C ⋈ W) ⋈ V)"
    group = Shared(model, [(p, best_tree(model, p))])
    assert model.shapes.text(best_tree(model, q, group)) == "(C ⋈ (V ⋈ W))"


def test_the_partitioning_attribute_is_kept_when_the_rest_is_equal():
    """W, C, R join on usrID, V on vID: all usrID joins first, one exchange at the end (or V and W first)."""
    query = running("q", join_query("V", "W", "C", "R", on=[VW, WC, CR]))
    model, singles = search_space({"q": query}, StatisticsModel())
    tree = best_tree(model, singles["q"])
    exchanges = [e for n in model.shapes.joins[tree].subtree for e in model.shapes.joins[n].exchanges]
    assert len(exchanges) == 1


def test_bushy_when_that_is_cheaper():
    """Both ends are selective pairs: join the pairs first, then their few results."""
    on = ["V.vID = W.vID", "W.usrID = C.usrID", "C.length = R.usrID"]
    query = running("q", join_query("V", "W", "C", "R", on=on))
    keys = {"V.vID": 9000, "W.vID": 9000, "W.usrID": 3, "C.usrID": 3, "C.length": 9000, "R.usrID": 9000}
    model, singles = search_space({"q": query}, statistics(dict.fromkeys("VWCR", 1000), keys=keys))
    assert model.shapes.text(best_tree(model, singles["q"])) == "((C ⋈ R) ⋈ (V ⋈ W))"


def test_cycle_self_join_and_composite_key():
    queries = {
        "cycle": running("cycle", join_query("W", "C", "R", on=[WC, CR, "W.usrID = R.usrID"])),
        "self": running("self", join_query("W a", "W b", "V", on=["a.usrID = b.usrID", "b.vID = V.vID"])),
        "composite": running("composite", join_query("V", "W", on=[VW, "V.length = W.duration"])),
    }
    model, singles = search_space(queries, StatisticsModel())
    trees, cost = order(model, members_of(singles, queries))
    assert cost == pytest.approx(model.cost(trees)) and len(trees) == 3
    last = model.shapes.joins[best_tree(model, singles["cycle"])]
    assert len(last.parts) == 2  # the last join of a cycle has a composite key
    # the third side of the triangle follows from the other two and makes nothing rarer
    triangle, path = singles["cycle"].shape.edges, singles["cycle"].shape.edges[:2]
    card = model.cardinalities
    assert card.selectivity(frozenset(triangle)) == pytest.approx(card.selectivity(frozenset(path)))


@given(running_queries(max_queries=6, max_sources=5))
@settings(max_examples=40, deadline=None)
def test_every_start_gives_every_query_a_whole_tree(queries):
    model, singles = search_space({q.uid: q for q in queries}, StatisticsModel())
    members = members_of(singles, singles)
    for member, root in zip(members, iterate(model, members), strict=True):
        join = model.shapes.joins[root]
        assert join.leaves == member.shape.leaves
        assert join.edges == frozenset(member.shape.edges)
    trees, cost = order(model, members)
    assert cost <= model.cost(list(zip(members, iterate(model, members), strict=True))) * (1 + 1e-9)
    assert [m for m, _ in trees] == members
