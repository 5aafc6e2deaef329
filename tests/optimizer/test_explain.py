"""Explain: the printed form is the test."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given

from optimizer.errors import InvalidRequest, NotFound
from optimizer.explain.explain import explain_plan, explain_query, what_sharing_saves
from optimizer.explain.text import bits
from optimizer.model.expressions import Aggregate, ColumnRef, Compare
from optimizer.model.plan import Plan, RunningQuery
from optimizer.model.query import FACTORIZED, Output, Source
from optimizer.model.trees import tree_from_order
from optimizer.model.types import ColumnType
from optimizer.search.eager import create_delete
from optimizer.search.forced import force_groups, scale_to, split
from tests.builders import join_query, q1, q2, q3, running, running_queries

PAPER = {rq.uid: rq for rq in (q1(), q2(), q3())}


def deployed(*queries: RunningQuery) -> Plan:
    return create_delete(Plan(), queries, ())


# -- text ------------------------------------------------------------------------------------------


def test_the_plan_of_q1_and_q2() -> None:
    plan = scale_to(deployed(q1(), q2()), 2)
    assert (
        explain_plan(plan, PAPER)
        == """\
plan version 2 · 2 partitions · 2 queries · 1 group
3 joins asked for, 2 run · 6 indexes asked for, 4 built · 5 scans asked for, 3 made

group 0: q1 (bit 0), q2 (bit 1)
(C ⋈ (V ⋈ W)) on C.usrID = W.usrID  [q2 · bit 1]  → q2
├── C  index usrID  σ q2: length > 5  [q2 · bit 1]
└── (V ⋈ W) on V.vID = W.vID  index W.usrID  [q1 q2 · bits 0-1]  shared by 2  → q1
    ├── V  index vID  σ q1: lang = 'ENG' · q2: geo = 'US'  [q1 q2 · bits 0-1]  shared by 2
    └── W  index vID  σ q1: geo = 'GER' · q2: duration < 10  [q1 q2 · bits 0-1]  shared by 2"""
    )


def test_figure_4a_w_is_indexed_by_two_attributes_and_drawn_once() -> None:
    """V by vID, W by vID (Q1, Q2) and by usrID (Q3)."""
    text = explain_plan(deployed(q1(), q2(), q3()), PAPER)
    assert "── V  index vID  " in text
    assert "── W  index usrID, vID  " in text
    assert text.count("── W  ") == 2
    assert "│   └── W  see above" in text


def test_groups_share_scans_but_not_joins() -> None:
    plan = split(force_groups(deployed(q1(), q1("again")), {}, {"again": 1}), 0, 3)
    queries = {"q1": q1(), "again": q1("again")}
    assert (
        explain_plan(plan, queries)
        == """\
plan version 3 · 1 partition · partition 0 split 3 ways · 2 queries · 2 groups
2 joins asked for, 2 run · 4 indexes asked for, 4 built · 4 scans asked for, 2 made

group 0: q1 (bit 0)
(V ⋈ W) on V.vID = W.vID  [q1 · bit 0]  → q1
├── V  index vID  σ q1: lang = 'ENG'  [q1 · bit 0]
└── W  index vID  σ q1: geo = 'GER'  [q1 · bit 0]

group 1: again (bit 0)
(V ⋈ W) on V.vID = W.vID  [again · bit 0]  → again
├── V  index vID  σ again: lang = 'ENG'  [again · bit 0]
└── W  index vID  σ again: geo = 'GER'  [again · bit 0]"""
    )


def test_the_empty_plan() -> None:
    assert explain_plan(Plan(), {}) == "plan version 0 · 1 partition · 0 queries · 0 groups"


def test_one_query_with_figures() -> None:
    plan = deployed(q1(), q2(), q3())
    shared = plan.by_uid["q1"].root
    text = explain_query(
        plan,
        PAPER,
        "q2",
        observed={shared.name: 12345, "g0-C": 7},
        estimated={shared.name: 1.5},
        cost=(100, 59),
    )
    assert (
        text
        == """\
