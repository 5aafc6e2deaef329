"""The worked example of Figure 7: six queries, their groups, both iterations of join reordering, the final plan.

    Q1 = V ⋈ W          Q2 = V ⋈ W ⋈ C      Q3 = W ⋈ C ⋈ R         (Figure 1)
    Q4 = V ⋈ W          Q5 = V ⋈ W          Q6 = V ⋈ W ⋈ C         (Figure 7a)

The paper keeps groups per join: V⋈W.G1 = {Q1, Q2}, V⋈W.G2 = {Q4, Q6}, V⋈W.G3 = {Q5}. Here a query is in one group
with all its joins; Q3, which has no V⋈W, is with Q1 and Q2, because it shares W and C with Q2. The rest of the figure
follows.
"""

from __future__ import annotations

import pytest

from optimizer.model.plan import Plan
from optimizer.search.clusters import members_of
from optimizer.search.full import optimize_fully
from optimizer.search.ordering import iterate
from optimizer.search.refine import Alone
from tests.builders import join_query, running
from tests.optimizer.models import Accepting, search_space, statistics

VW, WC, CR = "V.vID = W.vID", "W.usrID = C.usrID", "C.usrID = R.usrID"

QUERIES = {
    "Q1": running("Q1", join_query("V", "W", on=[VW])),
    "Q2": running("Q2", join_query("V", "W", "C", on=[VW, WC])),
    "Q3": running("Q3", join_query("W", "C", "R", on=[WC, CR])),
    "Q4": running("Q4", join_query("V", "W", on=[VW])),
    "Q5": running("Q5", join_query("V", "W", on=[VW])),
    "Q6": running("Q6", join_query("V", "W", "C", on=[VW, WC])),
}

# Which of eight sampled tuples each query takes: Q1, Q2, Q3 want much the same, so do Q4 and Q6; Q5 wants its own.
WANTS = {
    "V": {"Q1": "11000000", "Q2": "11000000", "Q4": "00111000", "Q5": "00000110", "Q6": "00011000"},
    "W": {
        "Q1": "11000000",
        "Q2": "11000000",
        "Q3": "11000000",
        "Q4": "00111000",
        "Q5": "00000110",
        "Q6": "00011000",
    },
    "C": {"Q2": "11000000", "Q3": "11000000", "Q6": "00011000"},
    "R": {"Q3": "11111111"},
}
RATES = {"V": 800, "W": 800, "C": 1600, "R": 3200}
KEYS = {"V.vID": 400, "W.vID": 400, "W.usrID": 400, "C.usrID": 400, "R.usrID": 400}


@pytest.fixture
def space():
    return search_space(QUERIES, statistics(RATES, WANTS, KEYS))


def test_figure_7a_query_groups(space):
    model, singles = space
    groups = optimize_fully(model, singles, Alone(model, singles))
    assert [c.uids for c in groups] == [("Q1", "Q2", "Q3"), ("Q4", "Q6"), ("Q5",)]


def test_figure_7b_first_group(space):
    model, singles = space
    trace = []
    members = members_of(singles, ["Q1", "Q2", "Q3"])
    roots = {m.uids[0]: model.shapes.text(r) for m, r in zip(members, iterate(model, members, trace), strict=True)}

    by_iteration = {n: [c for c in trace if c.iteration == n] for n in (1, 2, 3)}
    # first iteration: V⋈W is cheapest, shared by Q1 and Q2 (T1); W⋈C loses Q2, so Q3 waits
    (t1,) = by_iteration[1]
    assert (t1.join, set(t1.uids)) == ("(V ⋈ W)", {"Q1", "Q2"})
    assert t1.max_shared == pytest.approx(t1.min_shared[0] / 2)  # they want the same tuples: MaxShared is half
    # second iteration: Q3.W⋈C is no longer shared with Q2, and still cheaper than C⋈R; Q2 continues with T1
    second = {c.join: c.uids for c in by_iteration[2]}
    assert second == {"(C ⋈ W)": ("Q3",), "(C ⋈ (V ⋈ W))": ("Q2",)}
    # what is left is the last join of Q3
    assert [(c.join, c.uids) for c in by_iteration[3]] == [("((C ⋈ W) ⋈ R)", ("Q3",))]
    assert roots == {"Q1": "(V ⋈ W)", "Q2": "(C ⋈ (V ⋈ W))", "Q3": "((C ⋈ W) ⋈ R)"}


def test_figure_7b_second_group(space):
    """T2 = V⋈W of Q4 and Q6; Q6.W⋈C cannot be shared with Q3, which is in another group: never a candidate here."""
    model, singles = space
    trace = []
    iterate(model, members_of(singles, ["Q4", "Q6"]), trace)
    assert [(c.iteration, c.join, c.uids) for c in trace] == [
        (1, "(V ⋈ W)", ("Q4", "Q6")),
        (2, "(C ⋈ (V ⋈ W))", ("Q6",)),
    ]


def test_figure_7_final_plan():
    optimizer = Accepting()
    stats = statistics(RATES, WANTS, KEYS)
    plan = optimizer.create_delete(Plan(), list(QUERIES.values()), [])
    plan = optimizer.optimize(plan, QUERIES, stats, "full", force=True).plan
    groups = [tuple(sorted(p.uid for p in members)) for members in plan.groups.values()]
    assert sorted(groups) == [("Q1", "Q2", "Q3"), ("Q4", "Q6"), ("Q5",)]
    t1 = plan.by_uid["Q1"].root
    assert plan.by_uid["Q2"].root.right == t1  # Q2 continues with the very join that is all of Q1
    assert plan.by_uid["Q6"].root.right == plan.by_uid["Q4"].root
    assert str(t1) == str(plan.by_uid["Q5"].root) and t1 != plan.by_uid["Q5"].root
