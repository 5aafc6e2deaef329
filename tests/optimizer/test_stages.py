"""Which joins of a plan run in one stage: those that ask for a key by which their input is partitioned already."""

from __future__ import annotations

import random

import pytest

from experiments.optimizer_workloads import small_world
from optimizer.cost.shapes import Shapes
from optimizer.model.plan import Placement, Plan
from optimizer.model.stages import goes_on_into, stages_of
from optimizer.model.trees import tree_from_order
from tests.builders import join_query, running, stream

SCHEMAS = {
    s.name: s
    for s in (
        stream("A", k="BIGINT", j="INT", s="STRING"),
        stream("B", k="BIGINT", j="INT", s="STRING"),
        stream("C", k="BIGINT", j="INT", s="STRING", d="DOUBLE"),
        stream("D", k="BIGINT", j="INT", s="STRING", d="DOUBLE"),
    )
}


def plan_of(*asked, splits=()):
    """One query per (equalities, order)."""
    placements = []
    for n, (on, order) in enumerate(asked):
        rq = running(f"q{n}", join_query(*sorted({side.split(".")[0].strip() for e in on for side in e.split("=")}),
                                         on=on, schemas=SCHEMAS))  # fmt: skip
        placements.append(Placement(rq.uid, 0, n, tree_from_order(rq, order, 0)))
    plan = Plan(1, tuple(placements))
    for partition, ways in splits:
        plan = Plan(1, plan.placements, plan.partitioning.with_split(partition, ways))
    return plan


def stages(*asked, splits=()):
    return [[str(node) for node in together] for together in stages_of(plan_of(*asked, splits=splits)).joins]


CHAIN = [["A", "B"], "C"]
ALL = [[["A", "B"], "C"], "D"]


@pytest.mark.parametrize(
    "on",
    [
        ["A.k = B.k", "A.k = C.k", "A.k = D.k"],
        ["A.k = B.k", "B.k = C.k", "C.k = D.k"],  # each with the one before: equal all the same
        ["A.k = B.k", "B.k = C.k", "A.k = D.k"],
        ["A.s = B.s", "B.s = C.s", "B.s = D.s"],
    ],
)
def test_a_chain_on_one_key_is_one_stage(on):
    assert stages((on, ALL)) == [["(A ⋈ B)", "((A ⋈ B) ⋈ C)", "(((A ⋈ B) ⋈ C) ⋈ D)"]]


def test_another_key_is_another_stage_and_goes_on_from_there():
    assert stages((["A.k = B.k", "B.j = C.j", "C.j = D.j"], ALL)) == [
        ["(A ⋈ B)"],
        ["((A ⋈ B) ⋈ C)", "(((A ⋈ B) ⋈ C) ⋈ D)"],
    ]


def test_another_type_of_comparison_is_another_key():
    """A number is hashed as what it is compared as."""
    assert len(stages((["A.k = B.k", "B.k = C.k"], CHAIN))) == 1
    assert len(stages((["A.k = B.k", "B.k = C.d"], CHAIN))) == 2
    assert len(stages((["A.k = C.d", "B.k = C.d"], [["A", "C"], "B"]))) == 1


def test_a_composite_key_must_be_the_whole_tuple():
    both = ["A.k = B.k", "A.j = B.j"]
    assert len(stages(([*both, "B.k = C.k", "B.j = C.j"], CHAIN))) == 1
    mixed = ["A.k = C.k", "B.j = C.j"]
    assert len(stages(([*both, *mixed], CHAIN))) == 2, "key parts are hashed in the order of their names"
    assert len(stages(([*both, "B.k = C.k"], CHAIN))) == 2
    crossed = ["A.k = B.j", "A.j = B.k"]
    assert len(stages(([*crossed, "B.k = C.k", "B.j = C.j"], CHAIN))) == 2, "the same columns, hashed in another order"


def test_two_halves_meet_in_one_stage_unless_a_partition_is_split():
    bushy = (["A.k = B.k", "C.k = D.k", "A.k = D.k"], [["A", "B"], ["C", "D"]])
    joins = ["(A ⋈ B)", "(C ⋈ D)"], "((A ⋈ B) ⋈ (C ⋈ D))"
    assert [sorted(s) for s in stages(bushy)] == [sorted([*joins[0], joins[1]])]
    assert [sorted(s) for s in stages(bushy, splits=[(0, 2)])] == [sorted(joins[0]), [joins[1]]]
    chain = (["A.k = B.k", "B.k = C.k"], CHAIN)
    assert len(stages(chain, splits=[(0, 2)])) == 1


def test_one_join_can_go_on_for_one_consumer_and_be_exchanged_for_another():
    plan = plan_of((["A.k = B.k", "B.k = C.k"], CHAIN), (["A.k = B.k", "B.j = D.j"], [["A", "B"], "D"]))
    known = stages_of(plan)
    assert [sorted(map(str, s)) for s in known.joins] == [["((A ⋈ B) ⋈ C)", "(A ⋈ B)"], ["((A ⋈ B) ⋈ D)"]]
    above = {str(n): [str(a) for a in consumers] for n, consumers in goes_on_into(plan.nodes, known).items()}
    assert above == {"(A ⋈ B)": ["((A ⋈ B) ⋈ C)"]}


def test_an_input_of_an_earlier_stage_is_read_even_if_it_keeps_its_partitioning():
    """D ⋈ C is there after the first stage, by j; what it meets is there, by j, only in the second."""
    plan = plan_of((["A.k = B.k", "B.j = C.j", "C.j = D.j"], [["A", "B"], ["C", "D"]]))
    (top,) = (n for n in plan.nodes if len(n.leaves) == 4)
    known = stages_of(plan)
    assert known.number[top] == 2
    assert [known.keeps(top, left=left) for left in (True, False)] == [False, True]
    assert not any(known.goes_on(top, left=left) for left in (True, False))


@pytest.mark.parametrize("seed", range(20))
def test_the_cost_model_has_the_same_rule(seed):
    rng = random.Random(seed)
    shapes = Shapes()
    for rq in small_world(rng, max_queries=6, max_streams=4).queries.values():
        shape = shapes.profile(rq).shape
        if len(shape.leaves) < 3:
            continue
        trees = [(leaf,) for leaf in shape.leaves]
        while len(trees) > 1:
            a, b, number = rng.choice([
                (a, b, n) for a in trees for b in trees if a != b and (n := shapes.join(shape, a[0], b[0])) >= 0
            ])  # fmt: skip
            trees = [t for t in trees if t not in (a, b)] + [(number,)]
        root = trees[0][0]
        known = stages_of(Plan(1, (Placement(rq.uid, 0, 0, shapes.plan_node(root, 0)),)))
        for number in shapes.subtree(root):
            join, node = shapes.joins[number], shapes.plan_node(number, 0)
            for side, left in ((join.left, True), (join.right, False)):
                if side.index < 0:
                    assert known.keeps(node, left=left) == (side.exchange < 0)
            assert known.number[node] == join.stages
