"""Changelogs: what two plans differ in, as values, as sentences and as JSON."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.errors import InternalError
from optimizer.explain.describe import describe
from optimizer.model.changelog import (
    Changelog,
    GroupAdded,
    GroupRemoved,
    PartitionFunctionChanged,
    QueryCreated,
    QueryDeleted,
    QueryMoved,
    Rerooted,
    SplitChanged,
    SubplanAdded,
    SubplanRemoved,
    apply,
    diff,
)
from optimizer.model.codec import changelog_from_json, changelog_to_json, plan_from_json, plan_to_json
from optimizer.model.invariants import validate_plan
from optimizer.model.plan import FULL_RANGE, Partitioning, Plan
from optimizer.model.trees import left_deep, regroup, tree_from_order
from optimizer.search.eager import create_delete
from optimizer.search.forced import force_groups, force_order, scale_to, split
from tests.builders import q1, q2, q3, running_queries

NAMES = {"q1": "q1", "q2": "q2", "q3": "q3"}


@pytest.fixture
def paper() -> Plan:
    return create_delete(Plan(), [q1(), q2()], ())


# -- the entries, one story each -------------------------------------------------------------------


def test_creating_q1_and_then_q2() -> None:
    empty = Plan()
    one = create_delete(empty, [q1()], ())
    two = create_delete(one, [q2()], ())
    v_w = one.by_uid["q1"].root
    v_w_c = two.by_uid["q2"].root

    assert diff(empty, one) == Changelog(0, 1, (QueryCreated("q1", 0, 0, v_w), SubplanAdded(v_w), GroupAdded(0)))
    assert diff(one, two) == Changelog(1, 2, (QueryCreated("q2", 0, 1, v_w_c), SubplanAdded(v_w_c)))
    assert describe(diff(one, two), NAMES, two) == (
        "q2 created: group 0, slot 1, shares (V ⋈ W) with q1",
        "join added: (C ⋈ (V ⋈ W)) in group 0",
    )
    assert describe(diff(one, two), NAMES)[0] == "q2 created: group 0, slot 1, reuses (V ⋈ W)"


def test_scan_sharing_and_nothing_to_share_are_said() -> None:
    one = create_delete(Plan(), [q1()], ())
    two = create_delete(one, [q3()], ())
    assert describe(diff(Plan(), one), NAMES, one)[0] == "q1 created: group 0, slot 0, shares nothing"
    assert describe(diff(one, two), NAMES, two)[0] == ("q3 created: group 0, slot 1, shares the scan of W with q1")


def test_deleting_drops_only_what_nobody_else_uses(paper: Plan) -> None:
    v_w_c = paper.by_uid["q2"].root
    without_q1 = create_delete(paper, [], ["q1"])
    assert diff(paper, without_q1).entries == (QueryDeleted("q1", 0, 0),)
    assert diff(paper, create_delete(paper, [], ["q2"])).entries == (
        QueryDeleted("q2", 0, 1),
        SubplanRemoved(v_w_c),
    )
    everything = diff(without_q1, create_delete(without_q1, [], ["q2"]))
    assert everything.entries[-1] == GroupRemoved(0)
    assert describe(everything, NAMES) == (
        "q2 deleted: slot 1 of group 0 is free",
        "join removed: (C ⋈ (V ⋈ W)) in group 0",
        "join removed: (V ⋈ W) in group 0",
        "group 0 removed",
    )


def test_figure_12a_reordering_q2_when_q1_is_deleted(paper: Plan) -> None:
    alone = create_delete(paper, [], ["q1"])
    reordered = force_order(alone, q2(), ["V", ["W", "C"]])
    old, new = alone.by_uid["q2"].root, reordered.by_uid["q2"].root
    assert diff(alone, reordered).entries == (
        Rerooted("q2", old, new),
        SubplanRemoved(old),
        SubplanRemoved(old.right),
        SubplanAdded(new.left),
        SubplanAdded(new),
    )
    assert describe(diff(alone, reordered), NAMES)[0] == "q2 reordered: (C ⋈ (V ⋈ W)) -> ((C ⋈ W) ⋈ V)"


def test_a_move_takes_the_tree_along(paper: Plan) -> None:
    moved = force_groups(paper, {}, {"q2": 3})
    log = diff(paper, moved)
    root = regroup(paper.by_uid["q2"].root, 3)
    assert log.entries == (
        QueryMoved("q2", 0, 1, 3, 0),
        SubplanRemoved(paper.by_uid["q2"].root),
        SubplanAdded(root.right),
        SubplanAdded(root),
        GroupAdded(3),
    )
    assert describe(log, NAMES, moved)[0] == "q2 moved: group 0, slot 1 -> group 3, slot 0, shares nothing"


def test_moving_and_reordering_at_once_are_two_entries(paper: Plan) -> None:
    there = force_order(force_groups(paper, {}, {"q2": 3}), q2(), ["V", ["W", "C"]])
    first, second = diff(paper, there).entries[:2]
    assert first == QueryMoved("q2", 0, 1, 3, 0)
    assert second == Rerooted(
        "q2", tree_from_order(q2(), ["V", "W", "C"], 3), tree_from_order(q2(), ["V", ["W", "C"]], 3)
    )
    assert apply(paper, diff(paper, there)) == there


def test_scaling(paper: Plan) -> None:
    out = split(scale_to(paper, 2), 1, 3)
    half = FULL_RANGE // 2
    assert diff(paper, out).entries == (
        PartitionFunctionChanged((0, FULL_RANGE), (0, half, FULL_RANGE)),
        SplitChanged(1, 3),
    )
    assert describe(diff(paper, out), NAMES) == ("scaled out: 1 -> 2 partitions", "partition 1 runs 3 ways")
    assert describe(diff(out, paper), NAMES) == (
        "scaled in: 2 -> 1 partitions",
        "partition 1 is no longer split",
    )
    uneven = replace(out, partitioning=replace(out.partitioning, bounds=(0, 7, FULL_RANGE)))
    assert describe(diff(out, uneven), NAMES) == ("the ranges of the 2 partitions changed",)


def test_long_lists_of_names_are_cut() -> None:
    many = create_delete(Plan(), [q1(f"q{i:02}") for i in range(10)], ())
    one_more = create_delete(many, [q1("new")], ())
    assert describe(diff(many, one_more), {}, one_more) == (
        "new created: group 0, slot 10, shares (V ⋈ W) with q00, q01, q02 and 7 more",
    )


# -- a changelog fits one plan only ----------------------------------------------------------------


def test_a_changelog_for_another_plan_is_refused(paper: Plan) -> None:
    log = diff(paper, create_delete(paper, [q3()], ["q1"]))
    later = create_delete(paper, [q3()], ())
    same_version = replace(create_delete(Plan(), [q3()], ()), version=paper.version)
    for wrong in (later, same_version):
        with pytest.raises(InternalError, match="does not fit plan version") as caught:
            apply(wrong, log)
        assert caught.value.reason == "CHANGELOG_MISFIT"


@pytest.mark.parametrize("missing", range(4))
def test_a_changelog_with_an_entry_lost_is_refused(paper: Plan, missing: int) -> None:
    """Deletion, creation, and the two joins that come with it: each is needed."""
    log = diff(paper, create_delete(paper, [q3()], ["q2"]))
    assert [type(e).__name__ for e in log.entries] == [
        "QueryDeleted",
        "QueryCreated",
        "SubplanRemoved",
        "SubplanAdded",
        "SubplanAdded",
    ]
    broken = replace(log, entries=log.entries[:missing] + log.entries[missing + 1 :])
    with pytest.raises(InternalError):
        apply(paper, broken)


# -- for any two plans -----------------------------------------------------------------------------


@st.composite
def plan_pairs(draw: st.DrawFn) -> tuple[Plan, Plan]:
    """Two plans over overlapping queries, with random orders, groups and partitions."""
    queries = draw(running_queries(max_queries=7))

    def plan(version: int) -> Plan:
        chosen = draw(st.lists(st.sampled_from(queries), unique_by=lambda q: q.uid))
        made = create_delete(Plan(), chosen, ())
        made = force_groups(made, {}, {q.uid: draw(st.integers(0, 3)) for q in chosen})
        for rq in chosen:
            if draw(st.booleans()):
                root = left_deep(rq, made.by_uid[rq.uid].group)
                made = replace(
                    made,
                    placements=tuple(replace(p, root=root) if p.uid == rq.uid else p for p in made.placements),
                )
        made = scale_to(made, draw(st.integers(1, 5)))
        for partition in range(made.partitioning.count):
            made = split(made, partition, draw(st.integers(1, 3)))
        validate_plan(made, {q.uid: q for q in chosen})
        return replace(made, version=version)

    return plan(draw(st.integers(0, 9))), plan(draw(st.integers(0, 9)))


@given(plan_pairs())
def test_applying_the_difference_gives_the_new_plan(plans: tuple[Plan, Plan]) -> None:
    old, new = plans
    assert apply(old, diff(old, new)) == new
    assert diff(old, replace(old, version=99)).entries == ()


@given(plan_pairs())
def test_plans_and_changelogs_survive_the_log(plans: tuple[Plan, Plan]) -> None:
    old, new = plans
    log = diff(old, new)
    assert plan_from_json(json.loads(json.dumps(plan_to_json(new)))) == new
    assert changelog_from_json(json.loads(json.dumps(changelog_to_json(log)))) == log


@given(plan_pairs())
def test_every_entry_has_a_sentence(plans: tuple[Plan, Plan]) -> None:
    old, new = plans
    log = diff(old, new)
    for lines in (describe(log, {}), describe(log, {}, new)):
        assert len(lines) == len(log.entries)
        assert all(lines)


# -- strict reading --------------------------------------------------------------------------------


def test_a_shared_join_is_written_once_and_read_as_one_object() -> None:
    plan = create_delete(Plan(), [q1(f"q{i}") for i in range(50)], ())
    document = plan_to_json(plan)
    assert len(document["nodes"]) == 3
    assert len({id(p.root) for p in plan_from_json(document).placements}) == 1


@pytest.mark.parametrize(
    "path_and_value",
    [
        (("format",), 2),
        (("kind",), "changelog"),
        (("version",), "1"),
        (("version",), True),
        (("placements", 0, "uid"), 7),
        (("placements", 0, "root"), 99),
        (("placements", 0, "root"), -1),
        (("placements", 0, "extra"), 1),
        (("placements",), {}),
        (("placements", 0), []),
        (("nodes", 2, "left"), 2),
        (("nodes", 2, "keys", 0, 6), "FLOAT"),
        (("nodes", 2, "keys", 0), ["V"]),
        (("nodes", 2, "keys"), []),
        (("nodes", 0), "V"),
        (("bounds",), [0, 5]),
        (("splits",), [[0]]),
        (("surplus",), 1),
    ],
)
def test_a_damaged_plan_is_refused(paper: Plan, path_and_value: tuple[tuple[Any, ...], Any]) -> None:
    path, value = path_and_value
    document = copy.deepcopy(plan_to_json(paper))
    at: Any = document
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    with pytest.raises(InternalError) as caught:
        plan_from_json(document)
    assert caught.value.reason in ("LOG_CORRUPT", "PLAN_BROKEN")


@pytest.mark.parametrize("entry", [{"entry": "Nonsense"}, {"entry": "QueryDeleted"}, {"entry": []}, "x", {}])
def test_a_damaged_changelog_is_refused(paper: Plan, entry: object) -> None:
    document = changelog_to_json(diff(Plan(), paper)) | {"entries": [entry]}
    with pytest.raises(InternalError) as caught:
        changelog_from_json(document)
    assert caught.value.reason == "LOG_CORRUPT"


def test_the_default_partitioning_is_one_full_range() -> None:
    assert plan_from_json(plan_to_json(Plan())).partitioning == Partitioning((0, FULL_RANGE))
