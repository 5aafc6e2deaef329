"""What queries that fold cost, and that they end up where their fold is."""

from __future__ import annotations

import math
from random import Random

import pytest

from optimizer.cost.model import Weights
from optimizer.model.changelog import apply, diff
from optimizer.model.folds import fold_key, folds_lists, rows_a_second
from optimizer.model.invariants import validate_plan
from optimizer.model.plan import Plan
from optimizer.model.windows import CountWindow, FixedWindow, PeriodicWindow, SessionWindow, Unwindowed
from optimizer.policy.scaling import Load, Machines
from optimizer.search.eager import create_delete
from optimizer.search.forced import force_groups, scale_to
from optimizer.statistics.model import EpochObservation, FoldObservation
from runtime.execution.compile import compile_plan
from tests.builders import PAPER, join_query, q1, q2, running
from tests.folds import Folding, calc, count, is_
from tests.optimizer.models import Accepting, statistics

W = Folding("W")
JOINED = Folding("V", "W")
LENGTH, DURATION = JOINED.column("V.length"), JOINED.column("W.duration")
ACROSS = is_(LENGTH, "<", DURATION)


def by(column, id, window=1000, **more):
    return running(id, W.query(window=window, group=[column] if column else [], select={"n": count()}, **more))


def test_a_query_is_placed_where_its_fold_runs():
    """Group 0 scans W for joins, group 3 folds it by vID, group 5 by geo."""
    queries = {rq.uid: rq for rq in (q1(), q2(), by("W.vID", "v"), by("W.geo", "g"))}
    plan = create_delete(Plan(), list(queries.values()), ())
    plan = force_groups(plan, queries, {"v": 3, "g": 5})
    new = [by("W.geo", "g2", 7000), by("W.vID", "v2"), by("W.usrID", "u"), by("W.geo", "s", SessionWindow(9))]
    after = create_delete(plan, new, (), (), queries)
    assert [after.by_uid[rq.uid].group for rq in new] == [5, 3, 0, 0]
    apart = create_delete(plan, [by("W.geo", "g2")], (), ["g"], queries)
    assert apart.by_uid["g2"].group == 0, "beside a heavy query nobody begins"


def test_a_fold_is_paid_once_and_closing_by_everybody():
    """Three want the same half of W by geo, in 50 groups; windows of one second, so 50 rows of one entry each."""
    queries = {rq.uid: rq for rq in (by("W.geo", f"g{i}") for i in range(3))}
    stats = statistics({"W": 400}, {"W": dict.fromkeys(queries, "10")})
    stats.observe(
        EpochObservation(2.0, folds={("g0-W", fold_key(queries["g0"]).name): FoldObservation(9, 9, 50, 9, 1)})
    )
    optimizer, w = Accepting(), Weights()
    plan = create_delete(Plan(), list(queries.values()), ())
    estimate = optimizer.estimate(plan, queries, stats)
    once, each = 200 * w.fold + w.fixed, 50 * w.materialization + 50 * w.close
    assert estimate.cost == pytest.approx(once + 3 * each)
    assert estimate.alone == {uid: pytest.approx(once + each) for uid in queries}
    assert estimate.shared == {uid: pytest.approx(once / 3 + each) for uid in queries}


def test_a_fold_costs_by_the_tuples_of_its_own_queries():
    """g wants a half of W, v the other half: two folds in one group look at 200 tuples each, not at 400."""
    queries = {rq.uid: rq for rq in (by("W.geo", "g"), by("W.vID", "v"))}
    stats = statistics({"W": 400}, {"W": {"g": "10", "v": "01"}})
    optimizer, w = Accepting(), Weights()
    plan = create_delete(Plan(), list(queries.values()), ())
    assert len(plan.groups) == 1
    together = optimizer.estimate(plan, queries, stats)
    assert together.cost == pytest.approx(2 * (200 * w.fold + w.fixed + 100 * (w.materialization + w.close)))
    apart = optimizer.estimate(force_groups(plan, queries, {"v": 1}), queries, stats)
    assert apart.cost == pytest.approx(together.cost), "nothing is gained by a group of its own"
    also = by("W.geo", "also")
    stats = statistics({"W": 400}, {"W": {"g": "10", "v": "01", "also": "01"}})
    both = {"g": queries["g"], "also": also}
    plan = create_delete(Plan(), list(both.values()), ())
    closing = 2 * 100 * (w.materialization + w.close)
    assert optimizer.estimate(plan, both, stats).cost == pytest.approx(400 * w.fold + w.fixed + closing), "a union"


