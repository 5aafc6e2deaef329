"""What stands in the messages of a control topic, and what stands in their replies.

    request   {"request_id": "r1", "create": "q1", "sql": "SELECT ...", "sinks": [{"kind": "kafka", "options": {}}],
               "budget": {"rows": 1000, "at_limit": "sample"}}
              {"request_id": "r2", "delete": "q1"}
    reply     {"request_id": "r1", "query": {"id": "q1", "state": "RUNNING", "active_from": ..., ...}}
              {"request_id": "r2", "error": {"reason": "QUERY_NOT_FOUND", "message": "...", "hint": "..."}}

Anybody may have written the message, so `parse` takes whatever bytes there are: what is no request becomes one that
is refused, and its sender reads why.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ajoin.platform.budgets import parsed
from ajoin.platform.platform import Outcome
from optimizer.errors import AJoinError, InvalidRequest
from runtime.api import NO_BUDGET, Budget, QueryInfo
from runtime.connectors.base import ConnectorSpec


@dataclass(frozen=True, slots=True)
class Request:
    """`refused`: why it cannot even be tried. `sinks`, `sql` and `budget` belong to a create."""

    request_id: str
    verb: str = ""
    query_id: str = ""
    sql: str = ""
    sinks: tuple[ConnectorSpec, ...] = ()
    refused: AJoinError | None = None
    budget: Budget = NO_BUDGET


def parse(value: bytes | None) -> Request:
    """Whatever the message holds; never raises."""
    try:
        body = json.loads((value or b"").decode("utf-8"))
    except (ValueError, RecursionError) as why:
        return Request("", refused=_bad(f"the message is not JSON: {why}"))
    if not isinstance(body, dict):
        return Request("", refused=_bad("the message is not a JSON object"))
    try:
        json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return Request("", refused=_bad("the message holds half of a surrogate pair, which is no text"))
    id = body.get("request_id", "")
    if not isinstance(id, str):
        return Request("", refused=_bad("request_id is not text"))
    verbs = [verb for verb in ("create", "delete") if verb in body]
    known = {"request_id", "create", "sql", "sinks", "budget"} if verbs == ["create"] else {"request_id", "delete"}
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
    wish = body.get("budget", {})
    if not isinstance(wish, dict):
        return Request(id, refused=_bad('"budget" must be an object with numbers, and perhaps "at_limit"'))
    try:
        budget = parsed({k: v for k, v in wish.items() if k != "at_limit"}, wish.get("at_limit"))
    except InvalidRequest as refused:
        return Request(id, refused=refused)
    return Request(id, verbs[0], body[verbs[0]], sql, specs, budget=budget)


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
