"""When requests are taken: calls at once, a batch when it is due, and everything is answered once."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from ajoin.platform.mailbox import BatchItem, BatchRequest, EngineCall, Mailbox
from optimizer.errors import Unavailable
from runtime.api import DeleteQuery


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def mailbox(clock):
    return Mailbox(1.0, clock)


def batch(*ids: str) -> BatchRequest:
    return BatchRequest(tuple(BatchItem(DeleteQuery(id)) for id in ids), 0, Future())


def call() -> EngineCall:
    return EngineCall(lambda: None, Future())


def test_a_call_is_due_at_once(mailbox):
    request = call()
    mailbox.put(request)
    assert mailbox.wait(until=1e9)
    assert mailbox.take() == ([request], [])


def test_a_batch_is_collected_for_the_interval_after_the_first(mailbox, clock):
    first, second = batch("a"), batch("b")
    mailbox.put(first)
    clock.now = 0.9
    mailbox.put(second)
    assert mailbox.take() == ([], [])
    clock.now = 1.0
    assert mailbox.wait(until=1e9)
    assert mailbox.take() == ([], [first, second])


def test_the_end_of_an_epoch_closes_the_batch(mailbox):
    request = batch("a")
    mailbox.put(request)
    mailbox.epoch_ended()
    assert mailbox.take() == ([], [request])


def test_a_batch_that_begins_after_an_epoch_is_collected_anew(mailbox):
    mailbox.epoch_ended()
    mailbox.put(batch("a"))
    assert mailbox.take() == ([], [])


def test_the_next_epoch_wakes_the_thread(mailbox, clock):
    clock.now = 5.0
    assert mailbox.wait(until=5.0)
    assert mailbox.take() == ([], [])


def test_requests_whose_caller_gave_up_are_left_out(mailbox):
    gone, stays = call(), call()
    mailbox.put(gone)
    mailbox.put(stays)
    gone.future.cancel()
    assert mailbox.take() == ([stays], [])


def test_closing_answers_what_waits_and_what_comes(mailbox):
    waiting = [call(), batch("a")]
    for request in waiting:
        mailbox.put(request)
    error = Unavailable("stopping")
    mailbox.close(error)
    assert [request.future.exception() for request in waiting] == [error, error]
    assert not mailbox.wait(until=1e9)
    with pytest.raises(Unavailable):
        mailbox.put(call())


def test_the_first_reason_to_close_counts(mailbox):
    first = Unavailable("first")
    mailbox.close(first)
    mailbox.close(Unavailable("second"))
    with pytest.raises(Unavailable, match="first"):
        mailbox.put(call())
