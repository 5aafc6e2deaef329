"""Tasks on other machines: they see a store and nothing of the driver's."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from optimizer.errors import FailedPrecondition
from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.connectors.base import ConnectorSpec, carried
from runtime.connectors.files import FilesSource, parse_config
from runtime.connectors.push import PushSource
from runtime.execution.executor import LocalExecutor
from tests.runtime.rig import Rig
from tests.tools.store_double import Double

SCHEMA = StreamSchema("S", (Column("k", ColumnType.BIGINT), Column("ts", ColumnType.TIMESTAMP)), "ts")
JOIN = "SELECT A.k, A.x, B.y FROM A JOIN B ON A.k = B.k WINDOW TUMBLING (SIZE 100 MILLISECONDS)"
CHAIN = (
    "SELECT A.x, B.y, C.z FROM A JOIN B ON A.k = B.k JOIN C ON B.y = C.y "
    "WINDOW HOPPING (SIZE 100 MILLISECONDS, ADVANCE BY 50 MILLISECONDS)"
)


class Elsewhere(LocalExecutor):
    """Runs tasks as another machine would: everything through pickle, and every file they open is written down."""

    def __init__(self, here: bool = False) -> None:
        self.here, self.tasks, self.answered = here, 0, 0
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
            self.answered += len(answer)
            self.tasks += 1
        return answers


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


def test_tasks_elsewhere_touch_no_file_of_the_driver_and_rows_are_the_same(tmp_path: Path) -> None:
    executor, store = Elsewhere(), Double()
    stored = life(Rig(tmp_path / "stored", executor, store=store.open()))
    assert stored == life(Rig(tmp_path / "local"))
    assert all(stored.values())
    assert executor.tasks > 20
    assert [path for path in executor.opened if str(tmp_path) in path] == []


def test_in_the_state_directory_the_same_watch_sees_files(tmp_path: Path) -> None:
    executor = Elsewhere(here=True)
    life(Rig(tmp_path / "state", executor))
    assert any("buckets" in path for path in executor.opened)


def test_tasks_elsewhere_need_a_store(tmp_path: Path) -> None:
    with pytest.raises(FailedPrecondition) as refused:
        Rig(tmp_path, Elsewhere())
    assert refused.value.reason == "STORE_REQUIRED" and "--store" in refused.value.hint
    assert not list(tmp_path.iterdir())


def test_nothing_that_tasks_write_passes_through_the_driver(tmp_path: Path) -> None:
    executor = Elsewhere()
    rig = Rig(tmp_path, executor, store=Double().open())
    for stream, column in (("A", "x"), ("B", "y")):
        rig.stream(stream, k="BIGINT", **{column: "BIGINT"})
    rig.create("q1", JOIN)
    sizes = []
    for n in (100, 10_000):
        executor.answered = 0
        rig.epoch({s: [(i, i, 100 * n) for i in range(n)] for s in "AB"})
        sizes.append(executor.answered)
    assert max(sizes) < 10_000, "for 20,000 tuples: answers are references"


def test_file_sources_are_read_on_the_driver(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.jsonl").write_text('{"k": 1, "ts": 5}\n{"k": 2, "ts": 6}\nbroken\n')
    (tmp_path / "in" / "2.csv").write_text("k,ts\n2,7\n")
    executor = Elsewhere()
    rig = Rig(tmp_path / "state", executor, store=Double().open())
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
