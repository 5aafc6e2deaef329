"""Count windows that overlap are combined from pieces: the same values as from all their tuples, for every function."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest

from optimizer.model.combining import in_pieces
from optimizer.model.types import ColumnType
from optimizer.model.windows import CountWindow
from runtime.aggregates.components import components_of, lower
from runtime.aggregates.states import lift
from runtime.operators import count_pieces
from runtime.operators.count_pieces import combined, cut
from tests.lives.engine import differences, play
from tests.runtime.aggregates import BIGGEST, aggregate, column, expected, values_of

B, D, I, S, T = ColumnType.BIGINT, ColumnType.DOUBLE, ColumnType.INT, ColumnType.STRING, ColumnType.TIMESTAMP
CASES = [
    ("COUNT", []), ("COUNT", [S]), ("SUM", [B]), ("SUM", [D]), ("SUM", [I]), ("AVG", [I]), ("MIN", [B]), ("MAX", [D]),
    ("MIN", [T]), ("MIN", [S]), ("STDDEV", [D]), ("FIRST", [B]), ("LAST", [S]), ("ARG_MAX", [S, D]),
]  # fmt: skip
VALUES = {
    B: [1, 2, 3, None, -7],
    I: [5, -5, None, 2],
    D: [0.5, 0.1, None, -1e9],
    S: ["a", "", None, "b", "ä"],
    T: [1, 9, None],
}


@pytest.mark.parametrize(("function", "types"), CASES)
@pytest.mark.parametrize("seed", range(6))
def test_pieces_give_what_all_tuples_give(function, types, seed, monkeypatch):
    if seed % 2:
        monkeypatch.setattr(count_pieces, "PIECES", 30)
    random = np.random.default_rng(seed)
    size, advance = int(random.integers(2, 30)), int(random.integers(1, 6))
    runs = [int(random.integers(0, 80)) for _ in range(4)]
    begins = np.array([
        sum(runs[:i]) + start for i, length in enumerate(runs) for start in range(0, length - size + 1, advance)
    ])  # fmt: skip
    begins = begins[random.random(len(begins)) < 0.8]  # not all of them are due
    if len(begins):
        drawn = [[VALUES[t][int(random.integers(len(VALUES[t])))] for t in types] for _ in range(sum(runs))]
        check(aggregate(function, types), drawn, begins, size, random)


def check(agg, drawn, begins, size, random):
    """`drawn`: arguments of the tuples in their order; in the state they stand in another one."""
    stored = random.permutation(len(drawn))
    ordered = np.argsort(stored)
    times = stored.astype(np.int64)
    arguments = tuple(column(a.type, [drawn[i][k] for i in stored]) for k, a in enumerate(agg.arguments))
    states = {c: lift(c, arguments, None, times) for c in components_of(agg)}
    made = combined(states.__getitem__, ordered, cut(begins, begins + size))
    found = values_of(lower(agg, {c: made(c) for c in states}))
    for begin, value in zip(begins.tolist(), found, strict=True):
        wanted = expected(agg, [(i, True, *drawn[i]) for i in range(begin, begin + size)])
        assert value == (pytest.approx(wanted) if agg.function == "STDDEV" else wanted), begin


def test_sums_that_leave_64_bits_on_the_way():
    drawn = [[v] for v in (BIGGEST, BIGGEST, -BIGGEST, -BIGGEST, 5, BIGGEST, -BIGGEST, 7)]
    check(aggregate("SUM", [B]), drawn, np.arange(0, 4), 5, np.random.default_rng(1))


def test_a_large_number_of_one_group_does_not_swallow_a_small_one_of_the_next():
    drawn = [[1e300]] * 6 + [[1e-9]] * 6
    check(aggregate("SUM", [D]), drawn, np.array([0, 1, 2, 6, 7, 8]), 4, np.random.default_rng(1))


def test_an_infinity_leaves_with_its_window():
    drawn = [[math.inf], *([[0.5]] * 7)]
    check(aggregate("SUM", [D]), drawn, np.arange(0, 5), 4, np.random.default_rng(1))


def test_only_where_windows_overlap_and_partials_stay_small():
    assert in_pieces(CountWindow(100, 10), ["sum", "count"])
    assert not in_pieces(CountWindow(100, 100), ["sum"])
    assert not in_pieces(CountWindow(100, 10), ["sum", "runs"])


SELECTED = [
    "COUNT(*) AS n, SUM(i) AS s, MAX(i) AS m",
    "AVG(i) AS a, STDDEV(i) AS d, ARG_MAX(i, ts) AS x, MIN(t) AS t",
    "FIRST(i) AS f, LAST(t) AS l, MEDIAN(i) AS d",
]


@pytest.mark.parametrize("selected", SELECTED)
@pytest.mark.parametrize("seed", range(4))
def test_rows_and_revisions_are_those_of_the_oracle(selected, seed):
    """Some groups have late tuples and are replayed, some pause for longer than the STATE_TTL, HAVING drops rows."""
    random = Random(seed)
    columns = {"ts": "TIMESTAMP", "k": "BIGINT", "i": "INT", "t": "STRING"}
    stream = {"stream": "A", "schema": columns, "time": "ts", "allowed_lateness_ms": 40, "watermark_delay_ms": 3}
    size, advance = random.choice([(4, 1), (9, 2), (12, 3), (7, 1)])
    rest = random.choice(["", " STATE_TTL 9 MS"])
    having = random.choice(["", f" HAVING COUNT(*) = {size} AND MIN(i) < 4"])
    sql = f"SELECT k, {selected} FROM A GROUP BY k{having} WINDOW COUNT (SIZE {size} ADVANCE BY {advance}){rest}"
    lines = [stream, {"create": "q", "sql": sql}]
    time = 100
    for _ in range(6):
        for _ in range(30):
            time += random.choice([0, 0, 1, 1, 2, 12 if random.random() < 0.1 else 0])
            k = random.randint(1, 3)
            late = random.choice([0, 0, 0, 20]) if k == 1 else 0
            texts = random.choice(["a", "b", "ä"])
            lines.append({"event": "A", "row": {"ts": time - late, "k": k, "i": random.randint(-9, 9), "t": texts}})
        lines.append({"epoch": True})
    lines.append({"watermark": "A", "ts": time + 100})
    lines.append({"epoch": True})
    results, _, _ = play(lines)
    assert len(results) > 5
    assert differences(lines) == []