def joined(id, *, select, group=("W.geo",), **more):
    return running(id, JOINED.query(on=["V.vID = W.vID"], group=list(group), select=select, window=1000, **more))


@pytest.mark.parametrize(
    ("keys", "items"),
    [
        (1, 200),  # 10,000 combinations a second of two lists of 100
        (100, 200 * (1 - math.exp(-1))),  # 100 combinations: of either side 63 of 100 tuples have a partner
    ],
)
def test_a_fold_over_a_join_costs_by_lists_or_by_rows_whichever_is_less(keys, items):
    lists, rows = joined("lists", select={"n": count()}), joined("rows", select={"n": count()}, residual=[ACROSS])
    optimizer, w = Accepting(), Weights()
    price = {}
    for rq in (lists, rows):
        wants = {"V": {rq.uid: "1"}, "W": {rq.uid: "1"}}
        known = statistics({"V": 100, "W": 100}, wants, {"V.vID": keys, "W.vID": keys})
        plan = create_delete(Plan(), [rq], ())
        price[rq.uid] = optimizer.estimate(plan, {rq.uid: rq}, known).cost
    combinations = 100 * 100 / keys
    made = min(combinations * w.materialization, items * w.fold)
    assert price["lists"] == pytest.approx(price["rows"] - combinations * w.materialization + made + w.fixed)


def test_equal_folds_over_a_join_are_paid_once_and_others_for_themselves():
    """The join is shared whatever is made of it."""
    same = [joined(f"q{i}", select={"n": count()}) for i in range(2)]
    other = joined("other", select={"n": count()}, group=["V.lang"])
    keys = {"V.vID": 1, "W.vID": 1}
    optimizer, w = Accepting(), Weights()

    def cost(*queries):
        all_of_it = dict.fromkeys((rq.uid for rq in queries), "1")
        known = statistics({"V": 100, "W": 100}, {"V": all_of_it, "W": all_of_it}, keys)
        plan = create_delete(Plan(), queries, ())
        assert len(plan.groups) == 1
        return optimizer.estimate(plan, {rq.uid: rq for rq in queries}, known).cost

    fold, closing = 200 * w.fold + w.fixed, 100 * (w.materialization + w.close)
    assert cost(*same) == pytest.approx(cost(same[0]) + closing)
    assert cost(same[0], other) == pytest.approx(cost(same[0]) + fold + closing)


@pytest.mark.parametrize(
    ("select", "more", "expected"),
    [
        ({"n": count(), "m": JOINED.agg("MAX", "V.length"), "d": JOINED.agg("MEDIAN", "W.duration")}, {}, True),
        ({"n": count()}, {"group": []}, True),
        ({"s": JOINED.agg("SUM", calc(LENGTH, "+", DURATION))}, {}, False),
        ({"s": JOINED.agg("SUM", "V.length", where=("W.duration", "<", 3))}, {}, False),
        ({"s": JOINED.agg("SUM", "V.length", where=("V.length", "<", 3))}, {}, True),
        ({"n": count()}, {"residual": [ACROSS]}, False),
    ],
)
def test_the_optimizer_and_the_tasks_agree_who_is_folded_from_lists(select, more, expected):
    rq = joined("q", select=select, **more)
    plan = create_delete(Plan(), [rq], ())
    (join,) = compile_plan(plan, {rq.uid: rq}, PAPER).joins
    assert folds_lists(rq.query) == expected == (not join.sinks[0].needs_rows)


