"""The price of a join stage: once an epoch, for stages that nobody needs in any order; orders that save them win."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations

import pytest

from experiments.optimizer_workloads import small_world
from optimizer.cost.model import CostModel, Shared, Sink, Weights
from optimizer.model.plan import Leaf, Plan
from optimizer.optimize import CostBasedOptimizer, OptimizerConfig
from optimizer.search.dynamic import best_tree, unavoidable_stages
from optimizer.search.forced import force_order
from optimizer.statistics.model import EpochObservation, StatisticsModel
from tests.builders import join_query, running
from tests.optimizer.exhaustive import all_trees
from tests.optimizer.models import Accepting, report, search_space

VW, WC, CR = "V.vID = W.vID", "W.usrID = C.usrID", "C.usrID = R.usrID"
PRICED = Weights(stage=500.0)


def world(seed, weights=PRICED, **how):
    rng = random.Random(seed)
    made = small_world(rng, **how)
    model, singles = search_space(made.queries, made.statistics(rng), weights)
    needed = unavoidable_stages(model.shapes, (m.shape for m in singles.values()))
    return CostModel(model.cardinalities, weights, needed), singles


@pytest.mark.parametrize("seed", range(12))
def test_dynamic_programming_finds_the_best_tree_when_stages_have_a_price(seed):
    model, singles = world(seed, max_streams=5)
    for single in singles.values():
        trees = all_trees(model, single.shape)
        best = min(model.cost([(single, t)]) for t in trees)
        assert model.cost([(single, best_tree(model, single))]) == pytest.approx(best)
        least = unavoidable_stages(model.shapes, [single.shape])
        assert least == min(model.shapes.stages(t) for t in trees)
        for tree in trees:
            wanted = zip(single.shape.leaves, model.fractions(tree, single.bits), strict=True)
            price = model.tree_cost(Sink(tree, single.shape.fold), dict(wanted), single.seconds)
            assert price == pytest.approx(model.cost([(single, tree)]))


@pytest.mark.parametrize("seed", range(8))
def test_a_group_pays_for_its_deepest_tree_once(seed):
    priced, singles = world(seed)
    free = CostModel(priced.cardinalities, replace(PRICED, stage=0.0))
    trees = [(m, t) for m in singles.values() for t in all_trees(priced, m.shape)[:3]]
    for a, b in combinations(trees, 2):
        deep = max(priced.shapes.stages(root) for _, root in (a, b))
        alone = [priced.depth(priced.shapes.stages(root)) for _, root in (a, b)]
        assert priced.cost([a, b]) - free.cost([a, b]) == pytest.approx(priced.depth(deep), abs=1e-6)
        change = Shared(priced, [a]).absorption(Shared(priced, [b])) - Shared(free, [a]).absorption(Shared(free, [b]))
        assert change == pytest.approx(priced.depth(deep) - sum(alone), abs=1e-6)


def four(uid="q"):
    """V is joined by video, the rest by user: two stages, if everything by user comes first or V and W do."""
    return running(uid, join_query("V", "W", "C", "R", on=[VW, WC, CR]))


def beside_three_ways(period, weights=PRICED, *more):
    """The order of the four-way query in a group that has (W ⋈ C) ⋈ V anyway."""
    three = running("p", join_query("V", "W", "C", on=[VW, WC]))
    stats = StatisticsModel()
    stats.observe(replace(report(dict.fromkeys("VWCR", 1000)), period=period))
    model, singles = search_space({rq.uid: rq for rq in (three, four(), *more)}, stats, weights)
    needed = unavoidable_stages(model.shapes, (m.shape for m in singles.values()))
    model = CostModel(model.cardinalities, weights, needed)
    shape = singles["p"].shape
    v, w, c = (model.shapes.leaf_id(Leaf(stream)) for stream in "VWC")
    p = model.shapes.join(shape, model.shapes.join(shape, w, c), v)
    tree = best_tree(model, singles["q"], Shared(model, [(singles["p"], p)]))
    return model.shapes.text(tree), model.shapes.stages(tree)


SHARED, SHORT = ("(((C ⋈ W) ⋈ V) ⋈ R)", 3), ("(((C ⋈ W) ⋈ R) ⋈ V)", 2)


def test_an_order_that_saves_a_stage_wins_when_that_pays():
    assert beside_three_ways(1.0, Weights()) == SHARED, "with all the joins that others have"
    assert beside_three_ways(1.0) == SHORT
    assert beside_three_ways(60.0) == SHARED, "with an epoch a minute a stage is cheap"


def test_a_stage_that_somebody_needs_anyway_is_free():
    """Four keys in a row: no order of this one takes less than three stages."""
    on = ["V.vID = W.vID", "W.usrID = C.usrID", "C.length = R.usrID", "R.reaction = X.lang"]
    deep = running("d", join_query("V", "W", "C", "R", "V X", on=on))
    model, singles = search_space({"d": deep}, StatisticsModel())
    assert unavoidable_stages(model.shapes, [singles["d"].shape]) == 3
    assert beside_three_ways(1.0, PRICED, deep) == SHARED


def test_the_optimizer_leaves_an_order_that_takes_a_stage_too_many():
    q = four()
    quick = Accepting(OptimizerConfig(weights=PRICED))
    plan = quick.create_delete(Plan(), [q], ())
    stats = StatisticsModel()
    stats.observe(report(dict.fromkeys("VWCR", 1000)))
    long = force_order(plan, q, [[["W", "C"], "V"], "R"])
    found = CostBasedOptimizer(OptimizerConfig(weights=PRICED)).optimize(
        long, {"q": q}, stats, quick.memory, force=True
    )
    assert found.applied and found.gain >= PRICED.stage * 0.99
    estimate = CostBasedOptimizer(OptimizerConfig(weights=PRICED)).estimate
    assert estimate(long, {"q": q}, stats).cost == pytest.approx(found.cost_before)
    assert estimate(found.plan, {"q": q}, stats).cost == pytest.approx(found.cost_after)


def test_epochs_a_second_are_learned():
    stats = StatisticsModel()
    assert stats.epochs_a_second == 1.0
    for at in range(1, 40):
        stats.observe(EpochObservation(float(at), period=0.25))
    assert stats.epochs_a_second == pytest.approx(4.0)
    assert StatisticsModel.from_json(stats.to_json()).epochs_a_second == pytest.approx(4.0)
