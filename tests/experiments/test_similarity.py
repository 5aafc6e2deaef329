"""Equation 3 and the generator that turns it round."""

from __future__ import annotations

from random import Random
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ajoin.sql import parse_query
from experiments.similarity import QueryGenerator, pattern_query, similarity
from experiments.systems.platform_worker import stream_schema
from experiments.template import Selection, TemplateQuery, ajoin_sql, flink_insert

STREAMS = [f"S{i + 1}" for i in range(8)]
SCHEMAS = {name: stream_schema(name) for name in STREAMS}


def query(sources: tuple[str, ...], links: tuple[tuple[int, int], ...]) -> TemplateQuery:
    return TemplateQuery("q", sources, links, (None,) * len(sources), 1)


def generator(
    seed: int, ways: int, wanted: float, streams: int = 8, selectivity: float | str = "none"
) -> QueryGenerator:
    rng = Random(seed)
    return QueryGenerator(
        pattern_query(STREAMS, ways, rng),
        STREAMS[:streams],
        similarity=wanted,
        selectivity=selectivity,
        windows=[1, 2, 3],
        keys=500,
        rng=rng,
    )


def test_the_papers_example() -> None:
    pattern = query(("A", "B"), ((0, 1),))
    assert similarity(query(("A", "B"), ((0, 0),)), pattern) == 2 * 1 / 4
    assert similarity(pattern, pattern) == 1
    assert similarity(query(("A", "C"), ((0, 1),)), pattern) == 1 * 1 / 4
    assert similarity(query(("C", "D"), ((0, 1),)), pattern) == 0


@given(seed=st.integers(0, 10_000), ways=st.integers(2, 5), wanted=st.floats(0, 1))
def test_every_query_is_a_chain_that_the_platform_accepts(seed: int, ways: int, wanted: float) -> None:
    g = generator(seed, ways, wanted, selectivity="random")
    for _ in range(5):
        q = g.next()
        assert len(q.sources) == len(set(q.sources)) == ways
        assert len(q.links) == ways - 1
        assert q.window_seconds in (1, 2, 3)
        bound = parse_query(ajoin_sql(q, times=True), SCHEMAS)
        assert len(bound.sources) == ways
        assert len(bound.equi) == ways - 1
        assert len(bound.selections) == ways
        assert flink_insert(q).count("TUMBLE(") == ways


@pytest.mark.parametrize("ways", [2, 3, 4])
@pytest.mark.parametrize("wanted", [0.0, 0.25, 0.5, 0.75, 1.0])
def test_a_set_of_queries_has_the_wanted_similarity(ways: int, wanted: float) -> None:
    g = generator(7, ways, wanted)
    got = mean(similarity(g.next(), g.pattern) for _ in range(3000))
    assert got == pytest.approx(wanted, abs=0.04)


def test_without_foreign_streams_all_sources_are_common() -> None:
    g = generator(3, 2, 0.5, streams=2)
    for _ in range(50):
        q = g.next()
        assert set(q.sources) == {"S1", "S2"}
        assert similarity(q, g.pattern) == 0.5


def test_the_same_seed_gives_the_same_queries() -> None:
    a, b, c = generator(1, 3, 0.5), generator(1, 3, 0.5), generator(2, 3, 0.5)
    first = [a.next() for _ in range(20)]
    assert first == [b.next() for _ in range(20)]
    assert first != [c.next() for _ in range(20)]


def test_a_selection_passes_the_wanted_share() -> None:
    g = generator(5, 2, 0.5, selectivity=0.3)
    for selection in (s for _ in range(50) for s in g.next().selections):
        assert isinstance(selection, Selection)
        passing = selection.value if selection.operator == "<" else 500 - selection.value
        assert passing == 150


def test_queries_survive_json() -> None:
    g = generator(9, 3, 0.5, selectivity="random")
    for _ in range(20):
        q = g.next()
        assert TemplateQuery.from_json(q.to_json()) == q


def test_queries_over_disjoint_tuples_differ_in_nothing_else() -> None:
    streams = ["S1", "S2"]
    pattern = pattern_query(streams, 2, Random(1), attributes=5)
    generator = QueryGenerator(
        pattern, streams, similarity=1.0, selectivity="disjoint", windows=(1,), keys=100, rng=Random(2), parts=4
    )
    queries = [generator.next() for _ in range(8)]
    assert {(q.sources, q.links) for q in queries} == {(pattern.sources, pattern.links)}
    parts = [q.selections[0] for q in queries]
    assert all(q.selections == (p, p) for q, p in zip(queries, parts, strict=True))
    assert [p.sql("S1.") for p in parts[:2] if p] == ["S1.a5 >= 0 AND S1.a5 < 25", "S1.a5 >= 25 AND S1.a5 < 50"]
    assert parts[:4] == parts[4:] and len(set(parts)) == 4
