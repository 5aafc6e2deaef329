"""Joins on one key on Spark: an epoch of four streams is two jobs, and what splits and orders change is no row."""

from __future__ import annotations

from itertools import product

import pytest

from runtime.api import ForceOrder, ScaleTo, SplitPartition
from tests.runtime.rig import Rig

KEYS = 5
SQL = """SELECT V.k, V.n AS a, W.n AS b, C.n AS c, R.n AS d FROM V JOIN W ON V.k = W.k JOIN C ON W.k = C.k
         JOIN R ON C.k = R.k WINDOW TUMBLING (SIZE 1 SECOND)"""
CHAIN, BUSHY = ((("V", "W"), "C"), "R"), (("V", "W"), ("C", "R"))


@pytest.mark.spark
def test_an_epoch_of_a_four_way_join_on_one_key_is_two_jobs_on_spark(tmp_path, spark):
    rig = Rig(tmp_path, spark, partitions=2, pipelined=False)
    for stream in "VWCR":
        rig.stream(stream, k="BIGINT", n="BIGINT")
    rig.create("q", SQL)
    found = {}
    for epoch, (name, control) in enumerate({
        "chain": ForceOrder("q", CHAIN),
        "bushy": ForceOrder("q", BUSHY),
        "split": SplitPartition(0, 2),
        "split chain": ForceOrder("q", CHAIN),
        "more": ScaleTo(3),
    }.items()):  # fmt: skip
        rig.control(control)
        for part in range(2):  # the first one after a change rebuilds
            before = jobs(spark)
            n = 2 * epoch + part
            rig.epoch({stream: [(k, n, 10 * n) for k in range(KEYS)] for stream in "VWCR"})
            found[name] = jobs(spark) - before
    assert found == {"chain": 2, "bushy": 2, "split": 3, "split chain": 2, "more": 2}
    numbers = range(10)
    assert [row[2:] for row in rig.rows("q")] == [
        (k, *each) for k in range(KEYS) for each in product(numbers, repeat=4)
    ]
    rig.engine.close()


def jobs(spark):
    """How many Spark has run."""
    return spark.context._jsc.sc().dagScheduler().numTotalJobs()
