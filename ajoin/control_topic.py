"""Create and delete queries by Kafka messages: an alternative to gRPC for programs that already speak Kafka.

    request   {"request_id": "r1", "create": "q1", "sql": "SELECT ...", "sinks": [{"kind": "kafka", "options": {}}]}
              {"request_id": "r2", "delete": "q1"}
    reply     {"request_id": "r1", "query": {"id": "q1", "state": "RUNNING", "active_from": ..., ...}}
              {"request_id": "r2", "error": {"reason": "QUERY_NOT_FOUND", "message": "...", "hint": "..."}}

Replies go to the reply topic with the request id as key, when the change has taken effect. Requests of one
partition are carried out in their order; what is polled together and may be done together (creates, or
deletes, in a row) is one query batch and so one changelog.

Nothing is lost: a request is committed to its consumer group after its reply is written. After a crash or a
lost broker in between it is carried out again, which changes nothing: creating a query that runs under this
id with this SQL, and deleting one that is deleted, are answered like the first time. So a reply can come
twice, never not at all. That is why a request must name its query.

Whoever may write to the topic may create and delete; restrict that with the cluster's own access rights. One
platform reads a control topic: several of them would share its requests out among themselves.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from ajoin.platform import Outcome, Platform
from optimizer.errors import AJoinError, InvalidRequest, NotFound, Unavailable
from runtime.api import QueryInfo, QueryState
from runtime.connectors.base import ConnectorSpec
from runtime.connectors.kafka_connection import Connection, explain, failures, library, parse_connection
from runtime.connectors.options import Settings

_POLL_MS = 200
_PAUSES_S = (0.5, 30.0)

log = logging.getLogger("ajoin.control_topic")


@dataclass(frozen=True, slots=True)
class Request:
    """`refused`: why it cannot even be tried. `sinks` and `sql` belong to a create."""

    request_id: str
    verb: str = ""
    query_id: str = ""
    sql: str = ""
    sinks: tuple[ConnectorSpec, ...] = ()
    refused: AJoinError | None = None


class ControlTopic:
    """A thread that owns its Kafka clients. `start` it beside a started platform and `stop` it before."""

    def __init__(self, platform: Platform, connection: Connection, topic: str, reply_topic: str = "") -> None:
        self._platform = platform
        self._connection = connection
        self._topic = topic
        self._reply_topic = reply_topic or f"{topic}.replies"
        self._pause = _PAUSES_S[0]
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ajoin-control-topic", daemon=True)

    @classmethod
    def from_options(cls, platform: Platform, options: Mapping[str, str]) -> ControlTopic:
        """`bootstrap` and `topic`, optionally `reply_topic` and the security options of a kafka source."""
        s = Settings("control topic", options)
        connection = parse_connection(s, options, ())
        topic = s.text("topic", "")
        if not topic:
            s.refuse("topic", "the topic to read requests from")
        return cls(platform, connection, topic, s.text("reply_topic", ""))

    def start(self) -> ControlTopic:
        self._thread.start()
        return self

    def stop(self) -> None:
        """Finish the requests at hand; what comes later waits in the topic."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def __enter__(self) -> ControlTopic:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self._serve()
            except failures() as failure:
                said = explain(failure, self._connection).message
                log.warning("control topic %s, next try in %.1f s: %s", self._topic, self._pause, said)
                self._ended.wait(self._pause)
                self._pause = min(2 * self._pause, _PAUSES_S[1])
            except Unavailable:
                return  # the platform stops; what was not answered is read again by the next one
            except Exception:
                log.exception("control topic %s: its thread ends", self._topic)
                return

    def _serve(self) -> None:
        kafka = library()
        arguments = self._connection.arguments
        quick = {"bootstrap_timeout_ms": 5_000, "metrics_enabled": False, "reconnect_backoff_max_ms": 1000}
        with kafka.KafkaConsumer(
            self._topic,
            **arguments,
            **quick,
            group_id=f"ajoin.{self._topic}",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer:
            producer = kafka.KafkaProducer(
                **arguments, **quick, max_block_ms=10_000, delivery_timeout_ms=15_000, request_timeout_ms=10_000
            )
            try:
                while not self._ended.is_set():
                    polled = consumer.poll(_POLL_MS)
                    for records in polled.values():
                        self._answer(producer, [parse(r.value) for r in records])
                    if polled:
                        consumer.commit()
                        self._pause = _PAUSES_S[0]
            finally:
                producer.close(timeout=1)

    def _answer(self, producer: Any, requests: Sequence[Request]) -> None:
        replies = [
            (r.request_id, reply(r, o)) for r, o in zip(requests, carry_out(self._platform, requests), strict=True)
        ]
        sent = [
            producer.send(self._reply_topic, json.dumps(value, ensure_ascii=False).encode(), key=id.encode())
            for id, value in replies
        ]
        producer.flush(15)
        for future in sent:
            future.get(0)


def parse(value: bytes | None) -> Request:
    """Whatever the message holds; never raises."""
    try:
        body = json.loads((value or b"").decode("utf-8"))
    except (ValueError, RecursionError) as why:
        return Request("", refused=_bad(f"the message is not JSON: {why}"))
    if not isinstance(body, dict):
        return Request("", refused=_bad("the message is not a JSON object"))
    id = body.get("request_id", "")
    if not isinstance(id, str):
        return Request("", refused=_bad("request_id is not text"))
    verbs = [verb for verb in ("create", "delete") if verb in body]
    known = {"request_id", "create", "sql", "sinks"} if verbs == ["create"] else {"request_id", "delete"}
    if len(verbs) != 1 or not isinstance(body[verbs[0]], str) or not body[verbs[0]]:
        return Request(id, refused=_bad('a request needs "create" or "delete" with the id of its query'))
    if set(body) - known:
        return Request(id, refused=_bad(f"unknown key {min(set(body) - known)!r} in a {verbs[0]} request"))
    sql, sinks = body.get("sql", ""), body.get("sinks", [])
    if verbs == ["create"] and (not isinstance(sql, str) or not sql):
        return Request(id, refused=_bad('a create request needs "sql"'))
    try:
        specs = tuple(ConnectorSpec(s["kind"], tuple(sorted(dict(s.get("options", {})).items()))) for s in sinks)
        if not all(isinstance(part, str) for s in specs for part in (s.kind, *sum(s.options, ()))):
            raise TypeError
    except (TypeError, KeyError, ValueError, AttributeError):
        return Request(id, refused=_bad('"sinks" must be a list of {"kind": text, "options": {text: text}}'))
    return Request(id, verbs[0], body[verbs[0]], sql, specs)


def carry_out(platform: Platform, requests: Sequence[Request]) -> list[Outcome]:
    """One outcome per request. Raises Unavailable when the platform can answer no more."""
    outcomes: list[Outcome] = []
    for verb, run in groupby(requests, key=lambda r: r.verb):
        group = list(run)
        if verb == "create":
            answers = platform.create_queries([(r.query_id, r.sql, r.sinks) for r in group]).result()
        elif verb == "delete":
            answers = platform.delete_queries([r.query_id for r in group]).result()
        else:
            answers = [r.refused for r in group]  # type: ignore[misc]
        outcomes += [_repeated(platform, r, a) for r, a in zip(group, answers, strict=True)]
    return outcomes


def _repeated(platform: Platform, request: Request, outcome: Outcome) -> Outcome:
    """A request that fails because it was carried out before gets the answer it had then."""
    if not isinstance(outcome, AJoinError) or not request.verb:
        return outcome
    try:
        query = platform.query(request.query_id)
    except NotFound:
        return outcome
    if request.verb == "create":
        return query if query.state == QueryState.RUNNING and query.sql == request.sql else outcome
    return query if query.state == QueryState.DELETED else outcome


def reply(request: Request, outcome: Outcome) -> dict[str, Any]:
    if isinstance(outcome, AJoinError):
        error = {"reason": outcome.reason, "message": outcome.message, "hint": outcome.hint}
        return {"request_id": request.request_id, "error": error}
    assert isinstance(outcome, QueryInfo)
    query = {
        "id": outcome.id,
        "state": outcome.state.value,
        "active_from": outcome.active_from,
        "active_until": outcome.active_until,
        "plan_version": outcome.plan_version,
        "epoch": outcome.epoch,
        "outputs": list(outcome.outputs),
    }
    return {"request_id": request.request_id, "query": query}


def _bad(message: str) -> InvalidRequest:
    return InvalidRequest(message, reason="BAD_CONTROL_MESSAGE", hint="see the control topic in docs/connectors.md")
