"""No step of a task lays out more than a stated number of rows or bytes at a time, and no bound shows in rows."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from ajoin.sql import parse_query
from ajoin.testing import LocalEngine
from runtime.api import ForceOrder, QueryState
from runtime.kernels.expand import cut, unroll
from runtime.operators import (
    close_counts,
    close_time,
    closed_rows,
    combinations,
    factorize,
    fold,
    folded,
    join,
    joined_output,
    matches,
    opening,
    row_widths,
    sink,
    stream_rows,
)
from tests.oracle.join import Tuple, windowed_join
from tests.oracle.rows import freeze
from tests.runtime.rig import Rig

BOUNDS = [
    (matches, "CHUNK"),
    (matches, "CHUNK_WORDS"),
    (sink, "FLUSH"),
    (opening, "LARGEST"),
    (opening, "LARGEST_WORDS"),
    (combinations, "WINDOWED"),
    (stream_rows, "WINDOWED"),
    (fold, "MOST_WAITING"),
    (close_time, "PAIRS"),
    (close_counts, "TUPLES"),
    (closed_rows, "ROWS"),
    (folded, "BLOCK"),
    (factorize, "WINDOWED"),
    (factorize, "FLUSH"),
    (factorize, "LONGEST"),
    (join, "MOST_PAIRS"),
    (join, "MOST_PAIR_WORDS"),
]
"""Every constant that says how much is laid out at a time."""

WINDOW = "WINDOW HOPPING (SIZE 30 MS, ADVANCE BY 5 MS)"
CHAIN = "FROM A JOIN B ON A.k = B.k JOIN C ON B.j = C.j JOIN D ON C.k = D.k"
QUERIES = {
    "rows": f"SELECT A.n AS a, B.n AS b, A.s AS s, window_start FROM A JOIN B ON A.k = B.k {WINDOW}",
    "texts": f"SELECT A.n AS a, B.n AS b FROM A JOIN B ON A.s = B.s WHERE A.n < B.n {WINDOW}",
    "lists": f"SELECT A.n AS a, B.n AS b, B.s AS s FROM A JOIN B ON A.k = B.k {WINDOW} EMIT FACTORIZED",
    "chain": f"SELECT A.n AS a, B.n AS b, C.n AS c, D.n AS d {CHAIN} {WINDOW}",
    "chain lists": f"SELECT A.n AS a, B.n AS b, C.n AS c, D.n AS d {CHAIN} {WINDOW} EMIT FACTORIZED",
    "count": f"SELECT COUNT(*) AS m FROM A JOIN B ON A.k = B.k {WINDOW}",
    "stream": f"SELECT n, s FROM A {WINDOW}",
    "sums": f"SELECT s, SUM(n) AS m, MEDIAN(n) AS d, LAST(n) AS l FROM B GROUP BY s {WINDOW}",
    "counts": "SELECT s, SUM(n) AS m FROM B GROUP BY s WINDOW COUNT (SIZE 3 ADVANCE BY 1)",
    "chain sums": f"SELECT A.s AS s, SUM(D.n) AS m, COUNT(DISTINCT C.n) AS c {CHAIN} GROUP BY A.s {WINDOW}",
    "chain count": f"SELECT COUNT(*) AS m {CHAIN} {WINDOW}",
}
ORDERS = [(("A", "B"), ("C", "D")), ((("A", "B"), "C"), "D"), ("A", ("B", ("C", "D")))]


def lived(path: Path, order: Any) -> dict[str, Counter[Any]]:
    """What every query got; tuples of few keys in many slices, in two epochs."""
    rng = Random(7)
    with LocalEngine(path) as engine:
        for name in "ABCD":
            engine.create_stream(
                name, columns={"k": "BIGINT", "j": "BIGINT", "n": "BIGINT", "s": "STRING", "ts": "TIMESTAMP"}
            )
        for id, sql in QUERIES.items():
            engine.create_query(sql, id=id)
            if "chain" in id:
                engine.apply(ForceOrder(id, order))
        for epoch in range(2):
            for name in "ABCD":
                for i in range(5):
                    keys = {"k": rng.randrange(2), "j": rng.randrange(2)}
                    engine.push(name, keys | {"n": 10 * epoch + i, "s": "xy"[i % 2] * 5, "ts": 25 * epoch + 4 * i})
            engine.run_epoch()
        engine.raise_watermark(None)
        engine.run_epoch()
        return {id: Counter(tuple(row.items()) for row in engine.rows(id)) for id in QUERIES}


@pytest.fixture(scope="module")
def unbounded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Counter[Any]]:
    return lived(tmp_path_factory.mktemp("state"), ORDERS[0])


@pytest.mark.parametrize(("bound", "order"), list(zip([1, 3, 7], ORDERS, strict=True)))
def test_no_bound_shows_in_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unbounded: dict[str, Counter[Any]], bound: int, order: Any
) -> None:
    for module, name in BOUNDS:
        monkeypatch.setattr(module, name, bound)
    monkeypatch.setattr(row_widths, "BYTES", 100 * bound)
    found = lived(tmp_path, order)
    assert sum(unbounded["chain"].values()) > 1000 and all(unbounded.values())
    assert found == unbounded


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("mode", ["", "EMIT FACTORIZED"])
def test_lists_within_lists_open_in_pieces_at_every_level(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: Any, mode: str
) -> None:
    """One key, so that a handful of items stands for all combinations."""
    seen: list[int] = []

    def watched(starts: Any, ends: Any) -> Any:
        which, position = unroll(starts, ends)
        seen.append(len(which))
        return which, position

    n, bound = 8, 50
    monkeypatch.setattr(opening, "LARGEST", bound)
    monkeypatch.setattr(opening, "unroll", watched)
    with LocalEngine(tmp_path) as engine:
        for name in "ABCD":
            engine.create_stream(name, columns={"k": "BIGINT", "n": "BIGINT", "ts": "TIMESTAMP"})
        on = "FROM A JOIN B ON A.k = B.k JOIN C ON B.k = C.k JOIN D ON C.k = D.k"
        engine.create_query(
            f"SELECT A.n AS a, B.n AS b, C.n AS c, D.n AS d {on} WINDOW TUMBLING (SIZE 1 SECOND) {mode}", id="q"
        )
        engine.apply(ForceOrder("q", order))
        for name in "ABCD":
            engine.push(name, *({"k": 7, "n": i, "ts": 1} for i in range(n)))
        engine.run_epoch()
        rows = {(r["a"], r["b"], r["c"], r["d"]) for r in engine.rows("q")}
        assert len(rows) == n**4 == engine.engine.query("q").rows
    if not mode:
        assert seen and max(seen) <= bound


def test_rows_with_long_texts_are_made_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_widths, "BYTES", 1 << 18)
    rig = Rig(tmp_path)
    for name in "AB":
        rig.stream(name, k="BIGINT", s="STRING")
    rig.create("rows", "SELECT A.s AS a, B.s AS b FROM A JOIN B ON A.k = B.k WINDOW TUMBLING (SIZE 1 SECOND)")
    rig.create("many", f"SELECT A.s AS a, B.k AS k FROM A JOIN B ON A.k = B.k {WINDOW}")
    rig.create("lists", f"SELECT A.s AS a, B.s AS b FROM A JOIN B ON A.k = B.k {WINDOW} EMIT FACTORIZED")
    rig.epoch({name: [(7, f"{name}{i}" * 4000, 1) for i in range(12)] for name in "AB"})
    sizes = [b.rows.nbytes for id in ("rows", "many", "lists") for b in rig.engine.read_results(id, None, 1 << 20)]
    assert rig.engine.query("rows").rows == 144 and max(sizes) < 2 * (1 << 18) < sum(sizes)
    assert rig.engine.query("many").rows == rig.engine.query("lists").rows == 6 * 144
    assert Counter((a, b) for _, _, a, b in rig.rows("rows")) == Counter(
        (f"A{i}" * 4000, f"B{j}" * 4000) for i in range(12) for j in range(12)
    )


def test_texts_that_functions_make_are_made_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_widths, "BYTES", 1 << 18)
    rig = Rig(tmp_path)
    for name in "AB":
        rig.stream(name, k="BIGINT", s="STRING")
    long = f"REPLACE(A.s, 'x', '{'y' * 500}')"
    rig.create("rows", f"SELECT {long} || B.s AS y FROM A JOIN B ON A.k = B.k WINDOW TUMBLING (SIZE 1 SECOND)")
    rig.epoch({name: [(7, "x" * 20 + str(i), 1) for i in range(12)] for name in "AB"})
    sizes = [b.rows.nbytes for b in rig.engine.read_results("rows", None, 1 << 20)]
    assert rig.engine.query("rows").rows == 144 and max(sizes) < 2 * (1 << 18) < sum(sizes)
    assert Counter(y for _, _, y in rig.rows("rows")) == Counter(
        "y" * 10_000 + str(i) + "x" * 20 + str(j) for i in range(12) for j in range(12)
    )


@pytest.mark.parametrize("most", [1, 2, 5, 100])
def test_ranges_are_cut_where_they_have_to_be(most: int) -> None:
    starts, ends = np.array([3, 9, 0, 5, 5]), np.array([7, 9, 11, 5, 6])
    which, position = unroll(starts, ends)
    pieces = [(unroll(p.starts, p.ends), p.first) for p in cut(starts, ends, most)]
    assert np.concatenate([w + first for (w, _), first in pieces]).tolist() == which.tolist()
    assert np.concatenate([at for (_, at), _ in pieces]).tolist() == position.tolist()
    assert [len(w) for (w, _), _ in pieces][:-1] == [most] * (len(pieces) - 1)
    assert list(cut(starts[:0], ends[:0], most)) == []


# -- the statements that stopped a platform ---------------------------------------------------------------------------


FINE = "FROM A JOIN B ON A.k = B.k WINDOW HOPPING (SIZE 10 SECONDS, ADVANCE BY 1 MS)"
PAIRS = "SELECT A.n AS a, B.n AS b"


def fine(path: Path, sql: str, tuples: int) -> LocalEngine:
    """`tuples` matches, each in 10,000 windows but a few."""
    engine = LocalEngine(path)
    for name in "AB":
        engine.create_stream(name, columns={"k": "BIGINT", "n": "BIGINT", "ts": "TIMESTAMP"})
    engine.create_query(sql, id="q")
    for name, shift in (("A", 0), ("B", 3)):
        engine.push(name, *({"k": i, "n": i, "ts": 50_000 + i % 7 + shift} for i in range(tuples)))
    engine.run_epoch()
    return engine


def test_ten_thousand_windows_per_tuple_give_exactly_the_rows_of_the_oracle(tmp_path: Path) -> None:
    with fine(tmp_path, f"{PAIRS} {FINE}", 3) as engine:
        query = parse_query(f"{PAIRS} {FINE}", engine.engine.schemas())
        fed = {
            name: [Tuple(1, 50_000 + i + s, {"k": i, "n": i, "ts": 50_000 + i + s}) for i in range(3)]
            for name, s in (("A", 0), ("B", 3))
        }
        found = Counter(freeze(r.pop("window_start"), r.pop("window_end"), r) for r in engine.rows("q"))
        assert found.total() == 3 * 9_997
        assert found == windowed_join(query, fed, engine.engine.query("q").active_from)


def test_ten_thousand_windows_per_tuple_are_counted_exactly(tmp_path: Path) -> None:
    with fine(tmp_path, f"SELECT COUNT(*) AS m {FINE}", 7) as engine:
        engine.raise_watermark(None)
        engine.run_epoch()
        counted = {r["window_start"]: r["m"] for r in engine.rows("q")}
    expected: Counter[int] = Counter()
    for i in range(7):
        expected.update(range(50_000 + i + 3 - 10_000 + 1, 50_000 + i + 1))
    assert counted == expected


PROGRAM = """
import resource, sys
from pathlib import Path
import runtime.machine.warm; runtime.machine.warm.warm_up()
from tests.runtime.test_bounded import FINE, PAIRS, fine
fine(Path(sys.argv[1]) / "first", f"{PAIRS} {FINE} {sys.argv[3]}", 2).close()
base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
engine = fine(Path(sys.argv[1]) / "state", f"{PAIRS} {FINE} {sys.argv[3]}", int(sys.argv[2]))
print(engine.engine.query("q").rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base)
engine.close()
"""


@pytest.mark.parametrize("mode", ["EMIT ROWS", "EMIT FACTORIZED"])
def test_ten_thousand_windows_per_tuple_take_the_memory_of_one_piece(tmp_path: Path, mode: str) -> None:
    grown = {}
    for tuples in (110, 550):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(tmp_path / str(tuples)), str(tuples), mode],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        rows, kilobytes = map(int, done.stdout.split())
        assert rows == tuples * 9_997
        grown[tuples] = kilobytes
    # five times as many rows, but not five times the memory: pieces are of one size, and even the first run fills one
    assert grown[550] < 2 * max(grown[110], 30_000), grown


def test_a_hostile_pattern_on_long_texts_ends(tmp_path: Path) -> None:
    """As a selection, where it is looked at once per text, and between two streams, where it is once per row."""
    hostile = "LIKE '%a%a%a%a%a%a%a%a%b'"
    with LocalEngine(tmp_path) as engine:
        for name in "AB":
            engine.create_stream(name, columns={"k": "BIGINT", "s": "STRING", "ts": "TIMESTAMP"})
        on = "SELECT A.k AS a, B.k AS b FROM A JOIN B ON A.k = B.k"
        engine.create_query(f"{on} WHERE A.s {hostile} WINDOW TUMBLING (SIZE 1 SECOND)", id="one")
        engine.create_query(f"{on} WHERE A.s {hostile} OR B.s {hostile} WINDOW TUMBLING (SIZE 1 SECOND)", id="both")
        long = "a" * 100_000
        engine.push("A", {"k": 1, "s": long, "ts": 1}, {"k": 2, "s": long + "b", "ts": 1}, {"k": 3, "s": None, "ts": 1})
        engine.push("B", *({"k": k, "s": long + "b" * (k == 1), "ts": 2} for k in (1, 2, 3)))
        engine.run_epoch()
        assert [r["a"] for r in engine.rows("one")] == [2]
        assert sorted(r["a"] for r in engine.rows("both")) == [1, 2]


def test_a_join_that_hands_on_too_much_is_its_querys_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A join of joins by columns of both sides must lay out its pairs: 3,600 items are more than may be."""
    monkeypatch.setattr(joined_output, "MOST_BYTES", 3_000 * joined_output.ITEM)
    both = f"SELECT A.n AS a FROM A JOIN B ON A.k = B.k JOIN C ON A.n = C.n AND B.n = C.j {WINDOW}"
    r = Rig(tmp_path)
    for name in "ABC":
        r.stream(name, k="BIGINT", j="BIGINT", n="BIGINT")
    r.create("good", f"SELECT A.n AS a, B.n AS b FROM A JOIN B ON A.n = B.n {WINDOW}")
    r.create("fine", f"SELECT A.n AS a, C.n AS c FROM A JOIN C ON A.n = C.n {WINDOW}")
    r.create("huge", both)
    r.control(ForceOrder("huge", (("A", "B"), "C")))
    r.epoch({key: [(1, i, i, 7) for i in range(60)] for key in "ABC"})
    huge = r.engine.query("huge")
    assert huge.state == QueryState.SUSPENDED and "hands on more than" in huge.suspended
    windows = 6
    assert len(r.local.rows("good")) == len(r.local.rows("fine")) == 60 * windows
    r.local.close()
