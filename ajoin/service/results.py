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
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
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

PIECE_BYTES = 4 << 20
READ_AHEAD = 16
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

    async def Subscribe(self, request: pb.SubscribeRequest, context: Any) -> AsyncIterator[pb.SubscribeResponse]:
        require("query_id", request.query_id)
        scope = caller().scope
        id = scope.full(request.query_id)
        view = self._view(id, scope.full(request.uid))
        uid = view.info.uid
        place = _begin(request, view.epoch)
        said: tuple[object, object] | None = None
        if request.start == pb.START_POSITION_NOW:  # nothing before is asked for: say first where we are
            said = (view.info.watermark, view.info.state)
            yield pb.SubscribeResponse(progress=_progress(view, place))
        while True:
            changed = self._changes.next()
            view = self._view(id, uid)
            if view.state in (PlatformState.STOPPING, PlatformState.STOPPED):
                raise Unavailable("the platform is stopping", reason="STOPPING", hint="reconnect with the last cursor")
            while batches := await asyncio.to_thread(self._read, view.info, place):
                for batch in batches:
                    yield pb.SubscribeResponse(batch=batch)
                place = convert.cursor_from_pb(batches[-1].cursor)
            place = max(place, Cursor(view.epoch, LAST_SEQUENCE))
            saying = (view.info.watermark, view.info.state)
            if saying != said:
                yield pb.SubscribeResponse(progress=_progress(view, place))
                said = saying
            if view.info.state != QueryState.RUNNING or request.stop_when_caught_up:
                return
            if view.state == PlatformState.FAILED:
                raise InternalError(self._platform.status().message, reason="PLATFORM_FAILED")
            await changed.wait()

    def _view(self, id: str, uid: str) -> _View:
        state, epoch = self._platform.state, self._platform.epoch
        return _View(self._platform.query(id, uid or None), epoch, state)

    def _read(self, query: QueryInfo, place: Cursor) -> list[pb.ResultBatch]:
        after = api.Cursor(place.epoch, place.sequence) if place != BEGINNING else None
        pieces: list[pb.ResultBatch] = []
        for batch in self._platform.read_results(query.id, after, READ_AHEAD, query.uid):
            pieces += _pieces(batch, place)
            place = Cursor(batch.cursor.epoch, batch.cursor.sequence)
        return pieces


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


def _pieces(batch: ResultBatch, before: Cursor) -> list[pb.ResultBatch]:
    rows = batch.rows
    if before.offset > rows.num_rows:
        raise InvalidRequest(
            f"the cursor {before} skips {before.offset} rows of a batch that has {rows.num_rows}",
            reason="BAD_CURSOR",
            hint="use a cursor that came with a batch of this query",
        )
    step = max(1, rows.num_rows * PIECE_BYTES // max(rows.nbytes, PIECE_BYTES))
    pieces = []
    # A batch without rows to send still moves the cursor.
    for start in range(before.offset, rows.num_rows, step) or [before.offset]:
        piece = rows.slice(start, step)
        done = start + piece.num_rows
        whole = done == rows.num_rows
        cursor = (
            Cursor(batch.cursor.epoch, batch.cursor.sequence) if whole else Cursor(before.epoch, before.sequence, done)
        )
        pieces.append(
            pb.ResultBatch(
                arrow_ipc=convert.table_to_ipc(piece),
                cursor=convert.cursor_to_pb(cursor),
                rows=piece.num_rows,
            )
        )
    return pieces


def _progress(view: _View, place: Cursor) -> pb.Progress:
    return pb.Progress(
        watermark_ms=view.info.watermark,
        epoch=view.epoch,
        cursor=convert.cursor_to_pb(place),
        state=convert.query_state_to_pb(view.info.state),
    )
