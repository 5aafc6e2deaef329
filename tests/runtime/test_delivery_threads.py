"""Sinks on threads of their own: one that fails, hangs or is slow delays neither epochs nor others, nor the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ajoin.sql import parse_query
from runtime import crashpoints
from runtime.api import CreateQuery, DeleteQuery
from runtime.connectors.base import ConnectorSpec
from runtime.connectors.registry import SINKS, SinkKind
from runtime.crashpoints import AT, Crashed
from runtime.delivery.delivery import FIRST_DELAY, LONGEST_DELAY
from runtime.delivery.schedule import OnThreads
from runtime.engine.engine import Engine
from tests.faults.processes import until
from tests.runtime.test_delivery import SQL, begin, blocked, create, feed, open_engine, unblock, written


class Gate:
    """A sink whose every write waits until it may pass. `writes`: epochs that arrived at it, `rows`: what passed."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.writes: list[int] = []
        self.rows: dict[int, list[int]] = {}

    def write(self, query_id: str, epoch: int, table: Any) -> None:
        self.writes.append(epoch)
        self.open.wait()
        self.rows[epoch] = table.column("k").to_pylist()

    def close(self) -> None:
        pass


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate()
    monkeypatch.setitem(SINKS, "gate", SinkKind("waits", (), lambda options, roots: gate))
    yield gate
    gate.open.set()