q2 · plan version 1 · group 0, bit 1
window      TUMBLING (SIZE 2 SECONDS)
delivers    rows
join order  ((V ⋈ W) ⋈ C)
selections  V.geo = 'US'
            W.duration < 10
            C.length > 5
shares      the scan of C with q3
            (V ⋈ W) with q1
cost        100 alone, 59 shared (41% less)

(C ⋈ (V ⋈ W)) on C.usrID = W.usrID  [q2 · bit 1]  → q2
├── C  index usrID  σ q2: length > 5 · q3: emojis > 0  7/s observed  [q2 q3 · bits 1-2]  shared by 2
└── (V ⋈ W) on V.vID = W.vID  index W.usrID  12,345/s observed, 1.5/s estimated  [q1 q2 · bits 0-1]  shared by 2  → q1
    ├── V  index vID  σ q1: lang = 'ENG' · q2: geo = 'US'  [q1 q2 · bits 0-1]  shared by 2
    └── W  index usrID, vID  σ q1: geo = 'GER' · q2: duration < 10 · q3: geo = 'EU'  [q1 q2 q3 · bits 0-2]  shared by 3"""  # noqa: E501
    )


def test_a_self_join_with_a_residual_says_which_alias_is_which_use() -> None:
    time_of = {a: ColumnRef(a, "time", ColumnType.TIMESTAMP) for a in "ab"}
    earlier = Compare("<", time_of["a"], time_of["b"])
    on = ["a.vID = b.vID", "a.usrID = b.usrID"]
    rq = running("twice", join_query("W a", "W b", on=on, residual=[earlier], window=(2000, 500)), active_from=4000)
    assert (
        explain_query(deployed(rq), {"twice": rq}, "twice")
        == """\
twice · plan version 1 · group 0, bit 0 · active from 4000
window      HOPPING (SIZE 2 SECONDS, ADVANCE BY 500 MILLISECONDS)
delivers    rows
join order  (a ⋈ b)
streams     a is W, b is W'1
residual    a.time < b.time
shares      nothing

(W ⋈ W'1) on W.usrID = W'1.usrID AND W.vID = W'1.vID  [twice · bit 0]  → twice
├── W  index (usrID, vID)  [twice · bit 0]
└── W'1  index (usrID, vID)  [twice · bit 0]"""
    )


def test_hundreds_of_queries_and_long_conditions_stay_readable() -> None:
    long = [("V.lang", "=", "x" * 10_000)]
    queries = [running(f"q{i:03}", join_query("V", "W", on=["V.vID = W.vID"], where=long)) for i in range(300)]
    text = explain_plan(deployed(*queries), {rq.uid: rq for rq in queries})
    assert "[q000 q001 q002 q003 q004 q005 +294 · bits 0-299]  shared by 300" in text
    assert "294 more" in text
    assert max(len(line) for line in text.splitlines()) < 700


@pytest.mark.parametrize(("slots", "says"), [([3], "bit 3"), ([1, 0], "bits 0-1"), ([0, 2, 3, 4, 9], "bits 0,2-4,9")])
def test_bits(slots: list[int], says: str) -> None:
    assert bits(slots) == says


def test_a_group_that_is_kept_apart_says_so() -> None:
    plan = force_groups(deployed(q1(), q2(), q3()), PAPER, {"q3": 1})
    text = explain_plan(plan, PAPER, apart={"q3", "q1"})
    assert "group 0: q1 (bit 0), q2 (bit 1)\n" in text, "q1 is heavy, but has company"
    assert "group 1: q3 (bit 0) · apart: heavy\n" in text
    groups = json.loads(explain_plan(plan, PAPER, "json", apart={"q3"}))["groups"]
    assert [g["apart"] for g in groups] == [False, True]
    dot = explain_plan(plan, PAPER, "dot", apart={"q3"})
    assert 'label="group 0";' in dot and 'label="group 1 · apart: heavy";' in dot
    assert explain_query(plan, PAPER, "q3", apart={"q3"}).startswith(
        "q3 · plan version 2 · group 1, bit 0 · apart: heavy"
    )
    assert json.loads(explain_query(plan, PAPER, "q3", "json", apart={"q3"}))["apart"] is True
    assert json.loads(explain_query(plan, PAPER, "q3", "json"))["apart"] is False


