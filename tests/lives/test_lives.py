"""The generator keeps its promises: valid, reproducible, bounded, and rarely boring."""

from __future__ import annotations

import json
from collections import Counter
from random import Random

import networkx as nx
import pytest
from hypothesis import given, settings

from ajoin.sql import parse_query
from optimizer.model.graphs import join_graph
from optimizer.model.types import Column, ColumnType, StreamSchema
from tests.lives import PROFILES, describe, lives, make_life, shrink, with_extra_query
from tests.oracle import run_oracle
from tests.oracle.scenario import leading_key


def total_rows(expected):
    return sum(q.rows.total() + q.optional.total() for q in expected.queries.values())


def walk(life):
    """Tell the life again, checking each line against what is there at that point; returns what was seen."""
    schemas, running, ever, partitions = {}, {}, set(), 1
    seen = Counter()
    for line in life:
        if line.get("expect_error"):
            seen["expect_error"] += 1
            continue
        kind = leading_key(line)
        seen[kind] += 1
        match kind:
            case "stream":
                columns = tuple(Column(c, ColumnType(t)) for c, t in line["schema"].items())
                schemas[line["stream"]] = StreamSchema(line["stream"], columns, line["time"])
                assert line["time"] in line["schema"]
            case "create":
                assert line["create"] not in ever, "an id is never used again"
                ever.add(line["create"])
                running[line["create"]] = parse_query(line["sql"], schemas)
                seen[f"{len(running[line['create']].sources)}-way"] += 1
                seen["most running"] = max(seen["most running"], len(running))
            case "delete":
                del running[line["delete"]]
            case "event" | "watermark":
                assert line[kind] in schemas
            case "scale" if "partitions" in line["scale"]:
                partitions = line["scale"]["partitions"]
                assert 1 <= partitions <= 5
            case "scale":
                assert 0 <= line["scale"]["split"]["partition"] < partitions
            case "force" if "groups" in line["force"]:
                assert line["force"]["groups"].keys() <= running.keys()
            case "force":
                query = running[line["force"]["query"]]
                aliases = connected_aliases(query, line["force"]["order"])
                assert sorted(aliases) == sorted(s.alias for s in query.sources)
    return seen


def connected_aliases(query, order):
    if isinstance(order, str):
        return frozenset([order])
    left, right = (connected_aliases(query, part) for part in order)
    assert not left & right
    graph = join_graph([s.alias for s in query.sources], query.equi)
    assert nx.is_connected(graph.subgraph(left | right)), f"{order} joins what no equality connects"
    return left | right


@pytest.mark.parametrize("profile", PROFILES)
def test_every_line_makes_sense_where_it_stands(profile):
    seen = Counter()
    for seed in range({"medium": 30, "wide": 10}.get(profile, 60)):
        seen += walk(make_life(Random(seed), profile))
    kinds = {
        "create",
        "delete",
        "event",
        "force",
        "scale",
        "optimize",
        "unpin",
        "restart",
        "watermark",
        "expect_error",
    }
    assert kinds <= seen.keys()
    assert {f"{n}-way" for n, _ in PROFILES[profile].ways} <= seen.keys()


def test_the_same_numbers_give_the_same_life():
    for profile in PROFILES:
        assert make_life(Random(7), profile) == make_life(Random(7), profile)
        assert make_life(Random(7), profile) != make_life(Random(8), profile)


@pytest.mark.parametrize(("profile", "share"), [("tiny", 0.5), ("medium", 0.5), ("deep", 0.35), ("folding", 0.6)])
def test_most_queries_have_rows_and_no_life_has_too_many(profile, share):
    running = []
    for seed in range(200 if profile != "medium" else 40):
        expected = run_oracle(make_life(Random(seed), profile))
        assert total_rows(expected) < 20_000
        running += [q for q in expected.queries.values() if q.state == "RUNNING"]
    assert sum(bool(q.rows) for q in running) >= share * len(running)


def test_wide_lives_need_two_words():
    assert all(walk(make_life(Random(seed), "wide"))["most running"] > 64 for seed in range(10, 18))


def test_tuples_are_late_dead_and_accepted_across_lives():
    late = dead = accepted = 0
    for seed in range(40):
        for stream in run_oracle(make_life(Random(seed), "tiny")).streams.values():
            late += stream.late_dropped
            dead += stream.dead_letter
            accepted += stream.tuples
    assert 0 < late < accepted / 5
    assert 0 < dead < accepted / 10


@settings(max_examples=40, deadline=None)
@given(lives())
def test_hypothesis_can_draw_lives_and_they_stay_bounded(life):
    # Hypothesis likes to make all keys equal, which is where a join explodes.
    assert total_rows(run_oracle(life)) < 20_000


@settings(max_examples=15, deadline=None)
@given(lives("medium"))
def test_a_life_with_pieces_taken_away_is_still_a_life(life):
    walk(life)


def test_an_extra_query_changes_nothing_else():
    for seed in range(60):
        life = make_life(Random(seed), "tiny")
        more = with_extra_query(with_extra_query(life, Random(seed)), Random(seed + 1))
        walk(more)
        plain, extended = run_oracle(life), run_oracle(more)
        extra = extended.queries.keys() - plain.queries.keys()
        assert extra == {"extra", "extra2"}
        assert {id: q for id, q in extended.queries.items() if id not in extra} == plain.queries
        assert extended.streams == plain.streams


def test_a_described_life_reads_back():
    life = make_life(Random(3), "medium")
    assert [json.loads(text) for text in describe(life).splitlines()] == life


def test_a_failing_life_becomes_small():
    def fails(life):
        """Stands for an engine that is wrong whenever q2 has a row."""
        expected = run_oracle(life)
        return "q2" in expected.queries and bool(expected.queries["q2"].rows)

    seed = next(s for s in range(100) if fails(make_life(Random(s), "tiny")))
    small = shrink(make_life(Random(seed), "tiny"), fails)
    kinds = Counter(leading_key(line) for line in small)
    assert fails(small)
    assert kinds["create"] == 1
    assert kinds["event"] <= 4
    assert kinds.keys() <= {"stream", "create", "event", "epoch"}
