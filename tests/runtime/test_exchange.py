"""Buckets by value: tasks see no directory, parcels come and go with the buckets they carry."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from optimizer.errors import InternalError
from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.buckets.store import BucketStore
from runtime.connectors.base import ConnectorSpec, carried
from runtime.connectors.files import FilesSource, parse_config
from runtime.connectors.push import PushSource
from runtime.exchange.by_value import ByValue
from runtime.exchange.outbox import post
from runtime.execution.executor import Held, LocalExecutor
from tests.runtime.rig import Rig

SCHEMA = StreamSchema("S", (Column("k", ColumnType.BIGINT), Column("ts", ColumnType.TIMESTAMP)), "ts")
JOIN = "SELECT A.k, A.x, B.y FROM A JOIN B ON A.k = B.k WINDOW TUMBLING (SIZE 100 MILLISECONDS)"
CHAIN = (
    "SELECT A.x, B.y, C.z FROM A JOIN B ON A.k = B.k JOIN C ON B.y = C.y "
    "WINDOW HOPPING (SIZE 100 MILLISECONDS, ADVANCE BY 50 MILLISECONDS)"
)


class Elsewhere(LocalExecutor):
    """Runs tasks as another machine would: everything through pickle, and every file they open is written down."""

    def __init__(self) -> None:
        self.tasks = 0
        self.opened: list[str] = []
        self._inside = False
        sys.addaudithook(self._saw)

    def _saw(self, event: str, arguments: Any) -> None:
        if self._inside and event in ("open", "os.rename", "os.remove", "os.mkdir", "os.listdir", "os.scandir"):
            self.opened.append(str(arguments[0]))

    def run(self, name: str, stage: Any, shared: Any, tasks: Any) -> Any:
        payload, answers = pickle.dumps((stage, shared)), []
        for task in tasks:
            piece = pickle.dumps(task)
            self._inside = True
            try:
                function, everything = pickle.loads(payload)
                answer = pickle.dumps(function(everything, pickle.loads(piece)))
            finally:
                self._inside = False
            answers.append(pickle.loads(answer))
            self.tasks += 1
        return answers


class Watched(Held):
    def __init__(self, pieces: list[bytes], all: list[Watched]) -> None:
        super().__init__(pieces)
        self.size, self.dropped = sum(map(len, pieces)), False
        all.append(self)

    def drop(self) -> None:
        self.dropped = True
        super().drop()


class Sending(LocalExecutor):
    def __init__(self, sent: list[Watched]) -> None:
        self._sent = sent

    def broadcast(self, pieces: Any) -> Watched:
        return Watched(list(pieces), self._sent)


@pytest.fixture
def sent() -> list[Watched]:
    return []


@pytest.fixture
def store(tmp_path: Path, sent: list[Watched]) -> ByValue:
    return ByValue(Sending(sent), BucketStore(tmp_path / "buckets"), tmp_path / "results")


def written(store: ByValue, name: str, n: int = 100) -> None:
    """As a task would write it, received by the driver."""
    store.run("write", write_one, store.for_tasks(()), [(name, n)])


def write_one(buckets: Any, task: tuple[str, int]) -> int:
    name, n = task
    written: int = buckets.write(name, {"name": name}, {"a": np.arange(n), "empty": np.empty((0, 2), np.uint64)})
    return written


def life(rig: Rig) -> dict[str, Any]:
    """Two joins, a plan change, a deletion and a restart; what the queries got."""
    rig.stream("A", k="BIGINT", x="STRING")
    rig.stream("B", k="BIGINT", y="BIGINT")
    rig.stream("C", y="BIGINT", z="BIGINT")
    rig.create("q1", JOIN)
    for e in range(6):
        if e == 2:
            rig.create("q2", CHAIN)
        if e == 4:
            rig.reopen()
        ts = 40 * e
        rig.epoch({
            "A": [(i % 5, f"a{e}-{i}", ts + i) for i in range(20)],
            "B": [(i % 4, i % 3, ts + i) for i in range(20)],
            "C": [(i % 3, i, ts + i) for i in range(10)],
        })  # fmt: skip
    rig.epoch(watermark=1_000)
    return {id: rig.rows(id) for id in ("q1", "q2")}


def test_tasks_touch_no_file_of_the_platform_and_rows_are_the_same(tmp_path: Path) -> None:
    executor = Elsewhere()
    by_value = life(Rig(tmp_path / "value", executor, exchange="value"))
    by_reference = life(Rig(tmp_path / "reference"))
    assert by_value == by_reference
    assert all(by_value.values())
    assert executor.tasks > 20
    assert [path for path in executor.opened if str(tmp_path) in path] == []


def test_by_reference_the_same_watch_sees_files(tmp_path: Path) -> None:
    executor = Elsewhere()
    life(Rig(tmp_path / "state", executor))
    assert any("buckets" in path for path in executor.opened)


def test_the_driver_keeps_the_durable_copy_and_drops_it(tmp_path: Path) -> None:
    rig = Rig(tmp_path, Elsewhere(), exchange="value")
    life(rig)
    assert rig.files("results")
    assert rig.files("buckets") == []  # the watermark closed every window


def test_file_sources_are_read_on_the_driver(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.jsonl").write_text('{"k": 1, "ts": 5}\n{"k": 2, "ts": 6}\nbroken\n')
    (tmp_path / "in" / "2.csv").write_text("k,ts\n2,7\n")
    executor = Elsewhere()
    rig = Rig(tmp_path / "state", executor, exchange="value")
    source = ConnectorSpec("files", (("path", str(tmp_path / "in")),))
    rig.stream("S", source, k="BIGINT")
    rig.stream("T", k="BIGINT")
    rig.create("q", "SELECT S.k FROM S JOIN T ON S.k = T.k WINDOW TUMBLING (SIZE 1 SECOND)")
    rig.epoch({"T": [(2, 8)]})
    assert rig.rows("q") == [(0, 1000, 2), (0, 1000, 2)]
    assert len(rig.engine.dead_letters("S")) == 1
    assert [path for path in executor.opened if str(tmp_path) in path] == []


def test_a_carried_read_brings_what_the_file_would(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pa.parquet.write_table(pa.table({"k": [1, 2], "ts": [3, 4]}), tmp_path / "in" / "1.parquet")
    (tmp_path / "in" / "2.unknown").write_text("?")
    (tmp_path / "in" / "3.csv").write_text("k,ts\n1,2\n")
    (tmp_path / "in" / "4.csv").write_text("k,ts\n1,2\n")
    files = FilesSource(parse_config({"path": str(tmp_path / "in")}), tmp_path / "state")
    reads = files.reads(0, files.latest(0, 0))
    (tmp_path / "in" / "3.csv").unlink()
    (tmp_path / "in" / "4.csv").write_text("k,ts\n1,2\n3,4\n")
    push = PushSource(tmp_path / "push")
    push.append_rows([{"k": 1, "ts": 2}, {"k": "x"}])
    push.append_table(pa.table({"ts": [7], "k": [8]}))
    plain = [read.load(SCHEMA) for read in [*reads, *push.reads(0, 2)]]
    whole = [carried(read) for read in [*reads, *push.reads(0, 2)]]
    for path in [*(tmp_path / "in").iterdir(), *(tmp_path / "push").glob("*.*")]:
        path.unlink()
    for read, expected in zip(whole, plain, strict=True):
        found = read.load(SCHEMA)
        assert found.table.equals(expected.table)
        assert found.dead == expected.dead
    assert sum(p.table.num_rows for p in plain) == 4
    assert [bool(p.dead) for p in plain] == [False, True, True, True, True, False]


def test_buckets_that_go_out_together_share_a_parcel_and_go_out_once(store: ByValue, sent: list[Watched]) -> None:
    for name in ("b1", "b2", "b3"):
        written(store, name)
    tasks = pickle.loads(pickle.dumps(store.for_tasks(["b1", "b2"])))
    assert len(sent) == 1
    for name in ("b1", "b2"):
        bucket = tasks.open(name)
        assert bucket.meta == {"name": name}
        assert bucket.arrays["a"].tolist() == list(range(100))
        assert bucket.arrays["a"].flags.aligned
        assert bucket.arrays["empty"].shape == (0, 2)
    store.for_tasks(["b2", "b1", "b3"])
    assert len(sent) == 2
    store.for_tasks(["b3", "b1"])
    assert len(sent) == 2


def test_a_task_sees_only_what_its_stage_was_given(store: ByValue) -> None:
    written(store, "b1")
    with pytest.raises(InternalError, match="b1 was not sent"):
        store.for_tasks(()).open("b1")


def test_a_parcel_is_withdrawn_when_less_than_half_of_it_is_needed(store: ByValue, sent: list[Watched]) -> None:
    for name in ("b1", "b2", "b3", "b4"):
        written(store, name)
    store.for_tasks(["b1", "b2", "b3", "b4"])
    store.drop("b1")
    store.drop("b2")
    assert not sent[0].dropped
    store.drop("b3")
    assert sent[0].dropped
    assert store.for_tasks(["b4"]).open("b4").arrays["a"].tolist() == list(range(100))
    assert sent[1].size < sent[0].size / 3
    store.drop("b4")
    assert all(s.dropped for s in sent)
    assert list(store.files.directory.iterdir()) == []


def test_a_second_attempt_replaces_what_was_sent(store: ByValue) -> None:
    written(store, "b1")
    assert len(store.for_tasks(["b1"]).open("b1").arrays["a"]) == 100
    written(store, "b1", n=7)
    assert len(store.for_tasks(["b1"]).open("b1").arrays["a"]) == 7


def test_closing_withdraws_everything_and_keeps_the_files(store: ByValue, sent: list[Watched]) -> None:
    written(store, "b1")
    store.for_tasks(["b1"])
    store.close()
    assert sent[0].dropped
    assert store.for_tasks(["b1"]).open("b1").meta == {"name": "b1"}


def test_a_missing_file_is_named(store: ByValue) -> None:
    with pytest.raises(InternalError, match=r"b9\.bucket"):
        store.for_tasks(["b9.bucket"])


def test_what_is_posted_without_an_outbox_is_refused() -> None:
    with pytest.raises(InternalError, match="nowhere to go"):
        post("bucket", "b1", b"")


def test_a_failed_task_leaves_nothing(store: ByValue, tmp_path: Path) -> None:
    def stage(shared: Any, task: int) -> None:
        shared.write(f"b{task}", {}, {"a": np.arange(3)})
        if task:
            raise RuntimeError("died")

    with pytest.raises(RuntimeError):
        store.run("stage", stage, store.for_tasks(()), [0, 1])
    assert not store.files.directory.exists()


@pytest.mark.spark
@pytest.mark.parametrize("size", [10, 1_000_000])
def test_a_broadcast_reaches_tasks_on_spark_aligned_and_whole(spark: Any, size: int) -> None:
    pieces = [bytes(range(256)) * (size // 10), b"end"]
    broadcast = spark.broadcast(pieces)
    seen = spark.run("look", look, broadcast, [0, 1])
    assert [x[:3] for x in seen] == [(len(b"".join(pieces)), b"end", 0)] * 2
    if size > 10:
        assert all(mapped for *_, mapped in seen), "PySpark has changed: see runtime/spark/broadcast.py"
    broadcast.drop()


def look(broadcast: Any, task: int) -> tuple[int, bytes, int, bool]:
    data = broadcast.data
    return len(data), bytes(data[-3:]), np.frombuffer(data, np.uint8).ctypes.data % 16, broadcast.mapped() is not None
