"""Streams that are absurd, and what a tenant may not do to streams."""

# ruff: noqa: E501  (one kind a line reads better)
from __future__ import annotations

from collections.abc import Generator
from typing import Any

import grpc

from ajoin.v1 import streams_pb2
from ajoin.v1.streams_pb2_grpc import StreamServiceStub
from ajoin.wire import status
from tests.poison.kinds import SERVED, Ending, Kind, invalid, one_call, refused
from tests.poison.scene import PAIR, Scene


def _declared(scene: Scene, name: str = "", columns: Any = PAIR, **given: Any) -> Any:
    given = {"time": "ts", "source": "push", **given}
    return scene.hostile.create_stream(name or scene.name, columns=columns, **given)


def _stream(kind: str, does: str, reason: str, **given: Any) -> Kind:
    return one_call(kind, does, invalid(reason), lambda scene: _declared(scene, **given))


def _twice(scene: Scene) -> Any:
    """No client of ours would send that."""
    integer, text, time = (
        streams_pb2.COLUMN_TYPE_BIGINT,
        streams_pb2.COLUMN_TYPE_STRING,
        streams_pb2.COLUMN_TYPE_TIMESTAMP,
    )
    columns = [streams_pb2.Column(name=n, type=t) for n, t in (("ts", time), ("k", integer), ("k", text))]
    source = streams_pb2.Connector(kind="push")
    spec = streams_pb2.StreamSpec(name=scene.name, columns=columns, time_column="ts", source=source)
    with grpc.insecure_channel(scene.address) as channel:
        request = streams_pb2.CreateStreamRequest(spec=spec)
        try:
            metadata = scene.service.metadata("hostile")
            return StreamServiceStub(channel).CreateStream(request, metadata=metadata, timeout=scene.service.patience)
        except grpc.RpcError as failure:
            raise status.from_rpc(failure) from None


def _longest_delays(scene: Scene) -> Generator[None, None, Ending]:
    """A delay as long as time itself: nothing ever closes, and nothing overflows."""
    longest = (1 << 62) - 1
    left = scene.own("-l", watermark_delay_ms=longest, max_ahead_ms=0)
    right = scene.own("-r", allowed_lateness_ms=longest, max_ahead_ms=0)
    scene.owe(scene.over(left, right))
    for ts in (5, 10**15, -(10**15), 8):
        scene.push(left, [{"k": 1, "ts": ts}])
        scene.push(right, [{"k": 1, "ts": ts + 1}])
        yield
    return SERVED


def _firehose(scene: Scene) -> Generator[None, None, Ending]:
    """As many tuples as a generator can make, for nobody."""
    options = {"rate": "max", "batch": 100_000, "limit": 300_000, "partitions": 2}
    _declared(scene, source="generator", options=options)
    yield
    scene.until(lambda: scene.hostile.stream(scene.name).tuples == 300_000, "the firehose does not end")
    return SERVED


MANY = {"ts": "TIMESTAMP", **{f"c{n}": "INT" for n in range(10_000)}}

STREAMS = (
    _stream("columns-10000", "a stream of 10,000 columns", "TOO_MANY_COLUMNS", columns=MANY),
    _stream("no-columns", "a stream without columns", "NO_COLUMNS", columns={}),
    _stream("negative-delay", "a watermark that runs ahead", "NEGATIVE_DELAY", watermark_delay_ms=-1),
    _stream("negative-lateness", "tuples that are late before they come", "NEGATIVE_DELAY", allowed_lateness_ms=-(1 << 63)),
    _stream("stream-traversal", "the stream ../../x", "INVALID_NAME", name="../../x"),
    _stream("stream-newline", "a stream with a line of the log in its name", "INVALID_NAME", name="x\nERROR ajoin y"),
    _stream("column-newline", "the same for a column", "INVALID_NAME", columns={"ts": "TIMESTAMP", "a\nb": "INT"}),
    _stream("time-as-text", "texts as event time", "TIME_COLUMN_TYPE", columns={"ts": "STRING"}),
    _stream("source-unknown", "a source that is not there", "UNKNOWN_CONNECTOR", source="telepathy"),
    _stream("generator-absurd", "a generator of negative size", "BAD_CONNECTOR_OPTION", source="generator", options={"rate": -5}),
    _stream("files-outside", "files of the operating system", "BAD_CONNECTOR_OPTION", source="files", options={"path": "/etc"}),
    one_call("columns-twice", "a column declared twice", invalid("DUPLICATE_COLUMN"), _twice),
    one_call("stream-taken", "the name of a good stream", refused("ALREADY_EXISTS", "STREAM_EXISTS"),
             lambda s: _declared(s, name=s.victim())),
    one_call("stream-deleted-by-tenant", "deletes a good stream", refused("PERMISSION_DENIED", "PERMISSION_DENIED"),
             lambda s: s.hostile.delete_stream(s.victim())),
    one_call("watermark-reset-by-tenant", "moves the watermark of a good stream", refused("PERMISSION_DENIED", "PERMISSION_DENIED"),
             lambda s: s.hostile.reset_watermark(s.victim(), -(1 << 60))),
    one_call("stream-restarted-by-tenant", "restarts a good stream", refused("PERMISSION_DENIED", "PERMISSION_DENIED"),
             lambda s: s.hostile.restart_stream(s.victim(), at="earliest")),
    one_call("stream-deleted-in-use", "an operator's slip: deletes a stream that queries read",
             refused("FAILED_PRECONDITION", "STREAM_IN_USE"), lambda s: _in_use(s)),
    Kind("longest-delays", "delays and lateness as long as time", SERVED, _longest_delays),
    Kind("firehose", "300,000 tuples as fast as they can be made", SERVED, _firehose),
)  # fmt: skip


def _in_use(scene: Scene) -> None:
    stream = scene.victim()
    scene.hostile.create_query(scene.over(stream, stream), id=scene.name)
    scene.service.operator.delete_stream(stream)