@pytest.mark.parametrize("format", ["text", "json", "dot"])
def test_nothing_is_told_of_others_that_are_heavy(format: str) -> None:
    plan = deployed(q1(), q2(), q3())
    seen = {"q2": PAPER["q2"]}
    known = explain_query(plan, seen, "q2", format)
    assert explain_query(plan, seen, "q2", format, apart={"q1", "q3"}) == known
    assert explain_query(plan, seen, "q2", format, apart={"q1", "q2", "q3"}) == known, "they share its group"


# -- JSON ------------------------------------------------------------------------------------------


def test_the_json_shape_of_a_plan() -> None:
    document = json.loads(explain_plan(deployed(q1(), q2()), PAPER, "json", observed={"g0-V": 10}))
    assert document["version"] == 1
    assert document["partitions"] == 1
    assert document["savings"]["joins_asked"] == 3
    assert document["groups"] == [{"group": 0, "queries": ["q1", "q2"], "apart": False}]
    assert document["queries"][0]["window"] == {
        "size_ms": 1000,
        "advance_ms": 1000,
        "sql": "TUMBLING (SIZE 1 SECOND)",
    }
    nodes = {n["text"]: n for n in document["nodes"]}
    assert nodes["(V ⋈ W)"] == {
        "name": document["queries"][0]["root"],
        "kind": "join",
        "text": "(V ⋈ W)",
        "group": 0,
        "inputs": ["g0-V", "g0-W"],
        "on": ["V.vID = W.vID"],
        "indexes": [["W.usrID"]],
        "queries": ["q1", "q2"],
        "others": 0,
        "bits": [0, 1],
        "sinks": ["q1"],
        "selections": {},
        "observed": None,
        "estimated": None,
        "stage": 1,
        "goes_on": False,
    }
    assert (nodes["(C ⋈ (V ⋈ W))"]["stage"], nodes["V"]["stage"]) == (2, None)
    assert nodes["V"]["selections"] == {"q1": "lang = 'ENG'", "q2": "geo = 'US'"}
    assert nodes["V"]["observed"] == 10


def test_a_join_that_goes_on_in_the_same_stage_says_so() -> None:
    plan = deployed(q2(), q3())
    lines = [line.strip("├└─│ ") for line in explain_plan(plan, PAPER).splitlines()]
    assert [line.partition(" on ")[0] for line in lines if "goes on in the same stage" in line] == ["(C ⋈ W)"]
    nodes = {n["text"]: n for n in json.loads(explain_plan(plan, PAPER, "json"))["nodes"]}
    assert {text: (n["stage"], n["goes_on"]) for text, n in nodes.items() if n["kind"] == "join"} == {
        "(V ⋈ W)": (1, False),
        "(C ⋈ (V ⋈ W))": (2, False),
        "(C ⋈ W)": (1, True),
        "((C ⋈ W) ⋈ R)": (1, False),
    }


def test_the_json_shape_of_a_query_can_be_forced_again() -> None:
    plan = deployed(q1(), q2())
    document = json.loads(explain_query(plan, PAPER, "q2", "json", cost=(2.0, 1.0)))
    assert tree_from_order(q2(), document["order"], document["group"]) == plan.by_uid["q2"].root
    assert document["shares"] == [{"node": plan.by_uid["q1"].root.name, "text": "(V ⋈ W)", "with": ["q1"], "others": 0}]
    assert document["selections"]["W"] == "W.duration < 10"
    assert document["cost"] == {"alone": 2.0, "shared": 1.0}
    assert len(document["nodes"]) == 5


