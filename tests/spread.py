"""Which worker runs which test, and in which order, when `make test` uses more than one.

A worker takes the next piece of work that nobody has. A piece is one test, except for two kinds of groups:

- Tests that need the Spark session or the Kafka broker are one group: one worker starts one of each, not every worker
  its own. Spark comes first in it, because it should be started before this process has threads of gRPC.
- Files whose tests share a costly fixture are a group each, so that it is made once.
- Tests that need the S3 server are one group, and the last one: it is built meanwhile (tests/tools/minio.py).

Groups and tests that take long come first, so at the end only short ones are left and the workers finish together.
Groups are told by the test's name, because that is all a scheduler knows of it; `order` checks that the names tell the
truth. (xdist's own mark for groups does nothing with pytest 9.2.)
"""

from __future__ import annotations

import re

import pytest
from xdist.scheduler import LoadScopeScheduling

JVM = re.compile(r"^tests/(kafka/|lives/test_lives_spark)|^(?!tests/poison/).*_on_spark")
"""The poison campaign has a Spark of its own, in a process of its own."""
NEEDS_JVM = ("spark", "broker")
"""Fixtures, in the order in which they should be started."""
S3 = re.compile(r"_s3\.py::|_on_s3")
NEEDS_S3 = "s3"

TOGETHER = (
    "tests/cluster/test_cluster",
    "tests/cluster/test_hosts",
    "tests/cluster/test_elastic",
    "tests/experiments/test_driver",
    "tests/faults/test_crash_points",
    "tests/runtime/test_store_crashes",
    "tests/runtime/test_recovery",
    "tests/runtime/test_batches",
    "tests/runtime/test_figure_12",
    "tests/ajoin/test_bad_input",
    "tests/ajoin/test_cli_serve",
    "tests/ajoin/test_service_security",
)
"""Files whose tests share a costly fixture."""

LONG = (
    "tests/poison/",
    "tests/cluster/",
    "tests/faults/",
    "tests/experiments/test_driver",
    "tests/runtime/test_kill",
    "tests/lives/",
    "tests/runtime/test_store_crashes",
    "tests/runtime/test_recovery",
    "tests/ajoin/test_standby",
    "tests/ajoin/test_cli_serve",
    "tests/runtime/test_hot_key",
    "tests/crosscheck/",
    "tests/runtime/test_retention",
    "tests/runtime/test_many_queries",
    *TOGETHER,
)
"""Files and folders that come first, the longest at the front."""
LAST = 1 << 20


class Spread(LoadScopeScheduling):  # type: ignore[misc]
    """xdist's scheduler of groups, with the groups of this page."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


def group(nodeid: str) -> str:
    """The name of the test's group; a test of none is its own."""
    if JVM.search(nodeid):
        return "jvm"
    if S3.search(nodeid):
        return "s3"
    return next((file for file in TOGETHER if nodeid.startswith(file)), nodeid)


def order(items: list[pytest.Item]) -> None:
    for item in items:
        if fixtures(item) & set(NEEDS_JVM) and group(item.nodeid) != "jvm":
            raise pytest.UsageError(f"{item.nodeid} needs a JVM: its name must say so, see tests/spread.py")
        if NEEDS_S3 in fixtures(item) and group(item.nodeid) != "s3":
            raise pytest.UsageError(f"{item.nodeid} needs S3: its name must say so, see tests/spread.py")
    items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    for rank, fixture in enumerate(NEEDS_JVM):
        if fixture in fixtures(item):
            return rank
    if group(item.nodeid) == "jvm":
        return len(NEEDS_JVM)
    if group(item.nodeid) == "s3":
        return LAST
    place = next((i for i, part in enumerate(LONG) if item.nodeid.startswith(part)), len(LONG))
    return 1 + len(NEEDS_JVM) + place


def fixtures(item: pytest.Item) -> set[str]:
    return set(getattr(item, "fixturenames", ()))
