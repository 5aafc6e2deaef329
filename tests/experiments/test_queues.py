"""When is a workload sustained, and what is the highest rate that is."""

from __future__ import annotations

from random import Random

import pytest

from experiments.queues import RequestQueue, TupleQueue, percentiles
from experiments.sustainable import search
from experiments.workloads import make_requests, sc1, sc2


def tuple_queue(pulled_per_second: float) -> TupleQueue:
    queue = TupleQueue(1000)
    for second in range(20):
        queue.observe(second, int(second * pulled_per_second))
    return queue


def test_a_queue_that_keeps_growing_is_not_sustained() -> None:
    assert tuple_queue(1000).sustained(longest=5)
    assert not tuple_queue(800).sustained(longest=5)
    assert tuple_queue(800).growth() == pytest.approx(0.2, abs=0.01)


def test_a_queue_that_was_long_once_but_shrinks() -> None:
    queue = TupleQueue(100)
    for second, length in enumerate([0, 100, 300, 200, 100, 50, 20, 10]):
        queue.observe(second, second * 100 - length)
    assert queue.longest_seconds == 3
    assert queue.sustained(longest=4)
    assert not queue.sustained(longest=2)


def test_request_queue() -> None:
    steady = RequestQueue(15, [1.0, 0.5, 1.2] * 5)
    assert steady.sustained()
    assert not RequestQueue(15, [1.0, 16.0]).sustained()
    assert not RequestQueue(15, [0.1 * i for i in range(10)]).sustained()


@pytest.mark.parametrize("limit", [0.7, 120, 999, 1000, 54_321])
def test_search_finds_a_rate_that_was_probed_and_sustained(limit: float) -> None:
    probed: list[float] = []

    def probe(rate: float) -> bool:
        probed.append(rate)
        return rate <= limit

    found = search(probe, 100.0, precision=0.1, most_probes=30)
    assert found in probed
    assert limit / 1.1 <= found <= limit


def test_search_gives_up_when_nothing_is_sustained() -> None:
    assert search(lambda rate: False, 100.0, most_probes=30) == 0.0


def test_sc1_creates_at_a_steady_rate_and_stops() -> None:
    requests = sc1(10, 25)
    assert len(requests) == 25
    assert [r.kind for r in requests] == ["create"] * 25
    assert requests[-1].at_seconds == pytest.approx(2.4)


def test_sc2_keeps_about_so_many_running() -> None:
    requests = sc2(10, 20, 60, Random(1))
    running, highest, settled = 0, 0, []
    created: set[int] = set()
    for r in requests:
        if r.kind == "create":
            created.add(r.query)
        else:
            assert r.query in created
        running += 1 if r.kind == "create" else -1
        highest = max(highest, running)
        if r.at_seconds > 10:
            settled.append(running)
    assert sum(settled) / len(settled) == pytest.approx(20, rel=0.2)
    assert highest < 40


def test_unknown_workload() -> None:
    with pytest.raises(ValueError, match="SC1 and SC2"):
        make_requests("SC3", 1, 1, 1, Random(0))


def test_percentiles() -> None:
    found = percentiles([1.0, 2.0, 3.0], "x")
    assert found["x_p50"] == 2.0 and found["x_min"] == 1.0 and found["x_max"] == 3.0
    assert percentiles([], "x") == {}
