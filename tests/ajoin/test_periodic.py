"""A periodic job goes on whatever happens to it; time is a list of answers, nobody sleeps."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator

import pytest

from ajoin.platform.periodic import Periodic
from optimizer.errors import Unavailable
from tests.ajoin.world import WAIT


class Waits:
    """Says "not yet" a number of times, then that the end has come; remembers how long it should have waited."""

    def __init__(self, periods: int) -> None:
        self.seconds: list[float] = []
        self._periods = periods

    def __call__(self, seconds: float) -> bool:
        self.seconds.append(seconds)
        return len(self.seconds) > self._periods


def raising(*failures: Exception | None) -> tuple[Callable[[], None], list[int]]:
    """A job that ends in each of these ways, one after the other, and the list of its runs."""
    runs: list[int] = []
    outcomes: Iterator[Exception | None] = iter(failures)

    def job() -> None:
        runs.append(len(runs))
        if (failure := next(outcomes)) is not None:
            raise failure

    return job, runs


def test_it_waits_before_each_run_and_ends_when_told() -> None:
    wait = Waits(3)
    job, runs = raising(None, None, None)
    Periodic("job", job, lambda: 2.5, wait).run()
    assert len(runs) == 3 and wait.seconds == [2.5] * 4


def test_an_error_is_logged_and_the_next_period_tries_again(caplog: pytest.LogCaptureFixture) -> None:
    job, runs = raising(Unavailable("the tier is away"), ValueError("a bug"), None)
    with caplog.at_level(logging.WARNING):
        Periodic("tidying up", job, lambda: 7.0, Waits(3)).run()
    assert len(runs) == 3
    outage, bug = caplog.records
    assert outage.getMessage() == "tidying up, next try in 7.0 s: the tier is away" and outage.exc_info is None
    assert bug.levelno == logging.ERROR and bug.exc_info is not None and "a bug" in str(bug.exc_info[1])


def test_the_pause_is_asked_for_every_time() -> None:
    pauses = iter([0.0, 0.5, 1.0])
    wait = Waits(2)
    Periodic("job", lambda: None, lambda: next(pauses), wait).run()
    assert wait.seconds == [0.0, 0.5, 1.0]


def test_stop_ends_the_thread_in_the_middle_of_a_pause() -> None:
    ran = threading.Event()
    pauses = iter([0.0])
    with Periodic("job", ran.set, lambda: next(pauses, 10 * WAIT)) as job:
        assert ran.wait(WAIT) and not job.stopped
    assert job.stopped and "ajoin-job" not in [t.name for t in threading.enumerate()]


def test_stopping_what_was_never_started_is_harmless() -> None:
    job = Periodic("job", lambda: None, lambda: 1.0)
    job.stop()
    assert job.stopped
