"""Tenants share streams and the plan, and know nothing of each other's queries.

A tenant's query `q1` is the platform's query `tenant/q1`. A name given by a user never contains a '/', so the two
kinds cannot meet, two tenants may use the same id, and the owner of a query survives restarts with its id. Whoever
has no tenant (an operator, an embedding program) sees and names queries by their full ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from optimizer.errors import InvalidRequest
from optimizer.model.plan import RunningQuery
from runtime.api import QueryInfo, SinkStatus, StreamInfo

SOMEBODY = "(another tenant)"
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
        return replace(info, id=self.own(info.id), uid=self.own(info.uid), deliveries=self.sinks(info.deliveries))

    def sinks(self, sinks: Iterable[SinkStatus]) -> tuple[SinkStatus, ...]:
        mine = (s for s in sinks if self.sees(s.query_id))
        return tuple(replace(s, query_id=self.own(s.query_id), uid=self.own(s.uid)) for s in mine)

    def queries(self, infos: Iterable[QueryInfo]) -> list[QueryInfo]:
        return [self.query(q) for q in infos if self.sees(q.id)]

    def stream(self, info: StreamInfo) -> StreamInfo:
        """Streams are shared; who else reads them is not told."""
        return replace(info, queries=tuple(self.own(id) for id in info.queries if self.sees(id)))

    def explained(self, rq: RunningQuery) -> RunningQuery:
        """A running query as an explanation may show it: of others, only that they are there."""
        if self.sees(rq.id):
            return replace(rq, id=self.own(rq.id))
        return replace(rq, id=SOMEBODY, query=replace(rq.query, sql="", selections=(), residual=()))


EVERYTHING = Scope()
