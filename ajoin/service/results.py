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
being made and one inside gRPC: less than 1 MiB, unless a single row is larger; and all subscriptions together hold no
more than in_flight.py allows. A client that does not read stops its own stream in the middle of a write; epochs and
other streams do not notice. Once in a while that write is looked after: if the rows that follow it have left the
retention, the stream ends with CURSOR_EXPIRED, and if others need the room it takes, with SUBSCRIBER_TOO_SLOW.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ajoin.client.results import Cursor
from ajoin.platform.platform import Platform, PlatformState
from ajoin.service.access import caller
from ajoin.service.change_signal import ChangeSignal
from ajoin.service.checks import require
from ajoin.service.in_flight import InFlight, Place, too_slow
from ajoin.v1 import results_pb2 as pb
from ajoin.v1 import results_pb2_grpc as rpc
from ajoin.wire import convert
from optimizer.errors import AJoinError, InvalidRequest, Unavailable
from runtime import api
from runtime.api import QueryInfo, QueryState, ResultBatch

PIECE_BYTES = 256 << 10
READ_AHEAD = 4
SMALL = 64 << 10
"""Bytes of a batch that is held in memory; a larger one is a mapped file."""
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


class _Writer:
    """Writes the messages of one subscription, and knows the one that its client has not taken yet.

    gRPC takes no status while a message is under way: whoever tries ends nothing, and the client waits for ever. So a
    subscription that is ended in the middle of a message first waits until its client has taken that; it holds nothing
    else meanwhile. A client that goes away ends the waiting.
    """

    def __init__(self, context: Any) -> None:
        self._context = context
        self._writing: asyncio.Future[None] | None = None

    def write(self, message: pb.SubscribeResponse) -> asyncio.Future[None]:
        self._writing = asyncio.ensure_future(self._context.write(message))
        return self._writing

    async def finished(self) -> None:
        if self._writing is not None:
            await asyncio.wait((self._writing,))

    def close(self) -> None:
        if self._writing is not None:
            self._writing.cancel()


class ResultService(rpc.ResultServiceServicer):
    def __init__(self, platform: Platform, changes: ChangeSignal, in_flight: InFlight) -> None:
        self._platform = platform
        self._changes = changes
        self._in_flight = in_flight

    async def Subscribe(self, request: pb.SubscribeRequest, context: Any) -> None:  # type: ignore[override]
        writer = _Writer(context)
        try:
            await self._subscribe(request, writer)
        except AJoinError as failure:
            failure.__traceback__ = None  # what it holds must not wait with it
            await writer.finished()
            raise
        finally:
            writer.close()

    async def _subscribe(self, request: pb.SubscribeRequest, writer: _Writer) -> None:
        require("query_id", request.query_id)
        scope = caller().scope
        id = scope.full(request.query_id)
        view = self._view(id, scope.full(request.uid))
        uid = view.info.uid
        place = _begin(request, view.epoch)
        said: tuple[object, ...] | None = None
        if request.start == pb.START_POSITION_NOW:  # nothing before is asked for: say first where we are
            said = _told(view.info)
            await self._send(writer, pb.SubscribeResponse(progress=_progress(view, place)), view.info, place)
        while True:
            changed = self._changes.next()
            view = self._view(id, uid)
            if view.state in (PlatformState.STOPPING, PlatformState.STOPPED):
                raise Unavailable("the platform is stopping", reason="STOPPING", hint="reconnect with the last cursor")
            while self._platform.has_results(id, _in_log(place), uid):
                before = place
                async with self._in_flight.place(PATIENCE) as room:
                    place = await self._send_some(writer, view.info, place, room)
                if place == before:
                    break
            place = max(place, Cursor(view.epoch, LAST_SEQUENCE))
            saying = _told(view.info)
            if saying != said:
                await self._send(writer, pb.SubscribeResponse(progress=_progress(view, place)), view.info, place)
                said = saying
            if view.info.state != QueryState.RUNNING or request.stop_when_caught_up:
                return
            if view.state == PlatformState.FAILED:
                raise self._platform.failure()
            await changed.wait()

    def _view(self, id: str, uid: str) -> _View:
        state, epoch = self._platform.state, self._platform.epoch
        return _View(self._platform.query(id, uid or None), epoch, state)

    async def _send_some(self, writer: _Writer, query: QueryInfo, place: Cursor, room: Place) -> Cursor:
        """The next batches after `place`; answers the place after them."""
        read = self._platform.read_results
        batches = await asyncio.to_thread(read, query.id, _in_log(place), READ_AHEAD, query.uid)
        self._in_flight.resize(room, sum(min(b.rows.nbytes, SMALL) for b in batches) + 2 * _largest_piece(batches))
        for batch in batches:
            for piece in _pieces(batch, place):
                place = convert.cursor_from_pb(piece.cursor)
                with self._in_flight.message(room, len(piece.arrow_ipc)):
                    await self._send(writer, pb.SubscribeResponse(batch=piece), query, place, room)
        return place

    async def _send(
        self, writer: _Writer, message: pb.SubscribeResponse, query: QueryInfo, place: Cursor, room: Place | None = None
    ) -> None:
        """Wait until the client has taken it, or until the rows after `place` are gone, or others need the room."""
        writing = writer.write(message)
        ends = [writing] if room is None else [writing, room.wanted]
        while not (await asyncio.wait(ends, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED))[0]:
            self._platform.has_results(query.id, _in_log(place), query.uid)
        if not writing.done():
            raise too_slow()
        await writing


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


def _largest_piece(batches: Sequence[ResultBatch]) -> int:
    return max((min(batch.rows.nbytes, PIECE_BYTES) for batch in batches), default=0)


def _told(query: QueryInfo) -> tuple[object, ...]:
    """What a progress marker tells of it; a new marker is sent when this has changed."""
    return query.watermark, query.state, query.incomplete


def _progress(view: _View, place: Cursor) -> pb.Progress:
    return pb.Progress(
        watermark_ms=view.info.watermark,
        epoch=view.epoch,
        cursor=convert.cursor_to_pb(place),
        state=convert.query_state_to_pb(view.info.state),
        incomplete=convert.incomplete_to_pb(view.info.incomplete),
    )
