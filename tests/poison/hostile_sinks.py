"""Sinks that cannot work are refused with their query; one that stops working fails alone."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable, Generator
from typing import Any

from ajoin.client.requests import Sink
from runtime.api import QueryState
from tests.poison.kinds import Ending, How, Kind, invalid, one_call, refused
from tests.poison.scene import Scene

BAD = invalid("BAD_CONNECTOR_OPTION")


def _sink(name: str, does: str, ends: Ending, sink: Callable[[Scene], Sink]) -> Kind:
    def call(scene: Scene) -> Any:
        try:
            return scene.hostile.create_query(scene.join(), id=scene.name, sinks=[sink(scene)])
        finally:
            known = [q.id for q in scene.hostile.queries()]
            assert scene.name not in known, "a refused query is left behind"

    return one_call(name, does, ends, call)


def _parquet(path: Any) -> Sink:
    return "parquet", {"path": path}


def _linked(scene: Scene) -> Sink:
    scene.file("link").symlink_to(scene.service.state_dir)
    return _parquet(scene.file("link") / "results")


def _no_folder(scene: Scene) -> Sink:
    scene.file("file").write_text("no folder")
    return _parquet(scene.file("file") / "below")


def _dead_broker(scene: Scene) -> Sink:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    return "kafka", {"bootstrap": f"127.0.0.1:{port}", "topic": "x"}


def _folder_lost(scene: Scene) -> Generator[None, None, Ending]:
    """The sink works, then its folder is replaced by a file: it says so, and its query's rows are where they were."""
    left, right = scene.pair()
    out = scene.file("out")
    scene.owe(scene.over(left, right), sinks=[_parquet(out)])
    scene.push(left, [{"k": n, "ts": 5} for n in range(3)])
    scene.push(right, [{"k": n, "ts": 6} for n in range(3)])
    yield
    scene.until(lambda: bool(list(out.rglob("*.parquet"))), "the sink writes nothing")
    shutil.rmtree(out)
    out.write_text("no folder any more")
    scene.push(left, [{"k": n, "ts": 7} for n in range(3)])
    yield
    scene.until(lambda: any(d.error for d in scene.info(scene.name).deliveries), "nobody says that the sink fails")
    (sink,) = scene.info(scene.name).deliveries
    assert sink.kind == "parquet" and sink.rows_behind == 3 and sink.failing_since_ms is not None, sink
    assert scene.info(scene.name).state == QueryState.RUNNING
    out.unlink()
    scene.until(lambda: not any(d.error for d in scene.info(scene.name).deliveries), "the sink does not recover")
    return Ending(How.ALONE, "", "and goes on when it can")


SINKS = (
    _sink("sink-unknown", "a sink of a kind that is not there", invalid("UNKNOWN_CONNECTOR"), lambda s: ("pigeon", {})),
    _sink("sink-option", "an option that no sink has", BAD, lambda s: ("parquet", {"path": s.file("x"), "exec": "rm"})),
    _sink("sink-no-path", "a path with a zero in it", BAD, lambda s: _parquet("x\0y")),
    _sink("sink-key", "a key that is no output", BAD, lambda s: ("kafka", {"bootstrap": "127.0.0.1:1", "key": "nope"})),
    _sink("sink-dead-broker", "brokers that are not there", refused("UNAVAILABLE", "KAFKA_UNAVAILABLE"), _dead_broker),
    _sink("sink-outside", "a folder outside of the allowed one", BAD, lambda s: _parquet("/tmp/elsewhere")),
    _sink("sink-traversal", "the same, with dots", BAD, lambda s: _parquet(f"{s.folder}/../../state/results")),
    _sink("sink-in-state", "the state directory", BAD, lambda s: _parquet(s.service.state_dir / "results")),
    _sink("sink-link", "a link in the allowed folder to the state directory", BAD, _linked),
    _sink("sink-no-folder", "a folder below a file", BAD, _no_folder),
    Kind(
        "sink-folder-lost", "its folder becomes a file", Ending(How.ALONE, "", "and goes on when it can"), _folder_lost
    ),
)
