"""When requests are taken: calls at once, a batch when it is due, and everything is answered once."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from ajoin.platform.mailbox import BatchItem, BatchRequest, EngineCall, Mailbox
from ajoin.sql import parse_query
from optimizer.errors import ResourceExhausted, Unavailable
from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.api import CreateQuery, DeleteQuery

SCHEMAS = {
    name: StreamSchema(name, (Column("k", ColumnType.BIGINT), Column("ts", ColumnType.TIMESTAMP)), "ts")
    for name in "AB"
}
SQL = "SELECT A.k FROM A JOIN B ON A.k = B.k WINDOW TUMBLING (SIZE 1 SECOND)"


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


def creating(id: str, sql: str) -> BatchRequest:
    return BatchRequest((BatchItem(CreateQuery(id, parse_query(sql, SCHEMAS))),), 0, Future())


def test_what_waits_is_bounded_in_number_and_in_bytes(clock):
    mailbox = Mailbox(1.0, clock, most_requests=3, most_bytes=1000)
    for _ in range(2):
        mailbox.put(call())
    mailbox.put(creating("q", SQL))
    for request in (call(), creating("r", SQL)):
        with pytest.raises(ResourceExhausted) as full:
            mailbox.put(request)
        assert full.value.reason == "MAILBOX_FULL" and "max_mailbox_requests" in full.value.hint
    mailbox.put(batch("a", "b", "c"))  # who wants to make room may fill as much again
    with pytest.raises(ResourceExhausted):
        mailbox.put(batch("d"))
    clock.now = 2.0
    calls, requests = mailbox.take()
    assert len(calls) == 2 and len(requests) == 2
    long = SQL.replace("WINDOW", f"WHERE A.k IN ({', '.join(map(str, range(150)))}) WINDOW")
    assert 500 < len(long) < 900
    mailbox.put(creating("s", long))
    with pytest.raises(ResourceExhausted):
        mailbox.put(creating("t", long))
    mailbox.put(creating("u", SQL))
    clock.now = 4.0
    mailbox.take()
    mailbox.put(creating("t", long))


def test_calls_that_are_taken_make_room_while_the_batch_waits(clock):
    mailbox = Mailbox(1.0, clock, most_requests=2)
    mailbox.put(creating("q", SQL))
    mailbox.put(call())
    assert len(mailbox.take()[0]) == 1
    mailbox.put(call())
    with pytest.raises(ResourceExhausted):
        mailbox.put(call())