def test_queries_that_are_not_given_are_only_counted() -> None:
    plan = deployed(q1(), q2(), q3())
    seen = {"q2": PAPER["q2"]}
    figures = {node.name: 7.0 for node in [*plan.nodes, *plan.sources]}
    document = json.loads(explain_query(plan, seen, "q2", "json", observed=figures, estimated=figures, cost=(9.0, 1.0)))
    assert document["cost"] == {"alone": 9.0, "shared": None}
    assert [(s["with"], s["others"]) for s in document["shares"]] == [([], 1), ([], 1)]
    nodes = {n["text"]: n for n in document["nodes"]}
    assert nodes["W"]["indexes"] == [["W.vID"]], "the index on usrID is another's"
    assert {n["text"]: n["others"] for n in document["nodes"]} == {
        "V": 1,
        "W": 2,
        "C": 1,
        "(V ⋈ W)": 1,
        "(C ⋈ (V ⋈ W))": 0,
    }
    assert {n["text"] for n in document["nodes"] if n["observed"] is not None} == {"(C ⋈ (V ⋈ W))"}
    for format in ("text", "json", "dot"):
        told = explain_query(plan, seen, "q2", format)
        assert not [secret for secret in ("q1", "q3", "ENG", "GER", "EU") if secret in told]
    assert "(V ⋈ W) with 1 of others" in explain_query(plan, seen, "q2")
    assert "[q2 and 2 of others · bit 1]  shared by 3" in explain_query(plan, seen, "q2")


# -- DOT -------------------------------------------------------------------------------------------

_TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|->|[A-Za-z_][A-Za-z0-9_-]*|[{}\[\]=,;])')


def read_dot(text: str) -> tuple[set[str], set[tuple[str, str]]]:
    """Nodes and edges of a DOT text, by the grammar (without ports); an AssertionError if it is not DOT."""
    tokens, at = [], 0
    text = text.strip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        assert found, f"not a DOT token: {text[at : at + 30]!r}"
        tokens.append(found[1])
        at = found.end()
    nodes, edges = set[str](), set[tuple[str, str]]()

    def take(*expected: str) -> str:
        token = tokens.pop(0)
        assert not expected or token in expected, f"expected {expected}, found {token}"
        return token

    def attributes() -> None:
        take("[")
        while tokens[0] != "]":
            take()
            take("=")
            take()
            if tokens[0] == ",":
                take()
        take("]")

    def statements() -> None:
        while tokens[0] != "}":
            name = take()
            if name == "subgraph":
                take()
                take("{")
                statements()
                take("}")
                continue
            if tokens[0] == "=":
                take()
                take()
            elif tokens[0] == "->":
                take()
                edges.add((name, take()))
                attributes()
            else:
                attributes()
                if name != "node":
                    nodes.add(name)
            take(";")

    take("digraph")
    take()
    take("{")
    statements()
    take("}")
    assert not tokens
    return nodes, edges


def test_dot_of_the_plan_and_of_one_query() -> None:
    plan = deployed(q1(), q2())
    nodes, edges = read_dot(explain_plan(plan, PAPER, "dot"))
    v_w, v_w_c = (f'"{plan.by_uid[uid].root.name}"' for uid in ("q1", "q2"))
    assert nodes == {'"g0-V"', '"g0-W"', '"g0-C"', v_w, v_w_c, '"sink q1"', '"sink q2"'}
    assert edges == {
        ('"g0-V"', v_w),
        ('"g0-W"', v_w),
        ('"g0-C"', v_w_c),
        (v_w, v_w_c),
        (v_w, '"sink q1"'),
        (v_w_c, '"sink q2"'),
    }
    alone, _ = read_dot(explain_query(plan, PAPER, "q1", "dot"))
    assert alone == {'"g0-V"', '"g0-W"', v_w, '"sink q1"'}


