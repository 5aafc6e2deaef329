"""Tasks on other machines: they see a store and nothing of the driver's."""

from __future__ import annotations

import pickle
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from optimizer.errors import FailedPrecondition, Unavailable
from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime import plugins
from runtime.connectors.base import ConnectorSpec
from runtime.connectors.files import FilesSource, parse_config
from runtime.connectors.push import PushSource
from runtime.execution.executor import LocalExecutor
from runtime.store.claim import take
from runtime.store.objects import objects_at
from runtime.store.source_folder import SourceFolders
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
        self.here, self.tasks, self.answered, self.sent = here, 0, 0, 0
        self.opened: list[str] = []
        self._inside = False
        sys.addaudithook(self._saw)

    def _saw(self, event: str, arguments: Any) -> None:
        if self._inside and event in ("open", "os.rename", "os.remove", "os.mkdir", "os.listdir", "os.scandir"):
            self.opened.append(str(arguments[0]))

    def run(self, name: str, stage: Any, shared: Any, tasks: Any) -> Any:
        payload, answers = pickle.dumps((stage, shared)), []
        self.sent += len(payload)
        for task in tasks:
            piece = pickle.dumps(task)
            self.sent += len(piece)
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


def write(folder: Path, name: str, n: int) -> None:
    folder.mkdir(exist_ok=True)
    text = "".join(f'{{"k": {i}, "x": {i % 7}, "ts": {100 * n}}}\n' for i in range(n))
    (folder / name).write_text(text)


@pytest.mark.parametrize("kind", ["generator", "push", "files", "shared", "objects"])
def test_what_is_sent_to_tasks_does_not_grow_with_tuples(tmp_path: Path, kind: str) -> None:
    """Kafka's reads are seen by tests/kafka."""
    plugins.load(("tests.tools.opaque_store",))
    folder, executor = tmp_path / "in", Elsewhere()
    folder.mkdir()
    sources = {
        "generator": ("generator", {"rate": "1000", "partitions": "2"}),
        "push": ("push", {}),
        "files": ("files", {"path": str(folder)}),
        "shared": ("files", {"path": str(folder), "shared": "true"}),
        "objects": ("files", {"path": f"opaque://{folder}"}),
    }
    name, options = sources[kind]
    rig = Rig(tmp_path / "state", executor, store=Double().open())
    rig.stream("A", ConnectorSpec(name, tuple(options.items())), k="BIGINT", x="BIGINT")
    rig.stream("B", k="BIGINT", y="BIGINT")
    rig.create("q1", JOIN)
    rig.epoch()
    sent, tuples = [], []
    for n in (100, 10_000):
        rig.clock.advance(n) if kind == "generator" else write(folder, f"{n}.jsonl", n)
        rows = {"B": [(i, i, 100 * n) for i in range(n)]}
        if kind == "push":
            rows["A"] = rows["B"]
        executor.sent = 0
        tuples.append(rig.epoch(rows).tuples)
        sent.append(executor.sent)
    assert tuples == [200, 20_000]
    assert sent[1] - sent[0] < 1_000, sent  # the references of an epoch's buckets are some hundred bytes
    seen = [path for path in executor.opened if str(folder) in path]
    assert bool(seen) == (kind == "shared"), "tasks read it themselves; so they do objects, which Arrow opens unseen"


def in_windows(rig: Rig, folder: Path) -> None:
    rig.stream("S", ConnectorSpec("files", (("path", str(folder)),)), k="BIGINT")
    rig.stream("T", k="BIGINT")
    rig.create("q", "SELECT S.k FROM S JOIN T ON S.k = T.k WINDOW TUMBLING (SIZE 1 SECOND)")


def test_files_of_the_driver_go_through_the_store_and_not_through_it_alone(tmp_path: Path) -> None:
    folder, store, executor = tmp_path / "in", Double(), Elsewhere()
    folder.mkdir()
    (folder / "1.jsonl").write_text('{"k": 1, "ts": 5}\n{"k": 2, "ts": 6}\nbroken\n')
    (folder / "2.csv").write_text("k,ts\n2,7\n")
    (folder / "3.what").write_text("nobody knows")
    rig = Rig(tmp_path / "state", executor, store=store.open())
    in_windows(rig, folder)
    rig.epoch({"T": [(2, 8)]})
    assert rig.rows("q") == [(0, 1000, 2), (0, 1000, 2)]
    assert len(rig.engine.dead_letters("S")) == 2
    assert [path for path in executor.opened if str(tmp_path) in path] == []
    assert len(copies(store)) == 2, "what cannot be read is not copied"

    for path in folder.iterdir():  # the epoch is committed; and a bucket of it can be made again
        path.unlink()
    rig.reopen()
    del store.objects[next(name for name in store.objects if name.startswith("buckets/"))]
    rig.epoch({"T": [(1, 9)]})
    assert rig.rows("q") == [(0, 1000, 1), (0, 1000, 2), (0, 1000, 2)]
    assert len(copies(store)) == 2, "made once"

    (folder / "4.csv").write_text("k,ts\n2,2007\n")
    rig.epoch({"T": [(2, 2008)]}, watermark=1_500)
    rig.epoch(watermark=1_600)
    rig.epoch(watermark=1_700)
    assert len(copies(store)) == 1, "no open bucket holds tuples of the others"
    rig.epoch()
    assert rig.rows("q")[-1] == (2000, 3000, 2)


