"""The engine scales by what its own epochs measure: loads that come, change sides and go, an outage in the middle.

Work is real, and takes the time it takes. The engine's clock is ahead of the one by which tuples arrive: that much they
have waited. Where it is moved on by minutes between two epochs, little happened in that time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from optimizer.errors import Unavailable
from optimizer.policy.scaling import Machines
from runtime.api import Budget, Optimize
from tests.runtime.rig import Rig
from tests.tools.store_double import Double

KEEPS_LITTLE = (
    "SELECT A.n AS a, B.n AS b FROM A JOIN B ON A.k = B.k WHERE A.n + B.n < 2 WINDOW TUMBLING (SIZE 1 SECOND)"
)
"""Every pair has to be looked at."""

CORES = 8


class Cores:
    """Machines as a test wants them; remembers how many cores the platform wanted."""

    def __init__(self) -> None:
        self.wanted: list[int] = []

    def machines(self) -> Machines:
        return Machines(self.wanted[-1] if self.wanted else 2, reachable=CORES)

    def want(self, cores: int) -> None:
        self.wanted.append(cores)


class Life:
    def __init__(self, directory: Path, store: Double) -> None:
        self.cores, self.store = Cores(), store
        self.rig = Rig(directory, fleet=self.cores, partitions=2, store=store.open())
        self.rig.clock.now = self.started = time.time_ns() // 1_000_000
        for name in "AB":
            self.rig.stream(name, k="BIGINT", n="BIGINT")
        self.rig.local.create_query(KEEPS_LITTLE, id="q", budget=Budget(latency=6.0))
        self.epochs, self.ahead = 0, 0
        self.expected = 0

    def epoch(self, keys: dict[int, tuple[int, int]], later: int = 0) -> None:
        """Per key so many tuples in A and in B, by a clock that has been moved on by so many seconds."""
        start = 1000 * self.epochs
        for stream, side in (("A", 0), ("B", 1)):
            rows = [{"k": k, "n": i, "ts": start} for k, counts in keys.items() for i in range(counts[side])]
            self.rig.local.push(stream, *rows)
        self.ahead += 1000 * later
        self.rig.clock.now = max(self.rig.clock.now, time.time_ns() // 1_000_000 + self.ahead)
        self.rig.local.run_epoch()
        self.epochs += 1
        pairs = [(0, 0), (0, 1), (1, 0)]
        self.expected += sum(a < counts[0] and b < counts[1] for counts in keys.values() for a, b in pairs)

    def rescale(self) -> None:
        """What the periodic optimizer asks for."""
        self.rig.local.apply(Optimize("incremental", force=False, rescale=True))

    @property
    def tasks(self) -> int:
        at = self.rig.engine.plan.partitioning
        return sum(map(at.ways, range(at.count)))


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    made = Life(tmp_path, Double())
    yield made
    made.rig.local.close()


QUIET = {1: (2, 2), 2: (2, 2)}
EVEN = dict.fromkeys(range(40), (400, 400))


def hot(side: int) -> dict[int, tuple[int, int]]:
    return QUIET | {7: ((1500, 4000), (4000, 1500))[side]}


def test_an_even_load_gets_ranges_and_cores_and_gives_them_back(life: Life) -> None:
    life.epoch(EVEN, later=20)
    assert life.rig.engine.query("q").latency_ms in range(20_000, 120_000)
    life.rescale()
    at = life.rig.engine.plan.partitioning
    assert 4 <= at.count <= CORES and not at.splits, "several steps in one, because it is much too late"
    assert life.cores.wanted == [at.count]
    life.epoch(EVEN)
    while life.tasks > 1:
        tasks, wanted = life.tasks, len(life.cores.wanted)
        for _ in range(3):
            assert life.tasks == tasks, "only when it lasts"
            life.epoch(QUIET, later=600)
            life.rescale()
        assert life.tasks < tasks and len(life.cores.wanted) == wanted, "ranges go first"
    for _ in range(3):
        life.epoch(QUIET, later=600)
        life.rescale()
    assert life.cores.wanted[-1] == 1
    assert len(life.rig.rows("q")) == life.expected


@pytest.mark.parametrize("side", [0, 1])
def test_a_hot_key_is_split_through_an_outage_and_united_again(life: Life, side: int) -> None:
    life.epoch(hot(side), later=10)
    life.rescale()
    at = life.rig.engine.plan.partitioning
    assert at.count == 2 and len(at.splits) == 1, "no cut would help"
    life.store.away = True
    with pytest.raises(Unavailable):
        life.rig.local.run_epoch() if life.rig.engine.has_input() else life.rig.local.push(
            "A", {"k": 1, "n": 9, "ts": 0}
        )
    life.store.away = False
    life.epoch(hot(side), later=10)
    life.rig.reopen()
    life.epoch(hot(1 - side))
    for _ in range(3):
        assert life.rig.engine.plan.partitioning.splits
        life.epoch(QUIET, later=600)
        life.rescale()
    assert not life.rig.engine.plan.partitioning.splits
    assert len(life.rig.rows("q")) == life.expected


def test_a_query_that_allows_more_is_not_late(life: Life) -> None:
    life.rig.local.delete_query("q")
    life.rig.local.create_query(KEEPS_LITTLE, id="q", budget=Budget(latency=3600.0))
    life.epoch(EVEN, later=20)
    assert life.rig.engine.query("q").latency_ms >= 20_000
    life.rescale()
    assert life.tasks <= 4 and life.cores.wanted in ([], [life.tasks]), "only for its work, not for its age"
