"""Executors asked for and given back, where their number is the platform's to choose.

On a cluster whose master starts executors on request (standalone, YARN, Kubernetes) Spark's context takes the number of
executors that an application wants (`requestTotalExecutors`); the master starts them as soon as it has room, and one by
one. Given back are the youngest, because they have the least in their caches, and as Spark's decommissioning does it:
an executor that is to go takes no new task, finishes those it runs, and leaves. Its tasks are simply run elsewhere;
with a store nothing of what they wrote is lost with it.

Who is there is asked of Spark's own status store: hosts and cores as they registered. With dynamic allocation Spark
chooses the number of executors itself, by waiting tasks; then this is not used.
"""

from __future__ import annotations

import logging
import math
from typing import Any, NamedTuple

from optimizer.policy.scaling import Machines

log = logging.getLogger("ajoin.fleet")

DRIVER = "driver"


class Member(NamedTuple):
    """An executor: its id in Spark, its host, and how many tasks it runs at the same time."""

    id: str
    host: str
    cores: int

    @property
    def age(self) -> tuple[int, str]:
        """Sorts by when they came: Spark counts."""
        return (int(self.id) if self.id.isdecimal() else 0, self.id)


class SparkFleet:
    """Owned by the engine's thread. Between `least` and `most` executors; it begins with as many as there are up to
    `most`, because what was running before a restart needs them at once, and gives back what is not needed."""

    def __init__(self, context: Any, least: int, most: int) -> None:
        self._context, self._spark = context, context._jsc.sc()
        self._least, self._most = least, max(least, most)
        self._going: set[str] = set()
        self._asked = 0
        self._ask(self._most)
        self._give_back(len(self.members()) - self._most)

    def members(self) -> list[Member]:
        """Executors that have registered and were not told to go, oldest first."""
        listed = self._spark.statusStore().executorList(True)
        found = [listed.apply(i) for i in range(listed.size())]
        there = [Member(e.id(), e.hostPort().rpartition(":")[0], e.totalCores()) for e in found if e.id() != DRIVER]
        self._going &= {m.id for m in there}
        return sorted((m for m in there if m.id not in self._going), key=lambda m: m.age)

    def machines(self) -> Machines:
        members = self.members()
        nodes: dict[str, int] = {}
        for m in members:
            nodes[m.host] = nodes.get(m.host, 0) + m.cores
        each = self._each(members)
        return Machines(sum(nodes.values()) or each, self._most * each, tuple(sorted(nodes.items())))

    def want(self, cores: int) -> None:
        members = self.members()
        wanted = min(max(math.ceil(cores / self._each(members)), self._least), self._most)
        try:
            self._give_back(len(members) - wanted)
            self._ask(wanted)
        except Exception as failure:  # py4j's; nothing depends on it, and the next decision asks again
            log.warning("Spark was not told that %d executors are wanted: %s", wanted, failure)

    def _each(self, members: list[Member]) -> int:
        given = int(self._context.getConf().get("spark.executor.cores", "0"))
        return given or max((m.cores for m in members), default=1)

    def _ask(self, wanted: int) -> None:
        if wanted == self._asked:
            return
        none = getattr(getattr(self._context._jvm.scala.collection.immutable, "Map$"), "MODULE$").empty()
        self._spark.requestTotalExecutors(wanted, 0, none)
        log.info("%d executors are wanted, %d were", wanted, self._asked)
        self._asked = wanted

    def _give_back(self, surplus: int) -> None:
        jvm, backend = self._context._jvm, self._spark.schedulerBackend()
        for member in reversed(self.members()[-surplus:] if surplus > 0 else []):
            info = jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo("scaled in", jvm.scala.Option.empty())
            backend.decommissionExecutor(member.id, info, True, False)
            self._going.add(member.id)
            self._asked = -1  # Spark's own number has changed with it
            log.info("executor %s on %s is given back", member.id, member.host)