@pytest.mark.parametrize("mode", ["full", "incremental"])
def test_equal_folds_come_together_and_stay(mode):
    queries = {rq.uid: rq for rq in (q1(), *(by("W.geo", f"g{i}") for i in range(4)), by("W.vID", "v"))}
    wants = dict.fromkeys(queries, "1100") | {"v": "0011", "q1": "1111"}
    stats = statistics({"V": 300, "W": 300}, {"V": {"q1": "1111"}, "W": wants})
    optimizer = Accepting()
    plan = optimizer.create_delete(Plan(), list(queries.values()), ())
    plan = force_groups(plan, queries, {f"g{i}": i + 1 for i in range(4)})
    proposal = optimizer.optimize(plan, queries, stats, mode, force=True)
    validate_plan(proposal.plan, queries)
    together = {proposal.plan.by_uid[f"g{i}"].group for i in range(4)}
    assert len(together) == 1, "one fold"
    again = optimizer.optimize(proposal.plan, queries, stats, mode, force=True)
    assert again.plan is proposal.plan


@pytest.mark.parametrize("seed", range(25))
def test_any_mixture_is_grouped_priced_moved_and_scaled(seed):
    """Joins, folds of joins and of streams, and queries that deliver tuples, through every entry of the optimizer."""
    random = Random(seed)
    optimizer = Accepting()
    queries, plan = {}, Plan()
    stats = statistics({"V": 100, "W": 900, "C": 300})
    for step in range(6):
        made = [_any(random, f"q{step}_{i}") for i in range(random.randint(0, 4))]
        gone = random.sample(sorted(queries), min(len(queries), random.randint(0, 2)))
        before = plan
        plan = optimizer.create_delete(plan, made, gone)
        queries = {uid: rq for uid, rq in queries.items() if uid not in gone} | {rq.uid: rq for rq in made}
        validate_plan(plan, queries)
        assert apply(before, diff(before, plan)) == plan
        if not queries:
            continue
        behind = {random.choice(sorted(queries)): 4} if step == 3 else {}
        proposal = optimizer.optimize(plan, queries, stats, random.choice(["full", "incremental"]), True, behind)
        plan = proposal.plan
        validate_plan(plan, queries)
        assert step >= 3 or proposal.cost_after <= proposal.cost_before, "only who is behind may make it dearer"
        estimate = optimizer.estimate(plan, queries, stats)
        assert estimate.cost == pytest.approx(proposal.cost_after) == pytest.approx(sum(estimate.shared.values()))
        assert all(price > 0 for price in (*estimate.alone.values(), *estimate.shared.values()))
        if random.random() < 0.5:
            plan = force_groups(plan, queries, {uid: random.randint(0, 3) for uid in random.sample(sorted(queries), 1)})
        plan = optimizer.rescale(scale_to(plan, random.randint(1, 3)), Load({0: 0.95}, Machines(4))).plan
        validate_plan(plan, queries)


def _any(random, id):
    kind = random.randrange(4)
    if kind == 0:
        return random.choice([q1, q2])(id)
    if kind == 1:
        return running(id, join_query("W", on=[], where=[("W.duration", "<", random.randint(1, 20))]))
    window = random.choice([1000, (60_000, 1000), SessionWindow(500)])
    if kind == 2:
        return by(random.choice(["W.geo", "W.vID", ""]), id, window, where=[("W.duration", ">", random.randint(1, 9))])
    joined = Folding("V", "W").query(on=["V.vID = W.vID"], group=["W.geo"], select={"n": count()}, window=1000)
    return running(id, joined)


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (PeriodicWindow(1000, 1000), 20),
        (PeriodicWindow(60_000, 1000), 20),
        (PeriodicWindow(60_000, 10), 2000),
        (PeriodicWindow(10, 10), 300),
        (CountWindow(10, 3), 100),
        (SessionWindow(1000), 10),
        (FixedWindow(0, 2000), 10),
        (Unwindowed(), 20),
    ],
)
def test_rows_a_second_of_windows_that_close(window, expected):
    """20 groups, 300 tuples a second."""
    assert rows_a_second(window, 20, 300) == pytest.approx(expected)
