"""Figure 8 of the AJoin paper: two queries with one predicate and different windows share bucket joins.

Bucket i holds the tuples of second i. Q1's window is one bucket long, Q2's is two.

    time       T1C      T2C                                   T1D      T2D
    bucket      1        2          3             4            5        6
    Q1         1⋈1      2⋈2        3⋈3           4⋈4
    Q2                  2⋈2   3⋈3 2⋈3 3⋈2        4⋈4      5⋈5 4⋈5 5⋈4

3 ⋈ 3 is done once, for both; 2 ⋈ 3 and 3 ⋈ 2 are associated with Q2 only; a bucket goes when no window needs it.
"""

from __future__ import annotations

import pytest

from runtime.execution.executor import LocalExecutor
from tests.runtime.rig import Rig

JOIN = "SELECT A.n AS a, B.n AS b FROM A JOIN B ON A.k = B.k WINDOW TUMBLING (SIZE {} SECONDS)"


class Watching(LocalExecutor):
    """Remembers how many pairs of index entries each join stage found."""

    def __init__(self):
        self.matches = 0

    def run(self, name, stage, shared, tasks):
        reports = super().run(name, stage, shared, tasks)
        if "join" in name:
            self.matches = sum(n for report in reports for n in report.matches.values())
        return reports


@pytest.fixture
def rig(tmp_path):
    rig = Rig(tmp_path, Watching(), partitions=1)
    rig.stream("A", k="BIGINT", n="INT")
    rig.stream("B", k="BIGINT", n="INT")
    return rig


def bucket(rig, i):
    """Second i on both streams, with its watermark; returns (bucket joins done, delivered by query)."""
    rig.epoch({"A": [(7, i, 1000 * i + 100)], "B": [(7, i, 1000 * i + 200)]}, watermark=1000 * (i + 1))
    return rig.executor.matches, {id: [row[2:] for row in rows] for id, rows in rig.delivered().items()}


def open_buckets(rig):
    return [rig.tuples(s)[0]["n"] for s in rig.sources("A")]


def test_the_whole_figure(rig):
    assert rig.create("q1", JOIN.format(1)).active_from is None  # T1C
    assert bucket(rig, 1) == (1, {"q1": [(1, 1)]})
    assert open_buckets(rig) == []  # joined, emitted, no longer needed

    assert rig.create("q2", JOIN.format(2)).active_from == 2000  # T2C
    (node,) = rig.engine.plan.nodes
    assert len(rig.engine.plan.nodes[node]) == 2  # one join operator for both

    assert bucket(rig, 2) == (1, {"q1": [(2, 2)], "q2": [(2, 2)]})
    assert open_buckets(rig) == [2]  # Q2's window goes on

    # three bucket joins serve four: 3 ⋈ 3 is shared
    assert bucket(rig, 3) == (3, {"q1": [(3, 3)], "q2": [(2, 3), (3, 2), (3, 3)]})
    assert open_buckets(rig) == []

    assert bucket(rig, 4) == (1, {"q1": [(4, 4)], "q2": [(4, 4)]})
    assert open_buckets(rig) == [4]

    assert rig.delete("q1").active_until == 5000  # T1D
    assert bucket(rig, 5) == (3, {"q2": [(4, 5), (5, 4), (5, 5)]})
    assert open_buckets(rig) == []

    bucket(rig, 6)
    assert open_buckets(rig) == [6]
    assert rig.delete("q2").active_until == 7000  # T2D
    rig.epoch()
    assert open_buckets(rig) == []
    assert rig.files("buckets") == []

    assert rig.rows("q1") == [(1000 * i, 1000 * i + 1000, i, i) for i in (1, 2, 3, 4)]
    assert [row[2:] for row in rig.rows("q2")] == [
        (2, 2), (2, 3), (3, 2), (3, 3), (4, 4), (4, 5), (5, 4), (5, 5), (6, 6)
    ]  # fmt: skip


def test_a_late_bucket_is_just_one_more_bucket(tmp_path):
    """The paper allows disorder inside one bucket only; here 2 arrives after 3 and finds everything."""
    rig = Rig(tmp_path, Watching(), partitions=1)
    rig.stream("A", k="BIGINT", n="INT", delay=5000)
    rig.stream("B", k="BIGINT", n="INT", delay=5000)
    rig.create("q2", JOIN.format(2))
    for i in (3, 2):
        rig.epoch({"A": [(7, i, 1000 * i)], "B": [(7, i, 1000 * i)]})
    assert rig.executor.matches == 3
    assert [row[2:] for row in rig.rows("q2")] == [(2, 2), (2, 3), (3, 2), (3, 3)]
