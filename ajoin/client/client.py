"""`ajoin.Client`: the platform's verbs as blocking calls.

    with ajoin.Client() as client:
        client.create_query("SELECT ... WINDOW TUMBLING (SIZE 1 SECOND)", id="q1")
        for batch in client.subscribe("q1"):
            print(batch.table)

A client may be used from several threads. Every failure is raised as the exception the server raised, with its reason,
hint and place in the SQL text. `ajoin.AsyncClient` has the same verbs as coroutines.

Generated from async_client.py by `make stubs`; change that file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

import grpc
import pyarrow as pa

from ajoin.client import addresses, requests
from ajoin.client.addresses import Search
from ajoin.client.connection import Connection
from ajoin.client.requests import DEFAULT_TARGET, Order, Sink, new_request_id
from ajoin.client.results import START, Batch, Collector, Cursor, Progress, Results
from ajoin.platform.statistics import Statistics
from ajoin.v1 import admin_pb2, plan_pb2, queries_pb2, streams_pb2
from ajoin.v1.admin_pb2_grpc import AdminServiceStub
from ajoin.v1.plan_pb2_grpc import PlanServiceStub
from ajoin.v1.queries_pb2_grpc import QueryServiceStub
from ajoin.v1.results_pb2_grpc import ResultServiceStub
from ajoin.v1.streams_pb2_grpc import StreamServiceStub
from ajoin.wire import convert, status
from optimizer.errors import AJoinError
from runtime.api import (
    NO_BUDGET,
    Budget,
    DeadLetterInfo,
    Optimization,
    PlanEvent,
    PlatformStatus,
    QueryInfo,
    RunningSetting,
    StreamInfo,
)

T = TypeVar("T")


class Client:
    """`target`: host:port, or several (with commas, or a list) of a platform that has others standing by: calls and
    subscriptions go on at the one that serves (addresses.py).

    `timeout`: seconds a call may take; None: for ever. Subscriptions have no limit unless they are given one; with
    several addresses they may be without a platform for as long as a call may take.

    `tls_ca`: a file with the authority to trust ('system': the well-known ones). `cert` and `key`: the client
    certificate, for platforms that ask for one. `token`: what `ajoin token create` printed.
    """

    def __init__(
        self,
        target: str | Sequence[str] = DEFAULT_TARGET,
        *,
        timeout: float | None = 60.0,
        tls_ca: str | Path | None = None,
        cert: str | Path | None = None,
        key: str | Path | None = None,
        token: str | None = None,
    ) -> None:
        connection = Connection(addresses.parse(target), tls_ca, cert, key, token)
        self._timeout = timeout
        self._metadata = connection.metadata
        self._addresses = connection.channels()
        self._streams = StreamServiceStub(self._addresses)
        self._queries = QueryServiceStub(self._addresses)
        self._results = ResultServiceStub(self._addresses)
        self._plan = PlanServiceStub(self._addresses)
        self._admin = AdminServiceStub(self._addresses)

    def close(self) -> None:
        self._addresses.closed = True
        for channel in self._addresses.channels:
            channel.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- streams --

    def create_stream(
        self,
        name: str,
        *,
        columns: Mapping[str, str],
        time: str,
        source: str = "generator",
        options: Mapping[str, object] | None = None,
        watermark_delay_ms: int = 0,
        allowed_lateness_ms: int = 0,
        idle_timeout_ms: int | None = None,
        max_ahead_ms: int | None = None,
        max_jump_ms: int | None = None,
        request_id: str | None = None,
    ) -> StreamInfo:
        """`columns` maps names to types: BIGINT, INT, DOUBLE, STRING, BOOLEAN, TIMESTAMP.

        `max_ahead_ms`: how far beyond the clock event times may lie; None: as the platform is configured, 0: any.
        """
        request = requests.create_stream(
            name,
            columns,
            time,
            source,
            options,
            watermark_delay_ms,
            allowed_lateness_ms,
            idle_timeout_ms,
            max_ahead_ms,
            max_jump_ms,
            request_id,
        )
        return convert.stream_from_pb(self._call(self._streams.CreateStream, request).stream)

    def streams(self) -> list[StreamInfo]:
        response = self._call(self._streams.ListStreams, streams_pb2.ListStreamsRequest())
        return [convert.stream_from_pb(m) for m in response.streams]

    def stream(self, name: str) -> StreamInfo:
        response = self._call(self._streams.GetStream, streams_pb2.GetStreamRequest(name=name))
        return convert.stream_from_pb(response.stream)

    def delete_stream(self, name: str, *, request_id: str | None = None) -> None:
        request = streams_pb2.DeleteStreamRequest(name=name, request_id=request_id or new_request_id())
        self._call(self._streams.DeleteStream, request)

    def reset_watermark(self, name: str, to: int, *, request_id: str | None = None) -> StreamInfo:
        """Move a stream's watermark back to `to`, if no running query has closed a window by it."""
        request = streams_pb2.ResetWatermarkRequest(
            name=name, watermark_ms=to, request_id=request_id or new_request_id()
        )
        return convert.stream_from_pb(self._call(self._streams.ResetWatermark, request).stream)

    def restart_stream(self, name: str, *, at: str | None = None, request_id: str | None = None) -> StreamInfo:
        """Read a stream from 'earliest', 'latest' or an offset on, without its watermark; None: where it stands."""
        request = streams_pb2.RestartStreamRequest(
            name=name, offset=at or "", request_id=request_id or new_request_id()
        )
        return convert.stream_from_pb(self._call(self._streams.RestartStream, request).stream)

    def dead_letters(self, name: str, *, limit: int = 100) -> list[DeadLetterInfo]:
        """The latest tuples of a stream that could not be used, newest last."""
        request = streams_pb2.ListDeadLettersRequest(name=name, limit=limit)
        response = self._call(self._streams.ListDeadLetters, request)
        return [convert.dead_letter_from_pb(name, m) for m in response.dead_letters]

    # -- queries --

    def create_query(
        self,
        sql: str,
        *,
        id: str | None = None,
        sinks: Sequence[Sink] = (),
        budget: Budget = NO_BUDGET,
        request_id: str | None = None,
    ) -> QueryInfo:
        """Returns when the query has taken effect. Without an id the platform chooses one. What the budget leaves open
        is as much as the platform lets the caller have."""
        request = queries_pb2.CreateQueryRequest(
            spec=requests.query_spec(sql, id, sinks, budget), request_id=request_id or new_request_id()
        )
        return convert.query_from_pb(self._call(self._queries.CreateQuery, request).query)

    def create_queries(
        self,
        queries: Mapping[str, str] | Sequence[str],
        *,
        sinks: Sequence[Sink] = (),
        budget: Budget = NO_BUDGET,
        request_id: str | None = None,
    ) -> list[QueryInfo | AJoinError]:
        """Many at once, as {id: sql} or [sql, ...]; each gets its own outcome and none raises."""
        request = requests.create_queries(queries, sinks, budget, request_id)
        return [
            convert.query_from_pb(m.query) if m.HasField("query") else status.from_detail(m.error)
            for m in self._call(self._queries.CreateQueries, request).outcomes
        ]

    def delete_query(self, id: str, *, request_id: str | None = None) -> QueryInfo:
        """Returns when the query's last row has been delivered."""
        request = queries_pb2.DeleteQueryRequest(query_id=id, request_id=request_id or new_request_id())
        return convert.query_from_pb(self._call(self._queries.DeleteQuery, request).query)

    def suspend_query(self, id: str, reason: str = "", *, request_id: str | None = None) -> QueryInfo:
        """Stop a query and keep its id."""
        request = queries_pb2.SuspendQueryRequest(query_id=id, reason=reason, request_id=request_id or new_request_id())
        return convert.query_from_pb(self._call(self._queries.SuspendQuery, request).query)

    def resume_query(self, id: str, *, request_id: str | None = None) -> QueryInfo:
        """Let a suspended query run again, from the next window on."""
        request = queries_pb2.ResumeQueryRequest(query_id=id, request_id=request_id or new_request_id())
        return convert.query_from_pb(self._call(self._queries.ResumeQuery, request).query)

    def query(self, id: str, *, uid: str | None = None) -> QueryInfo:
        """The latest query of that id, or the one that had this uid."""
        return self._described(id, uid)[0]

    def result_schema(self, id: str, *, uid: str | None = None) -> pa.Schema:
        """The columns of its rows, also while it has none."""
        return self._described(id, uid)[1]

    def _described(self, id: str, uid: str | None) -> tuple[QueryInfo, pa.Schema]:
        response = self._call(self._queries.GetQuery, queries_pb2.GetQueryRequest(query_id=id, uid=uid or ""))
        return convert.query_from_pb(response.query), convert.result_schema_from_pb(response)

    def queries(self, *, page_size: int = 100) -> Iterator[QueryInfo]:
        """Running and deleted ones, sorted by id, fetched page by page."""
        token = ""
        while True:
            request = queries_pb2.ListQueriesRequest(page_size=page_size, page_token=token)
            response = self._call(self._queries.ListQueries, request)
            for message in response.queries:
                yield convert.query_from_pb(message)
            token = response.next_page_token
            if not token:
                return

    # -- results --

    @overload
    def subscribe(
        self,
        id: str,
        *,
        start: str = ...,
        cursor: Cursor | None = ...,
        uid: str | None = ...,
        follow: bool = ...,
        progress: Literal[False] = ...,
        timeout: float | None = ...,
    ) -> Iterator[Batch]: ...

    @overload
    def subscribe(
        self,
        id: str,
        *,
        start: str = ...,
        cursor: Cursor | None = ...,
        uid: str | None = ...,
        follow: bool = ...,
        progress: Literal[True],
        timeout: float | None = ...,
    ) -> Iterator[Batch | Progress]: ...

    def subscribe(
        self,
        id: str,
        *,
        start: str = START,
        cursor: Cursor | None = None,
        uid: str | None = None,
        follow: bool = True,
        progress: bool = False,
        timeout: float | None = None,
    ) -> Iterator[Any]:
        """The query's rows as they are committed, from the 'start', from 'now', or after a cursor.

        Ends when the query is deleted and everything was read; without `follow`, when everything committed by
        now was. With `progress`, markers come along that say up to which watermark the rows are complete. Of
        the queries that had this id, `uid` names one; without it, the latest is meant.
        """
        if self._addresses.several and uid is None:  # should it be cut off, it goes on with the same query
            uid = self.query(id).uid
        request = requests.subscribe(id, start, cursor, follow, uid)
        method, after = self._results.Subscribe, requests.subscribe_after
        for item in self._stream(method, request, convert.item_from_pb, after, timeout):
            if progress or isinstance(item, Batch):
                yield item

    def results(
        self,
        id: str,
        *,
        start: str = START,
        cursor: Cursor | None = None,
        uid: str | None = None,
        limit: int | None = None,
        until: int | None = None,
        timeout: float | None = None,
    ) -> Results:
        """Rows in one piece: all committed by now, the first `limit`, or all until the watermark `until`."""
        info, schema = self._described(id, uid)
        collector = Collector(schema, cursor, limit, until)
        follow = limit is not None or until is not None
        for item in self.subscribe(
            id, start=start, cursor=cursor, uid=info.uid, follow=follow, progress=True, timeout=timeout
        ):
            if collector.take(item):
                break
        return collector.results

    # -- plan --

    def explain(self, id: str | None = None, *, sql: str | None = None, format: str = "text") -> str:
        """A query, a SQL text that is not created, or (neither) the whole plan.

        As 'text', 'json' or 'dot'.
        """
        return str(self._call(self._plan.Explain, requests.explain(id, sql, format)).text)

    def watch_plan(self, *, after_version: int | None = None, timeout: float | None = None) -> Iterator[PlanEvent]:
        """Changelogs as they happen; after_version=0 begins with the first of all, None with the next."""
        if self._addresses.several and after_version is None:  # should it be cut off, it misses nothing
            after_version = self.status().plan_version
        request = plan_pb2.WatchPlanRequest(after_version=after_version)
        method, after = self._plan.WatchPlan, requests.watch_after
        for change in self._stream(method, request, lambda response: response.change, after, timeout):
            yield convert.plan_event_from_pb(change)

    def optimize(self, mode: str = "full", *, dry_run: bool = False) -> Optimization:
        """Optimize now, 'full' or 'incremental', and apply whatever is better; a dry run only says what it is."""
        request = requests.optimize(mode, dry_run)
        return convert.optimization_from_pb(self._call(self._plan.Optimize, request))

    def force_order(self, id: str, order: Order) -> int:
        """Join order as nested lists of aliases, e.g. [["V", "W"], "C"]; returns the plan version."""
        return int(self._call(self._plan.ForceOrder, requests.force_order(id, order)).plan_version)

    def force_groups(self, groups: Mapping[str, int]) -> int:
        """Query group by query id; returns the plan version."""
        request = plan_pb2.ForceGroupsRequest(groups=groups)
        return int(self._call(self._plan.ForceGroups, request).plan_version)

    def scale(self, partitions: int) -> int:
        """Scale out or in; returns the plan version."""
        return int(self._call(self._plan.Scale, plan_pb2.ScaleRequest(partitions=partitions)).plan_version)

    def split(self, partition: int, ways: int) -> int:
        """Scale one partition up (ways = 1: back down); returns the plan version."""
        request = plan_pb2.SplitPartitionRequest(partition=partition, ways=ways)
        return int(self._call(self._plan.SplitPartition, request).plan_version)

    def unpin(self, ids: Sequence[str] = (), *, scale: bool = False) -> int:
        """Release what was forced: order and group of these queries, the partition function (`scale`), or all of it;
        returns the plan version."""
        request = plan_pb2.UnpinRequest(query_ids=ids, scale=scale)
        return int(self._call(self._plan.Unpin, request).plan_version)

    # -- admin --

    def settings(self) -> list[RunningSetting]:
        """Those that can be changed while the platform runs."""
        answer = self._call(self._admin.ListSettings, admin_pb2.ListSettingsRequest())
        return [convert.setting_from_pb(m) for m in answer.settings]

    def set(self, name: str, value: float | str | None) -> RunningSetting:
        """Change a setting from now on and after restarts; None: the configured value again."""
        request = admin_pb2.SetSettingRequest(name=name, value=None if value is None else str(value))
        return convert.setting_from_pb(self._call(self._admin.SetSetting, request).setting)

    def status(self) -> PlatformStatus:
        return convert.status_from_pb(self._call(self._admin.GetStatus, admin_pb2.GetStatusRequest()))

    def statistics(self, *, epochs: int = 60) -> Statistics:
        request = admin_pb2.GetStatisticsRequest(epochs=epochs)
        return convert.statistics_from_pb(self._call(self._admin.GetStatistics, request))

    def _call(self, method: Any, request: Any) -> Any:
        search = Search(self._addresses, self._timeout, self._timeout, repeats=True)
        while True:
            try:
                return method(request, timeout=search.begin(), metadata=self._metadata)
            except grpc.RpcError as failure:
                pause = search.pause(failure)
            time.sleep(pause)

    def _stream(
        self,
        method: Any,
        request: Any,
        convert_item: Callable[[Any], T],
        after: Callable[[Any, T], Any],
        timeout: float | None,
    ) -> Iterator[T]:
        """The call begins when the first item is asked for; it is cancelled when the caller stops asking. `after`: the
        request that goes on after an item, for a call that is cut off."""
        search = Search(self._addresses, self._timeout, timeout, repeats=False)
        while True:
            call = method(request, timeout=search.begin(), metadata=self._metadata)
            try:
                for message in call:
                    search.found()
                    item = convert_item(message)
                    request = after(request, item)
                    yield item
                return
            except grpc.RpcError as failure:
                pause = search.pause(failure)
            finally:
                call.cancel()
            time.sleep(pause)
