"""What tasks asked of the store is told per executor, added up, and shown."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ajoin.cli.inspect import _executors, spans
from ajoin.wire.convert.admin import status_from_pb, status_to_pb
from runtime.api import ExecutorStatus, PlatformStatus, Traffic
from runtime.plugins import load
from runtime.spark.executor import SparkExecutor
from runtime.store.buckets import FIRST, ObjectBuckets
from runtime.store.traffic import Meter, Totals, task_cache
from tests.runtime.rig import Rig
from tests.runtime.test_store import JOIN
from tests.tools.store_double import Double

MANY = 100_000


def test_a_process_tells_what_its_tasks_fetched_and_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    store = Double()
    cache = task_cache(1 << 30)
    writer = ObjectBuckets(store.open(), "p", cache, 1 << 30, keeps=False)
    written = writer.write("t/b.1.bucket", {}, {"a": np.arange(MANY)})

    def look() -> Traffic:
        meter = Meter()
        ObjectBuckets(store.uri, "p", cache, 1 << 30).open(written.file).arrays["a"]
        (told,) = [told for told in meter.read() if told.cache == str(cache.directory)]
        return told

    first, second = look(), look()
    assert 8 * MANY < first.fetched_bytes <= written.bytes + FIRST and first.requests > 0 == first.hit_bytes
    assert (second.requests, second.fetched_bytes) == (0, 0) and second.hit_bytes >= 8 * MANY
    assert first.held_bytes == second.held_bytes > 8 * MANY


def test_figures_of_an_executor_add_up_and_its_cache_is_as_it_was_last_seen() -> None:
    totals = Totals()
    totals.add("b", (Traffic("/b", 1, 10, 0, 50),))
    totals.add("a", (Traffic("/a", 2, 20, 5, 70),))
    totals.add("b", (Traffic("/b", 3, 30, 7, 40),))
    assert totals.read() == {"a": Traffic("/a", 2, 20, 5, 70), "b": Traffic("/b", 4, 40, 7, 40)}
    totals.drop("b")
    assert list(totals.read()) == ["a"]


def test_the_status_says_it() -> None:
    executors = (
        ExecutorStatus("0", "one", 2, (0, 1, 2, 5), 3, 1 << 20, 3 << 20, 2 << 20, "/c"),
        ExecutorStatus("11", "two", 1, (), 0, 0, 0, 0, ""),
    )
    status = PlatformStatus("RUNNING", 7, 1, 2, 1, 10, 5, 4, 9, 0.1, 1.0, store_bytes=9, executors=executors)
    assert status_from_pb(status_to_pb(status, "1")) == status
    count, one, two = _executors(status)["executors"].splitlines()
    assert count == "2 with 3 cores"
    assert one.strip() == (
        "0 on one: 2 cores, partitions 0-2, 5, 2.0 MiB in its cache (75% found there), 1.0 MiB fetched in 3 requests"
    )
    assert two.strip() == "11 on two: 1 core, no partitions"
    assert spans((3, 5, 6, 8, 9, 10)) == "3, 5-6, 8-10"


@pytest.mark.spark
def test_tasks_tell_it_on_spark(tmp_path: Path, spark: SparkExecutor) -> None:
    load(("tests.tools.opaque_store",))
    rig = Rig(tmp_path / "state", spark, store=f"opaque://{tmp_path}/store")
    rig.stream("A", k="BIGINT", n="BIGINT")
    rig.stream("B", k="BIGINT", n="BIGINT")
    rig.create("q", JOIN)
    rig.epoch({"A": [(1, 2, 5)], "B": [(1, 3, 6)]})
    assert [row[2:] for row in rig.rows("q")] == [(2, 3)]
    (driver,) = rig.engine.status().executors
    assert (driver.executor, driver.cores, driver.partitions) == (
        "driver",
        2,
        tuple(range(rig.engine.plan.partitioning.count)),
    )
    assert driver.held_bytes > 0 and driver.cache
    rig.engine.close()