def test_any_name_is_safe_in_dot() -> None:
    odd = 'a"b\\c\n{Ü}->'
    plain = join_query("R x", "R y", on=["x.usrID = y.usrID"])
    renamed = running(odd, replace(plain, sources=(Source("x", odd), Source("y", odd))))
    nodes, _ = read_dot(explain_plan(deployed(renamed), {odd: renamed}, "dot"))
    assert {'"sink a\\"b\\\\c\\n{Ü}->"', '"g0-a\\"b\\\\c\\n{Ü}->"'} <= nodes


# -- all of them -----------------------------------------------------------------------------------


@given(running_queries(max_queries=6))
def test_every_plan_can_be_explained_in_every_format(queries: list[RunningQuery]) -> None:
    plan, by_uid = deployed(*queries), {rq.uid: rq for rq in queries}
    text = explain_plan(plan, by_uid)
    for rq in queries:
        assert f"{rq.id} (bit {plan.by_uid[rq.uid].slot})" in text or " more" in text
        assert json.loads(explain_query(plan, by_uid, rq.uid, "json"))["id"] == rq.id
        assert explain_query(plan, by_uid, rq.uid).startswith(rq.id)
    document = json.loads(explain_plan(plan, by_uid, "json"))
    nodes, edges = read_dot(explain_plan(plan, by_uid, "dot"))
    assert len(nodes) == len(document["nodes"]) + len(queries)
    assert len(edges) == sum(len(n["inputs"]) for n in document["nodes"]) + len(queries)
    drawn = [line for line in text.splitlines() if "[" in line]
    assert len(drawn) == len(document["nodes"]), "each node is drawn once"
    saved = what_sharing_saves(plan)
    assert saved.joins_asked == sum(len(rq.query.sources) - 1 for rq in queries)
    assert saved.joins_run == sum(n["kind"] == "join" for n in document["nodes"])
    assert saved.indexes_run <= saved.indexes_asked
    assert saved.scans_run == len({s for rq in queries for s in rq.query.streams})


def test_what_sharing_saves_in_one_sentence() -> None:
    assert str(what_sharing_saves(deployed(q1(), q2(), q3(), q2("q4")))) == (
        "7 joins asked for, 4 run · 14 indexes asked for, 7 built · 11 scans asked for, 4 made"
    )


def test_unknown_queries_and_formats() -> None:
    with pytest.raises(NotFound, match="does not run nobody"):
        explain_query(Plan(), {}, "nobody")
    with pytest.raises(InvalidRequest, match="unknown explain format 'svg'") as caught:
        explain_plan(Plan(), {}, "svg")
    assert caught.value.reason == "INVALID_FORMAT"


def test_the_sink_mode_is_told_in_every_format() -> None:
    on = ["V.vID = W.vID"]
    counted = replace(join_query("V", "W", on=on), outputs=(Output("n", Aggregate("COUNT", (), ColumnType.BIGINT)),))
    lists = replace(join_query("V", "W", on=on), emit=FACTORIZED)
    queries = {
        "q1": running("q1", join_query("V", "W", on=on)),
        "q2": running("q2", counted),
        "q3": running("q3", lists),
    }
    plan = deployed(*queries.values())
    told = {uid: explain_query(plan, queries, uid) for uid in queries}
    assert "\ndelivers    rows\n" in told["q1"]
    assert "one row per group and window" in told["q2"] and "folds       q2 folds (V ⋈ W) as one group" in told["q2"]
    assert "EMIT FACTORIZED" in told["q3"]
    assert "q1 (bit 0), q2 (bit 1, FOLD), q3 (bit 2, FACTORIZED)" in explain_plan(plan, queries)
    modes = {q["id"]: q["sink_mode"] for q in json.loads(explain_plan(plan, queries, "json"))["queries"]}
    assert modes == {"q1": "ROWS", "q2": "FOLD", "q3": "FACTORIZED"}
    assert all(json.loads(explain_query(plan, queries, u, "json"))["sink_mode"] == modes[u] for u in queries)
