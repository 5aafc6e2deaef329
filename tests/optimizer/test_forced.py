"""What a user can force: orders, groups, partitions, splits; and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from optimizer.errors import InternalError, InvalidRequest
from optimizer.model.invariants import validate_plan
from optimizer.model.plan import FULL_RANGE, Partitioning, Plan
from optimizer.model.trees import order_of
from optimizer.search.eager import create_delete
from optimizer.search.forced import force_groups, force_order, one_step, scale_to, split
from tests.builders import q1, q2, q3

QUERIES = {rq.uid: rq for rq in (q1(), q2(), q3())}


@pytest.fixture
def plan() -> Plan:
    return create_delete(Plan(), [q1(), q2(), q3()], ())


def test_a_forced_order_keeps_group_and_bit(plan: Plan) -> None:
    forced = force_order(plan, q2(), ["V", ["W", "C"]])
    assert order_of(q2(), forced.by_uid["q2"].root) == ("V", ("W", "C"))
    assert replace(forced.by_uid["q2"], root=plan.by_uid["q2"].root) == plan.by_uid["q2"]
    assert forced.version == plan.version + 1
    validate_plan(forced, QUERIES)
    assert force_order(forced, q2(), [["C", "W"], "V"]) is forced, "nothing to change, no new version"


def test_a_wrong_order_changes_nothing(plan: Plan) -> None:
    with pytest.raises(InvalidRequest, match="no equality connects V and C"):
        force_order(plan, q2(), ["V", "C", "W"])


def test_queries_move_with_their_trees_into_free_slots(plan: Plan) -> None:
    moved = force_groups(plan, QUERIES, {"q1": 1, "q3": 1})
    assert [(p.uid, p.group, p.slot) for p in moved.placements] == [("q1", 1, 0), ("q2", 0, 1), ("q3", 1, 1)]
    validate_plan(moved, QUERIES)
    assert all(len(users) == 1 for users in moved.nodes.values()), "across groups nothing is shared"
    back = force_groups(moved, QUERIES, {"q1": 0, "q3": 0})
    assert [(p.uid, p.group, p.slot) for p in back.placements] == [("q1", 0, 0), ("q2", 0, 1), ("q3", 0, 2)]


def test_two_queries_can_change_places(plan: Plan) -> None:
    apart = force_groups(plan, QUERIES, {"q1": 0, "q2": 1, "q3": 2})
    swapped = force_groups(apart, QUERIES, {"q1": 1, "q2": 0})
    assert [(p.uid, p.group) for p in swapped.placements] == [("q1", 1), ("q2", 0), ("q3", 2)]
    validate_plan(swapped, QUERIES)


def test_who_is_already_there_stays(plan: Plan) -> None:
    assert force_groups(plan, QUERIES, {"q1": 0, "q2": 0}) is plan
    assert force_groups(plan, QUERIES, {}) is plan


@pytest.mark.parametrize("group", [-1, 4096, "0", None, True, 1.0])
def test_a_group_is_a_small_whole_number(plan: Plan, group: object) -> None:
    with pytest.raises(InvalidRequest, match="query 'q1' cannot move to group") as caught:
        force_groups(plan, QUERIES, {"q1": group})  # type: ignore[dict-item]
    assert caught.value.reason == "INVALID_GROUP"


def test_a_query_that_does_not_run_cannot_be_forced(plan: Plan) -> None:
    with pytest.raises(InternalError, match="does not run q9"):
        force_groups(plan, QUERIES, {"q9": 0})
    with pytest.raises(InternalError, match="does not run q9"):
        force_order(plan, q2("q9"), ["V", "W", "C"])


def test_scaling_out_and_in(plan: Plan) -> None:
    four = split(split(scale_to(plan, 4), 3, 2), 0, 5)
    assert four.partitioning.bounds == tuple(FULL_RANGE * i // 4 for i in range(5))
    assert four.partitioning.splits == ((0, 5), (3, 2))
    assert scale_to(four, 2).partitioning.splits == ((0, 5),), "partition 3 is gone, and its split with it"
    assert scale_to(four, 4) is four
    validate_plan(scale_to(four, 1024))


def test_one_way_is_not_split(plan: Plan) -> None:
    assert split(plan, 0, 1) is plan
    assert split(split(plan, 0, 3), 0, 1).partitioning == plan.partitioning


@pytest.mark.parametrize("n", [0, -1, 1025, "4", 2.0, None, True])
def test_a_wrong_number_of_partitions(plan: Plan, n: object) -> None:
    with pytest.raises(InvalidRequest, match="cannot scale to") as caught:
        scale_to(plan, n)  # type: ignore[arg-type]
    assert caught.value.reason == "INVALID_PARTITIONS"
    assert "1 to 1024" in caught.value.hint


@pytest.mark.parametrize(
    ("partition", "ways", "says"),
    [
        (2, 2, "no partition 2"),
        (-1, 2, "no partition -1"),
        ("0", 2, "no partition '0'"),
        (0, 0, "0 ways"),
        (1, 65, "65"),
    ],
)
def test_a_wrong_split(plan: Plan, partition: object, ways: int, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says) as caught:
        split(scale_to(plan, 2), partition, ways)  # type: ignore[arg-type]
    assert caught.value.reason == "INVALID_SPLIT"


def test_a_batch_of_steps_is_one_version(plan: Plan) -> None:
    there = split(scale_to(force_groups(plan, QUERIES, {"q3": 1}), 2), 0, 2)
    assert there.version == plan.version + 3
    assert one_step(plan, there) == replace(there, version=plan.version + 1)
    there_and_back = force_groups(force_groups(plan, QUERIES, {"q3": 1}), QUERIES, {"q3": 0})
    assert one_step(plan, there_and_back) is plan


# -- the invariants themselves ---------------------------------------------------------------------


def broken_plans(plan: Plan) -> list[tuple[Plan, str]]:
    one, two, three = plan.placements
    foreign = create_delete(Plan(), [q3()], ()).placements[0].root
    turned = replace(one.root, left=one.root.right, right=one.root.left)
    return [
        (replace(plan, placements=(one, replace(two, slot=0), three)), "share slot 0 of group 0"),
        (replace(plan, placements=(two, one, three)), "not sorted by uid"),
        (replace(plan, placements=(one, one, three)), "not sorted by uid"),
        (replace(plan, placements=(replace(one, group=4), two, three)), "of group 4 uses"),
        (replace(plan, placements=(one, two, replace(three, slot=-1))), "slot -1"),
        (replace(plan, placements=(one, replace(two, root=foreign), three)), "exactly the sources of 'q2'"),
        (
            replace(plan, placements=(replace(one, root=replace(one.root, keys=())), two, three)),
            "cross product",
        ),
        (replace(plan, placements=(replace(one, root=turned), two, three)), "not between its inputs"),
        (replace(plan, placements=(one, two)), "q3 should run"),
        (replace(plan, partitioning=Partitioning((0, 5))), "cover the hash range"),
        (replace(plan, partitioning=Partitioning((0, 5, 5, FULL_RANGE))), "empty or backward"),
        (replace(plan, partitioning=Partitioning(splits=((1, 2),))), "illegal splits"),
        (replace(plan, partitioning=Partitioning(splits=((0, 1),))), "illegal splits"),
    ]


def test_every_broken_rule_is_named(plan: Plan) -> None:
    validate_plan(plan, QUERIES)
    for broken, says in broken_plans(plan):
        with pytest.raises(InternalError, match=says):
            validate_plan(broken, QUERIES)
