"""Rows, cursors and progress markers of a subscription."""

from __future__ import annotations

import pyarrow as pa

from ajoin.client.results import Batch, Cursor, Progress
from ajoin.v1 import results_pb2
from ajoin.wire.convert.fields import optional
from ajoin.wire.convert.queries import incomplete_from_pb, query_state_from_pb
from runtime.api import QueryState


def table_to_ipc(batch: pa.RecordBatch) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(out.getvalue())


def cursor_to_pb(cursor: Cursor) -> results_pb2.Cursor:
    return results_pb2.Cursor(epoch=cursor.epoch, sequence=cursor.sequence, offset=cursor.offset)


def cursor_from_pb(message: results_pb2.Cursor) -> Cursor:
    return Cursor(message.epoch, message.sequence, message.offset)


def item_from_pb(message: results_pb2.SubscribeResponse) -> Batch | Progress:
    if message.WhichOneof("item") == "batch":
        table = pa.ipc.open_stream(message.batch.arrow_ipc).read_all()
        return Batch(table, cursor_from_pb(message.batch.cursor))
    progress = message.progress
    return Progress(
        optional(progress, "watermark_ms"),
        progress.epoch,
        cursor_from_pb(progress.cursor),
        query_state_from_pb(progress.state) or QueryState.RUNNING,
        incomplete_from_pb(progress),
    )