class Hand:
    """Seconds, moved by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def gated(engine: Engine, id: str) -> None:
    engine.apply([CreateQuery(id, parse_query(SQL, engine.schemas()), (ConnectorSpec("gate"),))])


def on_threads(directory: Path, start: Callable[..., Engine] = begin, **schedule: Any) -> Engine:
    return start(directory, delivery=partial(OnThreads, **{"flush_seconds": 60.0} | schedule))


def has(folder: Path, *keys: int) -> None:
    until(lambda: written(folder) == list(keys), f"{folder} does not get {keys}")


def test_a_hanging_sink_holds_up_neither_epochs_nor_others_nor_the_end(tmp_path: Path, gate: Gate) -> None:
    engine = on_threads(tmp_path, flush_seconds=0.05)
    gated(engine, "hangs")
    create(engine, "q", tmp_path / "out")
    feed(engine, 1)
    until(lambda: gate.writes == [1], "the sink is not asked")
    for key in (2, 3):
        feed(engine, key)
    has(tmp_path / "out", 1, 2, 3)
    (hangs,) = engine.status().sinks_behind
    assert (hangs.query_id, hangs.kind, hangs.epochs_behind, hangs.rows_behind) == ("hangs", "gate", 3, 3)
    engine.close()
    assert gate.rows == {}
    gate.open.set()
    until(lambda: gate.rows == {1: [1]}, "the write does not come back")
    engine = on_threads(tmp_path, open_engine)
    engine.close()
    assert gate.rows == {1: [1], 2: [2], 3: [3]}, "a graceful end waits for a sink that works"
    assert gate.writes == [1, 1, 2, 3], "what came back after the end did not count"


def test_a_killed_platform_does_not_wait_for_a_sink_that_hangs(tmp_path: Path, gate: Gate) -> None:
    engine = on_threads(tmp_path)
    gated(engine, "hangs")
    feed(engine, 1)
    until(lambda: gate.writes == [1], "the sink is not asked")
    engine.abandon()
    assert gate.rows == {}


def test_a_sink_that_fails_waits_longer_and_longer_and_then_gets_every_row_once(tmp_path: Path) -> None:
    clock = Hand()
    engine = on_threads(tmp_path, clock=clock)
    create(engine, "bad", blocked(tmp_path / "blocked"))
    create(engine, "q", tmp_path / "out")

    def attempts() -> int:
        (status,) = engine.query("bad").deliveries
        return status.attempts

    feed(engine, 1)
    until(lambda: attempts() == 1, "it is not tried")
    for tried, delay in enumerate([FIRST_DELAY, 2 * FIRST_DELAY, 4 * FIRST_DELAY], 1):
        clock.now += delay - 0.01
        feed(engine, 2 * tried)  # wakes it, too early
        has(tmp_path / "out", *range(1, 2 * tried + 1))
        assert attempts() == tried
        clock.now += 0.01
        feed(engine, 2 * tried + 1)
        until(lambda n=tried + 1: attempts() == n, "it is not tried again")  # type: ignore[misc]
    unblock(tmp_path / "blocked")
    clock.now += LONGEST_DELAY
    feed(engine, 8)
    has(tmp_path / "blocked", 1, 2, 3, 4, 5, 6, 7, 8)
    until(lambda: engine.status().sinks_behind == (), "it is still said to be behind")
    engine.close()


def test_the_sink_of_a_deleted_query_ends_and_its_thread_with_it(tmp_path: Path, gate: Gate) -> None:
    engine = on_threads(tmp_path)
    gated(engine, "gone")
    feed(engine, 1)
    until(lambda: gate.writes == [1], "the sink is not asked")
    create(engine, "q", tmp_path / "out")
    engine.apply([DeleteQuery("gone")])
    feed(engine, 2)
    assert engine.status().sinks == 2
    gate.open.set()
    until(lambda: not any("gone" in t.name for t in threading.enumerate()), "its thread goes on")
    feed(engine, 3)
    assert gate.rows == {1: [1]} and engine.status().sinks == 1
    engine.close()


def test_rows_that_retention_removes_while_a_sink_is_away_are_lost_and_not_damaged(
    tmp_path: Path, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    engine = begin(tmp_path, delivery=OnThreads, retention_epochs=2)
    gated(engine, "slow")
    for key in range(1, 9):
        feed(engine, key)
        until(lambda: gate.writes == [1], "the sink is not asked")
    gate.open.set()
    until(lambda: 8 in gate.rows, "it does not go on")
    (status,) = engine.query("slow").deliveries
    assert status.lost_epochs > 0 and status.error == ""
    assert sorted(gate.rows) == [1, *range(2 + status.lost_epochs, 9)]
    assert "DAMAGED" not in caplog.text and caplog.text.count("left the result log before") == 1
    engine.close()


def test_a_crash_on_a_delivering_thread_brings_the_process_down(tmp_path: Path) -> None:
    engine = on_threads(tmp_path)
    create(engine, "q", tmp_path / "out")
    with crashpoints.arm("delivery.sink"):
        feed(engine, 1)
        until(lambda: not any("ajoin-sink-q" in t.name for t in threading.enumerate()), "it does not crash")
        with pytest.raises(Crashed):
            feed(engine, 2)
        engine.abandon()
    engine = on_threads(tmp_path, open_engine)
    engine.close()
    assert written(tmp_path / "out") == [1, 2]


def test_an_opening_that_fails_leaves_no_thread(tmp_path: Path, gate: Gate) -> None:
    engine = on_threads(tmp_path)
    gated(engine, "q")
    feed(engine, 1)
    engine.abandon()
    gate.open.set()
    until(lambda: not any("ajoin-sink" in t.name for t in threading.enumerate()), "threads of the first one")
    gate.open.clear()
    with crashpoints.arm("recover.delivered"), pytest.raises(Crashed):
        on_threads(tmp_path, open_engine)
    gate.open.set()
    until(lambda: not any("ajoin-sink" in t.name for t in threading.enumerate()), "a thread goes on")


def test_many_sinks_move_at_once_and_the_file_has_them_all(tmp_path: Path) -> None:
    engine = on_threads(tmp_path)
    folders = [tmp_path / "out" / str(n) for n in range(30)]
    create(engine, "q", *folders)
    for key in (1, 2, 3):
        feed(engine, key)
    engine.close()
    assert all(written(folder) == [1, 2, 3] for folder in folders)
    engine = on_threads(tmp_path, open_engine)
    assert all(s.epochs_behind == 0 and s.last_success_ms is None for s in engine.query("q").deliveries)
    engine.close()


def test_epochs_without_rows_do_not_count_as_behind(tmp_path: Path, gate: Gate) -> None:
    engine = on_threads(tmp_path)
    gated(engine, "q")
    gate.open.set()
    feed(engine, 1)
    until(lambda: engine.query("q").deliveries[0].last_success_ms is not None, "it does not get its row")
    for n in range(4):
        engine.push("A", [{"ts": 2000 + n, "k": 100 + n}])
        assert engine.run_epoch().rows == 0
    gate.open.clear()
    feed(engine, 3)
    (status,) = engine.query("q").deliveries
    assert (engine.epoch, status.epochs_behind, status.rows_behind) == (6, 1, 1)
    gate.open.set()
    engine.close()
    assert gate.rows == {1: [1], 6: [3]}


def live(folder: Path) -> None:
    """Eight epochs for two sinks, or what is left of them."""
    new = not (folder / "state").exists()
    engine = on_threads(folder, begin if new else open_engine)
    if new:
        create(engine, "q", folder / "one", folder / "two")
    while engine.epoch < 8:
        feed(engine, engine.epoch + 1)
    engine.close()


@pytest.mark.parametrize(
    "point",
    [
        "delivery.sink:5",
        pytest.param("delivery.begun:6", marks=pytest.mark.long),
        pytest.param("delivery.written:3", marks=pytest.mark.long),
        pytest.param("delivery.marked:4", marks=pytest.mark.long),
    ],
)
def test_a_process_that_is_killed_on_a_delivering_thread_leaves_every_row_once(tmp_path: Path, point: str) -> None:
    program = f"from pathlib import Path; from {__name__} import live; live(Path({str(tmp_path)!r}))"
    killed = subprocess.run([sys.executable, "-c", program], env=os.environ | {AT: point})
    assert killed.returncode == -signal.SIGKILL, f"it did not come along {point}"
    live(tmp_path)
    for folder in (tmp_path / "one", tmp_path / "two"):
        assert written(folder) == list(range(1, 9))
