"""Which queries fold together, and what explain says about it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from optimizer.explain.explain import explain_plan, explain_query, what_sharing_saves
from optimizer.explain.folds import Folds, fold_views
from optimizer.model.combining import entries_of
from optimizer.model.folds import fold_key, slices_a_minute
from optimizer.model.plan import Plan
from optimizer.model.windows import CountWindow, FixedWindow, PeriodicWindow, PunctuatedWindow, SessionWindow
from optimizer.search.eager import create_delete
from optimizer.search.forced import force_groups
from optimizer.statistics.model import EpochObservation, FoldObservation, StatisticsModel
from tests.builders import compare, q1, running
from tests.folds import Folding, count

W = Folding("W")


def by_geo(id, window=1000, **more):
    select = more.pop("select", {"geo": "#0", "n": count()})
    return running(id, W.query(window=window, group=["W.geo"], select=select, **more))


def deployed(*queries):
    return create_delete(Plan(), queries, ()), {rq.uid: rq for rq in queries}


THREE = (
    by_geo("Q7", where=[("W.duration", "<", 10)]),
    by_geo("Q9", (3_600_000, 1000), select={"geo": "#0", "mean": W.agg("AVG", "W.duration")}),
    by_geo("Q11", 1500, select={"top": W.agg("MAX", "W.duration", where=("W.vID", ">", 3))}),
)


# -- who folds with whom ---------------------------------------------------------------------------


def test_conditions_windows_functions_and_aliases_may_differ():
    renamed = Folding("W w").query(window=7000, group=["w.geo"], select={"n": count()})
    assert len({fold_key(rq) for rq in (*THREE, running("other", renamed))}) == 1


def test_groups_leaves_and_the_cut_may_not():
    windows = [
        SessionWindow(100),
        CountWindow(3, 3),
        PunctuatedWindow(compare(W.column("W.duration"), ">", 3), "W.duration > 3"),
    ]
    queries = [by_geo("slices"), *(by_geo(str(w), w) for w in windows)]
    queries.append(running("whole", W.query(select={"n": count()})))
    queries.append(running("joined", Folding("V", "W").query(on=["V.vID = W.vID"], group=["W.geo"], select={})))
    keys = [fold_key(rq) for rq in queries]
    assert len(set(keys)) == len({k.name for k in keys}) == len(queries)
    assert [k.cut for k in keys[:4]] == ["Slices", "Pieces", "Tuples", "Times"]


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        ([PeriodicWindow(1000, 1000)], 60),
        ([PeriodicWindow(60_000, 60_000)], 1),
        ([PeriodicWindow(1500, 1000)], 120),
        ([PeriodicWindow(1000, 1000), PeriodicWindow(2000, 2000)], 60),
        ([PeriodicWindow(2000, 2000), PeriodicWindow(3000, 3000)], 40),
        ([PeriodicWindow(500, 2000)], 60),
        ([PeriodicWindow(999_983, 999_983), PeriodicWindow(7, 7)], 60_000 / 999_983 + 60_000 / 7),
        ([FixedWindow(0, 1000)], 0),
    ],
)
def test_slices_a_minute_are_cut_at_the_edges_of_all_windows(windows, expected):
    assert slices_a_minute(windows) == pytest.approx(expected)


# -- what explain says -----------------------------------------------------------------------------


def test_a_plan_names_what_is_folded_once():
    plan, queries = deployed(*THREE)
    stats = StatisticsModel()
    (view,) = fold_views(plan, queries)
    seen = {(view.node.name, view.key.name): FoldObservation(12_000, 41, 7, 6, 3)}
    stats.observe(EpochObservation(1.0, folds=seen))
    text = explain_plan(plan, queries, folds=Folds.of(queries, stats.fold))
    said = "80 slices a minute, 3 query sets, 12,000 tuples an epoch into 41 entries"
    assert text.splitlines()[-3:] == [
        f"Q7, Q9 and Q11 fold W by geo once: {said}",
        "    HOPPING (SIZE 1 HOUR, ADVANCE BY 1 SECOND) of Q9: blocks, about 29 entries instead of 4,800 slices",
        "    where 7 or more windows close in one epoch: count and sum by subtracting, "
        "because more than 6 pieces a window are many",
    ]
    assert "3 folds asked for, 1 made" in text
    assert stats.groups(view.key.name) == 7 and stats.groups("unknown") == 100


def test_it_is_said_where_queries_are_folded_one_by_one():
    plan, queries = deployed(*THREE)
    counted = FoldObservation(12_000, 41, 7, 6, 900, by_query=1.0)
    text = explain_plan(plan, queries, folds=Folds.of(queries, lambda _node, _fold: counted))
    assert "900 query sets, 12,000 tuples an epoch into 41 entries, query by query\n" in text


def test_many_are_counted_and_one_needs_no_once():
    plan, queries = deployed(*(by_geo(f"q{i}") for i in range(9)))
    assert explain_plan(plan, queries).endswith("q0, q1, q2 and 6 more fold W by geo once: 60 slices a minute")
    plan, queries = deployed(running("all", W.query(window=SessionWindow(30_000), select={"n": count()})))
    assert explain_plan(plan, queries).endswith("all folds W as one group: pieces without a gap of more than 30,000 ms")


def test_a_fold_ends_with_the_group_and_the_tree():
    plan, queries = deployed(by_geo("a"), by_geo("b"), by_geo("c"))
    plan = force_groups(plan, queries, {"c": 1})
    assert [(f.node.group, f.users) for f in fold_views(plan, queries)] == [(0, ("a", "b")), (1, ("c",))]
    saved = what_sharing_saves(plan, queries)
    assert (saved.folds_asked, saved.folds_run) == (3, 2)


def test_a_query_says_what_is_kept_for_all_that_fold_with_it():
    plan, queries = deployed(*THREE)
    told = explain_query(plan, queries, "Q9")
    assert "folds       Q7, Q9 and Q11 fold W by geo once: 80 slices a minute" in told
    assert "keeps       count, count of duration, max of duration where vID > 3, sum of duration" in told
    assert "windows     TUMBLING (SIZE 1 SECOND), HOPPING (SIZE 1 HOUR, ADVANCE BY 1 SECOND)" in told
    document = json.loads(explain_query(plan, queries, "Q9", "json"))["fold"]
    assert document["queries"] == ["Q7", "Q9", "Q11"] and document["cut"] == "slices"
    assert document["groups"] == ["geo"] and document["slices_a_minute"] == 80 and document["counted"] is None
    assert json.loads(explain_plan(plan, queries, "json"))["folds"] == [document]
    assert json.loads(explain_query(*deployed(q1()), "q1", "json"))["fold"] is None


HOUR = (3_600_000, 1000)
OVERLAPPING = (
    by_geo("first", HOUR, select={"x": W.agg("FIRST", "W.duration"), "y": W.agg("MAX", "W.duration")}),
    by_geo("hour", HOUR, select={"x": W.agg("STDDEV", "W.duration"), "n": count()}),
    by_geo("same", HOUR),
    by_geo("day", (86_400_000, 60_000)),
    by_geo("half", (30_000, 1000), select={"x": W.agg("SUM", "W.duration")}),
    by_geo("short", (3000, 1000), select={"x": W.agg("MIN", "W.duration")}),
    by_geo("apart", 1000),
)


def combined(*queries):
    (view,) = fold_views(*deployed(*queries))
    return view.combining


def test_it_is_said_from_what_overlapping_windows_are_combined_and_why():
    by_hour = "HOPPING (SIZE 1 HOUR, ADVANCE BY 1 SECOND)"
    assert [w.sentence for w in combined(*OVERLAPPING).windows] == [
        f"{by_hour} of first, hour, same: blocks, about 27 entries instead of 3,600 slices",
        "HOPPING (SIZE 1 DAY, ADVANCE BY 1 MINUTE) of day: blocks, about 37 entries instead of 86,400 slices",
        "HOPPING (SIZE 30 SECONDS, ADVANCE BY 1 SECOND) of half: all 30 slices, because 30 steps are few",
        "HOPPING (SIZE 3 SECONDS, ADVANCE BY 1 SECOND) of short: all 3 slices, because 3 steps are few",
    ]
    joined = Folding("V", "W").query(on=["V.vID = W.vID"], group=["W.geo"], window=HOUR, select={"n": count()})
    over_a_join = combined(running("joined", joined))
    assert over_a_join.lines() == [f"{by_hour} of joined: all 3,600 slices, because joined rows reach over slices"]
    counted = combined(by_geo("c", CountWindow(1000, 100)), by_geo("d", CountWindow(5, 5)))
    assert counted.lines() == [
        "COUNT (SIZE 1000 ADVANCE BY 100) of c: pieces, about 10 entries instead of 1,000 tuples, where none is late"
    ]
    median = by_geo("m", CountWindow(1000, 100), select={"m": W.agg("MEDIAN", "W.duration")})
    said = combined(median, by_geo("few", CountWindow(10, 5))).lines()
    assert said == [
        "COUNT (SIZE 1000 ADVANCE BY 100) of m: all 1,000 tuples, because all values are needed",
        "COUNT (SIZE 10 ADVANCE BY 5) of few: all 10 tuples, because 2 windows per tuple are few",
    ]
    for window in (1000, (1000, 3000), SessionWindow(9), FixedWindow(0, 10), CountWindow(3, 3)):
        assert combined(by_geo("q", window)).lines() == [], "windows that do not overlap need no words"


def test_windows_that_close_together_share_in_the_way_of_their_functions():
    found = combined(*OVERLAPPING)
    together, why = "where 7 or more windows close in one epoch", "because more than 6 pieces a window are many"
    assert found.lines()[-2:] == [
        "and 1 more windows that overlap",
        f"{together}: count and sum by subtracting, first, max and moments by two stacks, {why}",
    ]
    assert found.lines("same")[1:] == [f"{together}: count by subtracting, {why}"]
    assert len(found.lines("short")) == 1, "its few slices are always laid out"
    assert found.lines("apart") == []


def test_a_query_and_its_document_say_how_windows_are_combined():
    plan, queries = deployed(*OVERLAPPING)
    told = explain_query(plan, queries, "half")
    assert "\ncombines    HOPPING (SIZE 30 SECONDS, ADVANCE BY 1 SECOND) of half: all 30 slices" in told
    assert (
        "\n            where 7 or more windows close in one epoch: sum by subtracting, because more than 6 pieces"
        in told
    )
    assert "combines" not in explain_query(plan, queries, "apart")
    document = json.loads(explain_query(plan, queries, "half", "json"))["fold"]["combining"]
    assert document["windows"][0] == {
        "window": "HOPPING (SIZE 1 HOUR, ADVANCE BY 1 SECOND)",
        "queries": ["first", "hour", "same"],
        "way": "blocks",
        "parts": 3600,
        "unit": "slices",
        "entries": 27,
        "why": "",
    }
    assert (document["windows"][-1]["way"], document["windows"][-1]["entries"]) == ("all", None)
    ways = {"count": "subtract", "sum": "subtract", "first": "stacks", "max": "stacks", "moments": "stacks"}
    assert document["together"] == {"from": 7, "ways": ways}
    assert "about 27 entries" in explain_plan(plan, queries, "dot")


@pytest.mark.parametrize("steps", [1, 7, 8, 9, 63, 64, 65, 600, 3600])
def test_how_many_entries_a_window_with_blocks_has(steps):
    """On average over all places where it can start, by trying them all."""

    def pieces(at, end):
        n = 0
        while at < end:
            width = 8**6
            while at % width or at + width > end:
                width //= 8
            at, n = at + width, n + 1
        return n

    every = [pieces(at, at + steps) for at in range(4096)]
    assert entries_of(steps) == pytest.approx(sum(every) / len(every))
    assert entries_of(steps, 3.0) == pytest.approx(entries_of(steps) + 2 * min(steps, 7))


def test_dot_draws_a_fold_between_the_stream_and_its_sinks():
    plan, queries = deployed(*THREE)
    (view,) = fold_views(plan, queries)
    dot = explain_plan(plan, queries, "dot")
    assert f'"g0-W" -> "{view.name}"' in dot and f'"{view.name}" -> "sink Q7"' in dot
    assert '"g0-W" -> "sink Q7"' not in dot and "shape=folder, style=bold" in dot
    assert explain_query(plan, queries, "Q7", "dot").count("-> ") == 2


def test_of_other_tenants_queries_only_the_number_is_told():
    plan, queries = deployed(*THREE)
    counted = {(f.node.name, f.key.name): FoldObservation(5, 4, 3, 2, 1) for f in fold_views(plan, queries)}
    folds = Folds.of(queries, lambda node, name: counted.get((node, name)))
    mine = {"Q7": queries["Q7"]}
    for format in ("text", "json", "dot"):
        told = explain_query(plan, mine, "Q7", format, folds=folds)
        assert "Q9" not in told and "HOUR" not in told and "> 3" not in told and "sum" not in told
    assert "folds       Q7 and 2 of others fold W by geo once: 60 slices a minute\n" in explain_query(
        plan, mine, "Q7", folds=folds
    )
    document = json.loads(explain_query(plan, mine, "Q7", "json", folds=folds))["fold"]
    assert (document["others"], document["counted"], document["keeps"]) == (2, None, ["count"])


def test_every_kind_of_window_can_be_explained():
    windows = [
        PeriodicWindow(1000, 1000),
        FixedWindow(0, 10),
        SessionWindow(5),
        CountWindow(4, 2),
        PunctuatedWindow(compare(W.column("W.duration"), ">", 3), "W.duration > 3"),
    ]
    plan, queries = deployed(*(by_geo(f"q{i}", w) for i, w in enumerate(windows)))
    for format in ("text", "json", "dot"):
        assert explain_plan(plan, queries, format)
    shown = {q["id"]: q["window"] for q in json.loads(explain_plan(plan, queries, "json"))["queries"]}
    assert shown["q3"] == {"size": 4, "advance": 2, "sql": "COUNT (SIZE 4 ADVANCE BY 2)"}
    assert shown["q4"] == {"text": "W.duration > 3", "sql": "PUNCTUATED BY (W.duration > 3)"}
    plain = replace(queries["q0"], query=replace(queries["q0"].query, groups=(), outputs=()))
    assert not plain.query.folds
