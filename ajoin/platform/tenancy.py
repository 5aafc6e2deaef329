"""Tenants share streams and the plan, and know nothing of each other's queries.

Everything a servicer shows passes through the caller's `Scope`. What speaks of queries is reduced to the tenant's own;
what cannot be divided (seconds per stage, bytes of buckets, the plan's version, which moves when anybody creates a
query) is left out, because from its ups and downs one could read when others come and how much they do. Streams
belong to all: their schema, rates and dead letters are shown, the options of their source only to the tenant that
declared them. How many others use a node of one's plan is told; who and what for is not. Two things remain visible: the
number in a uid counts the creations of all tenants, and epochs take as long as everybody's queries need.

A tenant's query `q1` is the platform's query `tenant/q1`. A name given by a user never contains a '/', so the two
kinds cannot meet, two tenants may use the same id, and the owner of a query survives restarts with its id. Whoever
has no tenant (an operator, an embedding program) sees and names queries by their full ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ajoin.platform.statistics import Statistics
from optimizer.errors import AJoinError, InternalError, InvalidRequest, ResourceExhausted
from optimizer.model.plan import RunningQuery
from runtime.api import Budget, PlatformStatus, QueryInfo, QueryState, SinkStatus, StreamInfo
from runtime.engine.quarantine import COULD_NOT_END

FULL = {"TOO_MANY_QUERIES": "max_queries", "COST_LIMIT": "max_cost"}
"""What a platform without room says, and the setting that bounds it."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}")


def check_tenant(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidRequest(
            f"tenant {name[:40]!r} is no name",
            reason="INVALID_NAME",
            hint="use 1 to 32 letters, digits, '_', '.' or '-', a letter or digit first",
        )


def tenant_of(id: str) -> str:
    """The tenant a full id belongs to; empty: nobody's."""
    tenant, slash, _ = id.partition("/")
    return tenant if slash else ""


@dataclass(frozen=True, slots=True)
class Quota:
    """What a tenant may have at most; None: any number. `requests` are calls a second; `query_...` is what each of its
    queries may take."""

    queries: int | None = None
    streams: int | None = None
    subscribers: int | None = None
    requests: int | None = None
    query_rows: int | None = None
    query_bytes: int | None = None
    query_retained_bytes: int | None = None
    query_seconds: float | None = None
    query_state_bytes: int | None = None

    @property
    def budget(self) -> Budget:
        """Of each query."""
        return Budget(
            self.query_rows,
            self.query_bytes,
            self.query_retained_bytes,
            self.query_seconds,
            self.query_state_bytes,
        )


NO_QUOTA = Quota()


def check_quota(tenant: str, kind: str, present: int, most: int | None) -> None:
    """May the tenant, which has `present` of this kind, have one more?"""
    if most is not None and present >= most:
        raise ResourceExhausted(
            f"tenant {tenant!r} has {present:,} {kind}; its quota is {most:,}",
            reason="TENANT_QUOTA",
            hint=f"end some, or ask an operator for a higher max_{kind} of the tenant (setting max_tenant_{kind})",
        )


@dataclass(frozen=True, slots=True)
class Scope:
    """What one tenant can see; the empty tenant sees everything under its full id."""

    tenant: str = ""

    def full(self, id: str) -> str:
        return f"{self.tenant}/{id}" if self.tenant and id else id

    def own(self, full_id: str) -> str:
        return full_id.removeprefix(f"{self.tenant}/") if self.tenant else full_id

    def sees(self, full_id: str) -> bool:
        return not self.tenant or tenant_of(full_id) == self.tenant

    def query(self, info: QueryInfo) -> QueryInfo:
        if not self.tenant:
            return info
        # A task that failed works for many; its words may be about others.
        why = COULD_NOT_END if info.suspended.startswith(COULD_NOT_END) else info.suspended
        return replace(
            info,
            id=self.own(info.id),
            uid=self.own(info.uid),
            deliveries=self.sinks(info.deliveries),
            plan_version=0,
            suspended=why,
        )

    def sinks(self, sinks: Iterable[SinkStatus]) -> tuple[SinkStatus, ...]:
        mine = (s for s in sinks if self.sees(s.query_id))
        return tuple(replace(s, query_id=self.own(s.query_id), uid=self.own(s.uid)) for s in mine)

    def queries(self, infos: Iterable[QueryInfo]) -> list[QueryInfo]:
        return [self.query(q) for q in infos if self.sees(q.id)]

    def stream(self, info: StreamInfo) -> StreamInfo:
        """Streams are shared; who else reads them, and how somebody else reaches their source, is not told."""
        mine = replace(info, queries=tuple(self.own(id) for id in info.queries if self.sees(id)))
        if not self.tenant or info.schema.owner == self.tenant:
            return mine
        return replace(mine, source=replace(info.source, options=()))

    def explained(self, rq: RunningQuery) -> RunningQuery | None:
        """A running query as an explanation may show it; others' are only counted."""
        return replace(rq, id=self.own(rq.id), uid=self.own(rq.uid)) if self.sees(rq.id) else None

    def status(self, status: PlatformStatus, infos: Iterable[QueryInfo]) -> PlatformStatus:
        """`infos`: all queries."""
        if not self.tenant:
            return status
        mine = [q for q in infos if self.sees(q.id)]
        return PlatformStatus(
            state=status.state,
            epoch=status.epoch,
            plan_version=0,
            streams=status.streams,
            queries=sum(q.state == QueryState.RUNNING for q in mine),
            tuples=status.tuples,
            rows=sum(q.rows for q in mine),
            overflows=sum(q.overflows for q in mine),
            buckets=0,
            bucket_bytes=0,
            epoch_seconds=0.0,
            uptime_seconds=status.uptime_seconds,
            message="the operator's log says more" if status.message else "",
            backlog=status.backlog,
            throttled=status.throttled,
            lag_ms=status.lag_ms,
            sinks=sum(len(q.deliveries) for q in mine),
            sinks_behind=self.sinks(status.sinks_behind),
        )

    def statistics(self, statistics: Statistics) -> Statistics:
        if not self.tenant:
            return statistics
        epochs = tuple(replace(e, rows=0, stage_seconds={}, latency_seconds=0.0) for e in statistics.epochs)
        mine = tuple(replace(q, id=self.own(q.id)) for q in statistics.queries if self.sees(q.id))
        return replace(statistics, epochs=epochs, queries=mine)

    def error(self, error: AJoinError, id: str) -> AJoinError:
        """What went wrong inside may name anybody's query, and a full platform counts them; `id`: of the log."""
        if self.tenant and error.reason in FULL:
            setting = FULL[error.reason]
            hint = f"delete a query, or ask an operator for a higher {setting}"
            return ResourceExhausted("the platform has no room for this query", reason=error.reason, hint=hint)
        if not self.tenant or not isinstance(error, InternalError):
            return error
        return InternalError(
            f"something went wrong inside the platform (id {id})",
            reason=error.reason,
            hint=f"ask an operator; the server's log says more under {id}",
        )
