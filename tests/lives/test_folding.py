"""Lives of queries that fold: everything is drawn, most of it delivers, and late tuples revise it."""

from __future__ import annotations

import re
from collections import Counter
from random import Random

from optimizer.model.aggregates import BUILT_IN
from optimizer.model.windows import CountWindow
from tests.lives import make_life, with_extra_query
from tests.oracle import oracle as oracle_module
from tests.oracle import run_oracle
from tests.oracle.folds import REVISION

LIVES = 250
TTL = re.compile(r" STATE_TTL \d+ \w+")


def told_with_queries(life):
    """What the oracle says, and the bound query of every SQL text."""
    bound = {}
    product = oracle_module._product_parser()

    def parse(sql, schemas):
        bound[sql] = product(sql, schemas)
        return bound[sql]

    return run_oracle(life, parse=parse), bound


def test_every_kind_of_window_and_query_is_drawn_delivers_and_is_revised():
    drawn, delivered, revised, functions = Counter(), Counter(), Counter(), Counter()
    for seed in range(LIVES):
        expected, bound = told_with_queries(make_life(Random(seed), "folding"))
        for told in expected.queries.values():
            query = bound[told.sql]
            joined = "join" if len(query.sources) > 1 else "one"
            kind = (type(query.window).__name__, "fold" if query.folds else "rows", joined)
            drawn[kind] += 1
            delivered[kind] += bool(told.rows)
            revised[kind] += told.folds and any(dict(row[2])[REVISION][1] > 0 for row in told.rows)
            functions.update(a.function for a in query.aggregates)
    aligned = [
        (w, what, of) for w in ("PeriodicWindow", "FixedWindow") for what in ("fold", "rows") for of in ("one", "join")
    ]
    by_data = [(w, "fold", "one") for w in ("SessionWindow", "CountWindow", "PunctuatedWindow")]
    assert drawn.keys() == {*aligned, *by_data, ("Unwindowed", "rows", "one")}
    assert all(delivered[kind] > 0.4 * times for kind, times in drawn.items()), delivered
    assert {kind for kind, times in revised.items() if times > 4} >= {
        *by_data,
        ("PeriodicWindow", "fold", "one"),
        ("PeriodicWindow", "fold", "join"),
    }, revised
    assert functions.keys() == BUILT_IN.keys()


def test_groups_having_and_filters_are_drawn():
    groups, having, filters = Counter(), 0, 0
    for seed in range(60):
        _, bound = told_with_queries(make_life(Random(seed), "folding"))
        for query in bound.values():
            if query.folds:
                groups[len(query.groups)] += 1
                having += query.having is not None
                filters += any(a.where is not None for a in query.aggregates)
    assert {0, 1, 2} == groups.keys()
    assert min(groups.values()) > 20
    assert having > 20
    assert filters > 10


def test_ttls_are_drawn_and_some_change_what_is_delivered():
    drawn, changed = Counter(), 0
    for seed in range(LIVES):
        life = make_life(Random(seed), "folding")
        expected, bound = told_with_queries(life)
        lasting = [{**line, "sql": TTL.sub("", line["sql"])} if "sql" in line else line for line in life]
        without = run_oracle(lasting)
        for id, told in expected.queries.items():
            query = bound[told.sql]
            if query.state_ttl_ms is not None:
                same = told.rows == without.queries[id].rows
                drawn[type(query.window).__name__] += 1
                changed += not same
                assert same or isinstance(query.window, CountWindow), "sessions never change"
            elif isinstance(query.window, CountWindow):
                drawn["none"] += 1
    assert drawn["CountWindow"] > 20 and drawn["SessionWindow"] > 10
    assert drawn["none"] > 2 * drawn["CountWindow"]
    assert changed > 0.3 * drawn["CountWindow"]


def test_some_windows_begin_too_late():
    refused = created = 0
    for seed in range(60):
        life = make_life(Random(seed), "folding")
        expected = run_oracle(life)
        refused += sum(reason == "WINDOW_IN_PAST" for _, reason in expected.errors)
        created += sum(id.startswith("perhaps") for id in expected.queries)
    assert refused > 5
    assert created > 5


def test_an_extra_query_that_folds_changes_nothing_else():
    for seed in range(40):
        life = make_life(Random(seed), "folding")
        more = with_extra_query(life, Random(seed), folding=True)
        plain, extended = run_oracle(life), run_oracle(more)
        assert {id: q for id, q in extended.queries.items() if id != "extra"} == plain.queries