def copies(store: Double) -> list[str]:
    return [name for name in store.objects if "/sources/" in name and "/copy-" in name]


def test_a_failing_store_makes_no_file_count_twice(tmp_path: Path) -> None:
    folder, store = tmp_path / "in", Double(seed=3)
    folder.mkdir()
    rig = Rig(tmp_path / "state", Elsewhere(), store=store.open())
    in_windows(rig, folder)
    store.failing = 0.4
    failed = 0
    for n in range(8):
        for i in range(3):
            (folder / f"{n}-{i}.csv").write_text(f"k,ts\n{n},{n}\n")
        acts = [partial(rig.engine.push, "T", [{"k": n, "ts": n}]), rig.epoch]
        while acts:
            try:
                acts[0]()
                acts = acts[1:]
            except Unavailable:
                failed += 1
    store.failing = 0
    while rig.engine.has_input():
        rig.epoch()
    assert failed
    assert rig.rows("q") == sorted((0, 1000, n) for n in [*range(8)] * 3)


def test_reads_for_tasks_elsewhere_bring_what_reads_here_bring(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pa.parquet.write_table(pa.table({"k": [1, 2], "ts": [3, 4]}), tmp_path / "in" / "1.parquet")
    (tmp_path / "in" / "2.unknown").write_text("?")
    for n in (3, 4, 5):
        (tmp_path / "in" / f"{n}.csv").write_text("k,ts\n1,2\n")
    uri = Double().open()
    claim = take(objects_at(uri), "1")

    def reads(name: str, elsewhere: bool) -> list[Any]:
        folders = SourceFolders(claim, lambda object: None, lambda object: None, for_tasks=elsewhere)
        files = FilesSource(parse_config({"path": str(tmp_path / "in")}), tmp_path / name / "files")
        push = PushSource(tmp_path / name / "push")
        files.mirror(folders.of(f"{name}-files"), 0)
        push.mirror(folders.of(f"{name}-push"), 0)
        assert files.latest(0, 0) == 5
        push.append_rows([{"k": 1, "ts": 2}, {"k": "x"}])
        push.append_table(pa.table({"ts": [7], "k": [8]}))
        if elsewhere:
            files.reads(4, 5)
        (tmp_path / "in" / "3.csv").unlink(missing_ok=True)
        (tmp_path / "in" / "4.csv").write_text("k,ts\n1,2\n3,4\n")
        return [*files.reads(0, 5), *push.reads(0, 2)]

    whole = pickle.dumps(reads("elsewhere", True))
    (tmp_path / "in" / "3.csv").write_text("k,ts\n1,2\n")
    (tmp_path / "in" / "4.csv").write_text("k,ts\n1,2\n")
    plain = [read.load(SCHEMA) for read in reads("here", False)]
    for path in [*(tmp_path / "in").iterdir(), *(tmp_path / "elsewhere" / "push").glob("*.*")]:
        path.unlink()
    for read, expected in zip(pickle.loads(whole), plain, strict=True):
        found = read.load(SCHEMA)
        assert found.table.equals(expected.table)
        assert found.dead == expected.dead
    assert sum(p.table.num_rows for p in plain) == 5
    assert [bool(p.dead) for p in plain] == [False, True, True, True, False, True, False]


def test_a_shared_folder_that_a_machine_does_not_see_is_an_outage(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write(folder, "1.jsonl", 3)
    source = FilesSource(parse_config({"path": str(folder), "shared": "true"}), tmp_path / "state")
    [read] = source.reads(0, source.latest(0, 0))
    folder.rename(tmp_path / "away")
    with pytest.raises(Unavailable) as waits:
        read.load(SCHEMA)
    assert waits.value.reason == "SOURCE_UNAVAILABLE"
    (tmp_path / "away").rename(folder)
    assert read.load(SCHEMA).table.num_rows == 3
