"""Whoever refuses an item of a query batch, and wherever it stands, every request gets its own answers in its order."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path

from ajoin.platform.batch import Applied, Latencies, apply_batch
from ajoin.platform.catalog import Limits
from ajoin.platform.mailbox import BatchItem, BatchRequest
from ajoin.sql import parse_query
from optimizer.errors import AJoinError, InvalidRequest
from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.api import Control, CreateQuery, DeleteQuery, QueryInfo, ScaleTo, SuspendQuery
from runtime.connectors.base import ConnectorSpec
from runtime.engine.config import EngineConfig
from runtime.engine.engine import Engine
from runtime.execution.executor import LocalExecutor

SQL = "SELECT A.k FROM A JOIN B ON A.k = B.k WINDOW TUMBLING (SIZE 1 SECOND)"


def opened(directory: Path) -> Engine:
    engine = Engine.open(directory, LocalExecutor(), EngineConfig(), lambda: 0)
    for name in "AB":
        columns = (Column("ts", ColumnType.TIMESTAMP), Column("k", ColumnType.BIGINT))
        engine.create_stream(StreamSchema(name, columns, "ts"), ConnectorSpec("push"))
    return engine


def said(outcome: object) -> str:
    match outcome:
        case QueryInfo():
            return outcome.id
        case Applied():
            return f"version {outcome.plan_version}"
        case AJoinError():
            return outcome.reason
    raise AssertionError(outcome)


def test_answers_stand_where_their_requests_stood(tmp_path: Path) -> None:
    engine = opened(tmp_path)
    schemas = engine.schemas()
    unknown_sink = (ConnectorSpec("nonsense"),)

    def create(id: str, sinks: tuple[ConnectorSpec, ...] = ()) -> BatchItem:
        return BatchItem(CreateQuery(id, parse_query(SQL, schemas), sinks), schemas)

    def item(control: Control | AJoinError) -> BatchItem:
        return BatchItem(control)

    requests = [
        BatchRequest((item(InvalidRequest("no", reason="AT_THE_DOOR")), create("q1")), 5, Future()),
        BatchRequest((), 5, Future()),
        BatchRequest((create("q1"), create("q2", unknown_sink), item(ScaleTo(3)), create("q3")), 7, Future()),
        BatchRequest((create("one too many"), item(DeleteQuery("q1")), item(ScaleTo(0))), 8, Future()),
    ]
    latencies = Latencies(10)
    answers = apply_batch(engine, requests, lambda: 20, Limits(queries=4), latencies)

    assert [request for request, _ in answers] == requests
    version = f"version {engine.plan.version}"
    assert [[said(o) for o in outcomes] for _, outcomes in answers] == [
        ["AT_THE_DOOR", "q1"],
        [],
        ["QUERY_EXISTS", "UNKNOWN_CONNECTOR", version, "q3"],
        ["TOO_MANY_QUERIES", "q1", "INVALID_PARTITIONS"],
    ]
    q1, q3 = answers[0][1][1], answers[2][1][3]
    assert isinstance(q1, QueryInfo) and isinstance(q3, QueryInfo)
    assert (q1.deployment_latency_ms, q3.deployment_latency_ms) == (15, 13)
    assert list(engine.plan.by_uid) == [q3.uid]
    engine.close()


def test_a_batch_of_refusals_changes_nothing(tmp_path: Path) -> None:
    engine = opened(tmp_path)
    before, memory = engine.plan, engine.parts.planner.memory
    refusal = InvalidRequest("no", reason="AT_THE_DOOR")
    request = BatchRequest((BatchItem(refusal), BatchItem(refusal)), 0, Future())
    assert apply_batch(engine, [request], lambda: 0, Limits(), Latencies(10)) == [(request, [refusal, refusal])]
    assert engine.plan == before and engine.parts.planner.memory == memory
    engine.close()


def test_suspended_queries_and_their_text_count(tmp_path: Path) -> None:
    engine = opened(tmp_path)
    schemas = engine.schemas()

    def answer(*controls: Control, limits: Limits) -> list[str]:
        request = BatchRequest(tuple(BatchItem(c, schemas) for c in controls), 0, Future())
        ((_, outcomes),) = apply_batch(engine, [request], lambda: 0, limits, Latencies(10))
        return [said(o) for o in outcomes]

    def create(id: str) -> CreateQuery:
        return CreateQuery(id, parse_query(SQL, schemas))

    two = Limits(queries=2)
    assert answer(create("q1"), create("q2"), limits=two) == ["q1", "q2"]
    assert answer(SuspendQuery("q1", "enough"), limits=two) == ["q1"]
    assert answer(create("q3"), limits=two) == ["TOO_MANY_QUERIES"], "what is suspended may be resumed"
    room = Limits(queries_bytes=3 * len(SQL))
    assert answer(create("q3"), create("q4"), limits=room) == ["q3", "TOO_MUCH_SQL"]
    assert answer(DeleteQuery("q1"), limits=room) == ["q1"]
    assert answer(create("q4"), limits=room) == ["q4"]
    engine.close()
