"""QueryService: create, delete and list queries.

Pages are cut by position, not by number: a token holds the last id that was shown, so queries that come and
go between two pages neither shift nor repeat the others.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from ajoin.platform.platform import Outcome, Platform, Wanted, only
from ajoin.service.access import caller
from ajoin.service.boundary import hidden
from ajoin.service.checks import clamp, require
from ajoin.service.idempotency import IdempotencyCache
from ajoin.v1 import queries_pb2 as pb
from ajoin.v1 import queries_pb2_grpc as rpc
from ajoin.wire import convert, status
from optimizer.errors import AJoinError, InternalError, InvalidRequest
from runtime.api import QueryInfo, QueryState

T = TypeVar("T")

ASKING = 8
"""Calls that wait for their sinks at the same time."""


class QueryService(rpc.QueryServiceServicer):
    def __init__(self, platform: Platform, idempotency: IdempotencyCache) -> None:
        self._platform = platform
        self._idempotency = idempotency
        self._asking = ThreadPoolExecutor(ASKING, "ajoin-sinks")

    def close(self) -> None:
        """Whoever still waits for its sinks is answered by the end of the server; its thread ends when they answer."""
        self._asking.shutdown(wait=False, cancel_futures=True)

    async def CreateQuery(self, request: pb.CreateQueryRequest, context: Any) -> pb.CreateQueryResponse:
        async def run() -> pb.CreateQueryResponse:
            info = only(await self._create([request.spec], request.request_id))
            return pb.CreateQueryResponse(query=_shown(info))

        return await self._idempotency.once(request, run, caller().tenant)

    async def CreateQueries(self, request: pb.CreateQueriesRequest, context: Any) -> pb.CreateQueriesResponse:
        async def run() -> pb.CreateQueriesResponse:
            require("specs", request.specs)
            most = self._platform.limits.batch
            if len(request.specs) > most:
                raise InvalidRequest(
                    f"{len(request.specs):,} queries in one call; at most {most:,} are accepted",
                    reason="BATCH_TOO_LARGE",
                    hint="send several calls",
                )
            outcomes = await self._create(request.specs, request.request_id)
            return pb.CreateQueriesResponse(outcomes=map(_outcome_to_pb, outcomes))

        return await self._idempotency.once(request, run, caller().tenant)

    async def DeleteQuery(self, request: pb.DeleteQueryRequest, context: Any) -> pb.DeleteQueryResponse:
        return await self._change(request, lambda id: self._platform.delete_queries([id]), pb.DeleteQueryResponse)

    async def SuspendQuery(self, request: pb.SuspendQueryRequest, context: Any) -> pb.SuspendQueryResponse:
        suspend = self._platform.suspend_query
        return await self._change(request, lambda id: suspend(id, request.reason), pb.SuspendQueryResponse)

    async def ResumeQuery(self, request: pb.ResumeQueryRequest, context: Any) -> pb.ResumeQueryResponse:
        return await self._change(request, self._platform.resume_query, pb.ResumeQueryResponse)

    async def _change(self, request: Any, ask: Callable[[str], Future[list[Outcome]]], response: Callable[..., T]) -> T:
        """Ask for a change of the query that the request names; the answer is the query after it."""

        async def run() -> T:
            require("query_id", request.query_id)
            outcomes = await asyncio.wrap_future(ask(caller().scope.full(request.query_id)))
            return response(query=_shown(only(outcomes)))

        return await self._idempotency.once(request, run, caller().tenant)

    async def GetQuery(self, request: pb.GetQueryRequest, context: Any) -> pb.GetQueryResponse:
        require("query_id", request.query_id)
        scope = caller().scope
        info = self._platform.query(scope.full(request.query_id), scope.full(request.uid) or None)
        schema = self._platform.result_schema(info.id, info.uid)
        return pb.GetQueryResponse(query=_shown(info), arrow_schema=schema.serialize().to_pybytes())

    async def ListQueries(self, request: pb.ListQueriesRequest, context: Any) -> pb.ListQueriesResponse:
        size = clamp("page_size", request.page_size, default=100, most=1000)
        state = convert.query_state_from_pb(request.state)
        after = _read_token(request.page_token, state) if request.page_token else None
        queries = caller().scope.queries(await asyncio.to_thread(self._platform.queries))
        wanted = [
            q for q in queries if (state is None or q.state == state) and (after is None or (q.id, q.uid) > after)
        ]
        page, rest = wanted[:size], wanted[size:]
        token = _write_token(page[-1], state) if rest else ""
        return pb.ListQueriesResponse(queries=map(convert.query_to_pb, page), next_page_token=token)

    async def _create(self, specs: Sequence[pb.QuerySpec], request_id: str) -> list[Outcome]:
        """Each query remembers which request it comes from: a repetition finds it when the cache of answers was lost
        with the process that had it."""
        who = caller()
        names = (f"{who.tenant}/{request_id}/{i}" if request_id else "" for i in range(len(specs)))
        wanted = [_wanted(spec, name) for spec, name in zip(specs, names, strict=True)]
        # Sinks that do not answer hold a thread for seconds; those who ask for none must not wait behind them.
        threads = self._asking if any(w.sinks for w in wanted) else None
        ask = partial(self._platform.create_queries, wanted, who.tenant, who.quota)
        return await asyncio.wrap_future(await asyncio.get_running_loop().run_in_executor(threads, ask))


def _wanted(spec: pb.QuerySpec, request: str) -> Wanted:
    sinks = tuple(map(convert.connector_from_pb, spec.sinks))
    return Wanted(spec.query_id, spec.sql, sinks, convert.budget_from_pb(spec.budget), request)


def _outcome_to_pb(outcome: Outcome) -> pb.QueryOutcome:
    if isinstance(outcome, AJoinError):
        return pb.QueryOutcome(error=status.to_detail(hidden(outcome, caller(), "CreateQueries")))
    if not isinstance(outcome, QueryInfo):
        raise InternalError(f"creating a query gave {type(outcome).__name__}")
    return pb.QueryOutcome(query=_shown(outcome))


def _shown(info: QueryInfo) -> pb.Query:
    return convert.query_to_pb(caller().scope.query(info))


def _write_token(last: QueryInfo, state: QueryState | None) -> str:
    return base64.urlsafe_b64encode(json.dumps([state, last.id, last.uid]).encode()).decode()


def _read_token(token: str, state: QueryState | None) -> tuple[str, str]:
    try:
        of, id, uid = json.loads(base64.b64decode(token.encode(), altchars=b"-_", validate=True))
        if of != state or not isinstance(id, str) or not isinstance(uid, str):
            raise ValueError(token)
    except (ValueError, TypeError):
        raise InvalidRequest(
            "page_token is not one this listing gave out",
            reason="BAD_PAGE_TOKEN",
            hint="give next_page_token of the page before and the same state; empty means the first page",
        ) from None
    return id, uid
