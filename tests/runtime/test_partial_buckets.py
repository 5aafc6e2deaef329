"""What partial buckets hold, looked at from outside: nothing of tuples where partials are enough."""

from __future__ import annotations

import pytest

from runtime.state_tools.report import inspect
from runtime.state_tools.verify import verify
from tests.runtime.rig import Rig

TEN = "WINDOW TUMBLING (SIZE 10 SECONDS)"
TUPLES = [(n % 3, n, 100 * n) for n in range(60)]
"""(k, n, ts): three groups, six seconds."""


@pytest.fixture
def rig(tmp_path):
    made = Rig(tmp_path / "state")
    made.stream("A", k="BIGINT", n="BIGINT")
    made.stream("B", k="BIGINT", n="BIGINT")
    return made


def told(rig, *queries):
    """The partial buckets after one epoch over TUPLES with these queries."""
    for i, sql in enumerate(queries):
        rig.create(f"q{i}", sql)
    rig.epoch({"A": TUPLES, "B": TUPLES[:6]})
    return inspect(rig.directory).partials


def test_aligned_windows_of_decomposable_functions_keep_no_tuples(rig):
    (bucket,) = told(rig, f"SELECT k, COUNT(*), SUM(n), AVG(n), MAX(n) FROM A GROUP BY k {TEN}")
    assert not rig.engine.state.sources, "nothing of the stream itself"
    assert (bucket.of, bucket.cut, bucket.keeps, bucket.entries) == ("A", "Slices", "partials", 3)
    assert sorted(bucket.components) == ["count", "count", "max", "sum"], "COUNT(*), and what AVG, SUM and MAX need"
    assert bucket.bytes == (rig.directory / "buckets" / bucket.file).stat().st_size


def test_there_are_no_more_entries_than_groups_slices_and_query_sets(rig):
    second = "WINDOW HOPPING (SIZE 2 SECONDS, ADVANCE BY 1 SECOND)"
    (bucket,) = told(
        rig,
        f"SELECT k, SUM(n) FROM A GROUP BY k {second}",
        f"SELECT k, COUNT(*) FROM A WHERE n < 30 GROUP BY k {TEN}",
        f"SELECT k, MIN(n) FROM A WHERE n >= 30 GROUP BY k {second}",
    )
    assert bucket.entries == 3 * 6, "three groups, six slices, and in each slice one query set"


def test_what_each_kind_of_window_and_function_keeps(rig):
    buckets = told(
        rig,
        "SELECT k, SUM(n) FROM A GROUP BY k WINDOW COUNT (SIZE 7)",
        "SELECT k, SUM(n) FROM A GROUP BY k WINDOW SESSION (1 SECOND)",
        "SELECT k, SUM(n) FROM A GROUP BY k WINDOW PUNCTUATED BY (n = 17)",
        f"SELECT MEDIAN(n) FROM A {TEN}",
    )
    assert {b.cut: (b.keeps, b.entries) for b in buckets} == {
        "Tuples": ("tuples", 60),
        "Pieces": ("partials", 3),
        "Times": ("partials", 60),
        "Slices": ("values", 1),
    }


def test_over_a_join_tuples_are_kept_for_the_join_and_rows_are_not(rig):
    (bucket,) = told(rig, f"SELECT A.k, COUNT(*) FROM A JOIN B ON A.k = B.k GROUP BY A.k {TEN}")
    assert (bucket.of, bucket.cut, bucket.keeps, bucket.entries) == ("join", "Slices", "partials", 3)
    assert sorted(ref.rows for ref in rig.engine.state.sources.values()) == [6, 60]


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        (f"SELECT COUNT(*) FROM A {TEN}", "reads its 60 tuples again from source push of stream A"),
        (f"SELECT COUNT(*) FROM A JOIN B ON A.k = B.k {TEN}", "runs the joins of epoch 1 again"),
    ],
)
def test_verify_finds_damage_and_says_what_follows(rig, sql, what):
    (bucket,) = told(rig, sql)
    assert verify(rig.directory).problems == ()
    path = rig.directory / "buckets" / bucket.file
    path.write_bytes(path.read_bytes()[:-1])
    (problem,) = verify(rig.directory).problems
    assert (problem.file, problem.reason) == (f"buckets/{bucket.file}", "BUCKET_DAMAGED")
    assert what in problem.consequence
    path.write_bytes(b"")
    assert inspect(rig.directory).partials[0].cut == "", "what cannot be read is still listed"


def test_what_was_carried_cannot_be_made_again(rig):
    rig.create("session", "SELECT k, COUNT(*) FROM A GROUP BY k WINDOW SESSION (5 SECONDS)")
    for epoch in range(9):
        rig.epoch({"A": [(1, epoch, 1000 * epoch)]})
    carried = [b for b in inspect(rig.directory).partials if b.carried]
    assert carried and {b.of for b in carried} == {"A"}
    (rig.directory / "buckets" / carried[0].file).unlink()
    (problem,) = verify(rig.directory).problems
    assert problem.reason == "BUCKET_MISSING" and "suspends session" in problem.consequence
