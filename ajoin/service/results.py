"""ResultService: a query's rows, exactly once, from any place on.

The loop of a subscription: look at the query and the committed epoch, send every batch of its log after our
place, then say how far that is complete, then wait for the next change. The order makes the promise of a
progress marker true: the watermark is taken *before* the log is read, so every row it speaks of is in the log
by then.

A batch too large for one message travels in pieces; a piece's cursor is the place of the batch before plus
the number of rows already sent, so even a client that leaves in the middle of a batch can go on exactly
there.

A subscription belongs to one query, found by its uid after the first look: when that is deleted and its id
given to another, the subscription still gets the rest of its own rows. Rows that leave the retention before
a subscriber has read them end its stream with CURSOR_EXPIRED.

Nothing is queued for a subscriber: its place is a cursor, and rows are read from the log when it is ready for them.
What it can hold is `READ_AHEAD` batches (large ones are mapped files, small ones less than 64 KiB) and two pieces, one
being made and one inside gRPC: less than 1 MiB, unless a single row is larger. A client that does not read stops its
own stream in the middle of a write; epochs and other streams do not notice. Once in a while that write is looked after:
if the rows that follow it have left the retention, the stream ends with CURSOR_EXPIRED, and what it held is let go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ajoin.client.results import Cursor
from ajoin.platform.platform import Platform, PlatformState
from ajoin.service.access import caller
from ajoin.service.change_signal import ChangeSignal
from ajoin.service.checks import require
from ajoin.v1 import results_pb2 as pb
from ajoin.v1 import results_pb2_grpc as rpc
from ajoin.wire import convert
from optimizer.errors import InternalError, InvalidRequest, Unavailable
from runtime import api
from runtime.api import QueryInfo, QueryState, ResultBatch

PIECE_BYTES = 256 << 10
READ_AHEAD = 4
PATIENCE = 5.0
"""Seconds between two looks at a write that the client keeps waiting."""
LAST_SEQUENCE = (1 << 63) - 1
BEGINNING = Cursor(0, 0)


@dataclass(frozen=True, slots=True)
class _View:
    """The query and the committed epoch as they were before the log was read."""

    info: QueryInfo
    epoch: int
    state: PlatformState


class ResultService(rpc.ResultServiceServicer):
    def __init__(self, platform: Platform, changes: ChangeSignal) -> None:
        self._platform = platform
        self._changes = changes

    async def Subscribe(self, request: pb.SubscribeRequest, context: Any) -> None:  # type: ignore[override]
        require("query_id", request.query_id)
        scope = caller().scope
        id = scope.full(request.query_id)
        view = self._view(id, scope.full(request.uid))
        uid = view.info.uid
        place = _begin(request, view.epoch)
        said: tuple[object, object] | None = None
        if request.start == pb.START_POSITION_NOW:  # nothing before is asked for: say first where we are
            said = (view.info.watermark, view.info.state)
            await self._send(context, pb.SubscribeResponse(progress=_progress(view, place)), view.info, place)
        while True:
            changed = self._changes.next()
            view = self._view(id, uid)
            if view.state in (PlatformState.STOPPING, PlatformState.STOPPED):
                raise Unavailable("the platform is stopping", reason="STOPPING", hint="reconnect with the last cursor")
            while self._platform.has_results(id, _in_log(place), uid):
                batches = await asyncio.to_thread(self._platform.read_results, id, _in_log(place), READ_AHEAD, uid)
                for batch in batches:
                    for piece in _pieces(batch, place):
                        place = convert.cursor_from_pb(piece.cursor)
                        await self._send(context, pb.SubscribeResponse(batch=piece), view.info, place)
                if not batches:
                    break
            place = max(place, Cursor(view.epoch, LAST_SEQUENCE))
            saying = (view.info.watermark, view.info.state)
            if saying != said:
                await self._send(context, pb.SubscribeResponse(progress=_progress(view, place)), view.info, place)
                said = saying
            if view.info.state != QueryState.RUNNING or request.stop_when_caught_up:
                return
            if view.state == PlatformState.FAILED:
                raise InternalError(self._platform.status().message, reason="PLATFORM_FAILED")
            await changed.wait()

    def _view(self, id: str, uid: str) -> _View:
        state, epoch = self._platform.state, self._platform.epoch
        return _View(self._platform.query(id, uid or None), epoch, state)

    async def _send(self, context: Any, message: pb.SubscribeResponse, query: QueryInfo, place: Cursor) -> None:
        """Wait until the client has taken it, or until the rows after `place` are gone."""
        writing = asyncio.ensure_future(context.write(message))
        try:
            while not (await asyncio.wait((writing,), timeout=PATIENCE))[0]:
                self._platform.has_results(query.id, _in_log(place), query.uid)
            await writing
        finally:
            writing.cancel()


def _in_log(place: Cursor) -> api.Cursor | None:
    return None if place == BEGINNING else api.Cursor(place.epoch, place.sequence)


def _begin(request: pb.SubscribeRequest, epoch: int) -> Cursor:
    if request.WhichOneof("begin") != "after":
        name = convert.enum_name(pb.StartPosition, request.start, "START_POSITION_")
        return Cursor(epoch, LAST_SEQUENCE) if name == "NOW" else BEGINNING
    cursor = convert.cursor_from_pb(request.after)
    if min(cursor.epoch, cursor.sequence, cursor.offset) < 0 or cursor.epoch > epoch:
        raise InvalidRequest(
            f"the cursor {cursor} is no place in this log; the last committed epoch is {epoch}",
            reason="BAD_CURSOR",
            hint="use a cursor that came with a batch or a progress marker of this query",
        )
    return cursor


def _pieces(batch: ResultBatch, before: Cursor) -> Iterator[pb.ResultBatch]:
    """Made one by one, so that only one is held."""
    rows = batch.rows
    if before.offset > rows.num_rows:
        raise InvalidRequest(
            f"the cursor {before} skips {before.offset} rows of a batch that has {rows.num_rows}",
            reason="BAD_CURSOR",
            hint="use a cursor that came with a batch of this query",
        )
    step = max(1, rows.num_rows * PIECE_BYTES // max(rows.nbytes, PIECE_BYTES))
    # A batch without rows to send still moves the cursor.
    for start in range(before.offset, rows.num_rows, step) or [before.offset]:
        piece = rows.slice(start, step)
        done = start + piece.num_rows
        whole = done == rows.num_rows
        cursor = (
            Cursor(batch.cursor.epoch, batch.cursor.sequence) if whole else Cursor(before.epoch, before.sequence, done)
        )
        yield pb.ResultBatch(
            arrow_ipc=convert.table_to_ipc(piece),
            cursor=convert.cursor_to_pb(cursor),
            rows=piece.num_rows,
        )


def _progress(view: _View, place: Cursor) -> pb.Progress:
    return pb.Progress(
        watermark_ms=view.info.watermark,
        epoch=view.epoch,
        cursor=convert.cursor_to_pb(place),
        state=convert.query_state_to_pb(view.info.state),
    )
