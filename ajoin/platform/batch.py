"""One query batch: many requests, one `engine.apply`, one outcome for each item.

The items of all requests stand in one list; every step (compile again, count against the limits, decide) puts the
refusal in the place of what it refuses. So outcomes and items are matched once, by their place.

A query is compiled when it arrives, so that bad SQL is answered at once; by the time its batch is applied a
stream may have been deleted and declared anew. So the schemas it was compiled against are compared, and it is
compiled again when one has changed. Deployment latency is the time from a request's arrival until `apply`
returned, because from then on the next epoch runs with the query.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ajoin.platform import catalog
from ajoin.platform.catalog import Limits
from ajoin.platform.mailbox import BatchItem, BatchRequest
from ajoin.platform.tenancy import check_quota, tenant_of
from ajoin.sql import admit, at_window
from optimizer.errors import AJoinError
from runtime.api import Control, CreateQuery, QueryInfo, QueryState
from runtime.engine.engine import Engine
from runtime.plugins import vocabulary


@dataclass(frozen=True, slots=True)
class Applied:
    """A control took effect: the plan version from now on, and what its batch changed."""

    plan_version: int
    changes: tuple[str, ...]


Outcome = QueryInfo | Applied | AJoinError


class Latencies:
    """Deployment latency by uid, for the latest queries: the engine does not know when a request arrived."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._of: dict[str, int] = {}

    def remember(self, info: QueryInfo) -> None:
        self._of[info.uid] = info.deployment_latency_ms
        while len(self._of) > self._kept:
            del self._of[next(iter(self._of))]

    def fill_in(self, info: QueryInfo) -> QueryInfo:
        latency = self._of.get(info.uid)
        return info if latency is None else replace(info, deployment_latency_ms=latency)


def apply_batch(
    engine: Engine,
    requests: Sequence[BatchRequest],
    clock: Callable[[], int],
    limits: Limits,
    latencies: Latencies,
) -> list[tuple[BatchRequest, list[Outcome]]]:
    """Only on the engine thread. Every request with the outcomes of its items."""
    before = engine.plan.version
    present = [q for q in engine.queries() if q.state != QueryState.DELETED]  # what is suspended may be resumed
    tenants = Counter(tenant_of(q.id) for q in present)
    text = sum(len(q.sql.encode()) for q in present)
    checked: list[Control | AJoinError] = []
    for item in (item for request in requests for item in request.items):
        control = _current(engine, item, limits)
        if isinstance(control, CreateQuery):
            tenant = tenant_of(control.id)
            try:
                catalog.check_room("queries", tenants.total(), 1, limits.queries)
                check_quota(tenant, "queries", tenants[tenant], item.quota)
                text = catalog.check_text(text, control.query.sql, limits.queries_bytes)
                tenants[tenant] += 1
            except AJoinError as full:
                control = full
        checked.append(control)
    outcomes = [_explained(c, o) for c, o in zip(checked, engine.apply(checked), strict=True)]
    changes = tuple(c for event in engine.plan_events(before) for c in event.changes)
    applied = Applied(engine.plan.version, changes)
    now = clock()
    answers, first = [], 0
    for request in requests:
        own = outcomes[first : first + len(request.items)]
        latency = now - request.arrived_ms
        timed = [_timed(o or applied, i, latency, latencies) for i, o in zip(request.items, own, strict=True)]
        answers.append((request, timed))
        first += len(request.items)
    return answers


def _current(engine: Engine, item: BatchItem, limits: Limits) -> Control | AJoinError:
    control = item.control
    if not isinstance(control, CreateQuery):
        return control
    now = engine.schemas()
    if all(now.get(name) == schema for name, schema in item.schemas.items()):
        return control
    try:
        return replace(control, query=admit(control.query.sql, now, limits.query, vocabulary()))
    except AJoinError as refused:
        return refused


def _explained(control: Control | AJoinError, outcome: QueryInfo | AJoinError | None) -> QueryInfo | AJoinError | None:
    if isinstance(outcome, AJoinError) and isinstance(control, CreateQuery):
        return at_window(outcome, control.query.sql)
    return outcome


def _timed(outcome: Outcome, item: BatchItem, latency_ms: int, latencies: Latencies) -> Outcome:
    if not isinstance(outcome, QueryInfo):
        return outcome
    if isinstance(item.control, CreateQuery):
        latencies.remember(replace(outcome, deployment_latency_ms=latency_ms))
    return latencies.fill_in(outcome)
