"""A tuple or a file that kills the task that reads it becomes a dead letter; nobody else notices."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from runtime.api import QueryState
from runtime.buckets.refs import Skip
from runtime.connectors.base import ConnectorSpec
from runtime.control.events import SkippedTuples, TuplesSkipped
from runtime.control.killers import ROWS_OF_A_READ, ReadName, find_killers
from runtime.crashpoints import Crashed, arm
from runtime.engine.quarantine import KILLS
from runtime.execution.executor import LocalExecutor
from runtime.log.codec import decode
from runtime.log.log import Log
from runtime.spark.executor import SparkExecutor
from tests.runtime import deadly
from tests.runtime.deadly import KILLING, Fatal
from tests.runtime.rig import Rig
from tests.runtime.test_quarantine import GOOD, OTHER, tuples

IDS = ("good", "other")


def opened(path: Path, executor: Any, queries: dict[str, str] | None = None, **config: Any) -> Rig:
    rig = Rig(path, executor, **config)
    for name in "ABC":
        rig.stream(name, k="BIGINT", **{"A": {"n": "BIGINT"}, "B": {"x": "BIGINT"}, "C": {"y": "BIGINT"}}[name])
    for id, sql in (queries or {"good": GOOD, "other": OTHER}).items():
        rig.create(id, sql)
    return rig


@pytest.fixture
def undisturbed(tmp_path: Path) -> dict[str, list[Any]]:
    rig = opened(tmp_path / "undisturbed", LocalExecutor())
    for epoch in range(8):
        rig.epoch(tuples(epoch))
    return {id: rig.rows(id) for id in IDS}


def hostile(epoch: int) -> dict[str, list[tuple[int, int, int]]]:
    """The same tuples; in epoch 3, two more that kill, one of which would be in windows of others and one of which is
    far in the future: it must not move the watermark."""
    rows = tuples(epoch)
    if epoch == 3:
        rows["B"].insert(4, (KILLING, 3, 40 * epoch))
        rows["B"].insert(9, (KILLING, 3, 10**9))
    return rows


def live(rig: Rig, first: int = 0, last: int = 8) -> dict[str, list[Any]]:
    for epoch in range(first, last):
        rig.epoch(hostile(epoch))
    return {id: rig.rows(id) for id in IDS}


def skips(rig: Rig) -> list[SkippedTuples]:
    rig.engine.abandon()  # closing would write a snapshot in place of the log
    events = [decode(record) for record in Log(rig.directory / "log").read()[1]]
    return [skip for event in events if isinstance(event, TuplesSkipped) for skip in event.skipped]


@pytest.mark.parametrize("with_queries", [False, True], ids=["without any query", "with every query"])
def test_tuples_that_kill_become_dead_letters(tmp_path, undisturbed, with_queries):
    executor = Fatal(LocalExecutor(), with_queries=with_queries)
    rig = opened(tmp_path / "state", executor, snapshot_every=1000)
    assert live(rig) == undisturbed and undisturbed["other"]
    assert executor.sources <= 8 + 2 * (2 + 4 + 4 + 5), "it finds them in few runs"
    assert all(q.state == QueryState.RUNNING for q in rig.engine.queries())
    letters = rig.engine.dead_letters("B")
    assert [x.place for x in letters] == ["pushed batch 3 tuple 4", "pushed batch 3 tuple 9"]
    assert all(x.reason == f"{KILLS}: something in here does not bear this" and '"k": 666' in x.text for x in letters)
    assert rig.engine.stream("B").dead_letter == 2
    state = rig.engine.state
    assert {p.name for p in rig.files("buckets")} == state.bucket_files, "probes leave nothing behind"
    assert [(s.stream, s.read, s.what.first) for s in skips(rig)] == [("B", 0, 4), ("B", 0, 9)]


def test_a_crash_after_the_search_does_not_search_again(tmp_path, undisturbed):
    executor = Fatal(LocalExecutor())
    rig = opened(tmp_path / "state", executor)
    live(rig, 0, 3)
    with arm(None) as trap:
        probe = opened(tmp_path / "rehearsal", Fatal(LocalExecutor()))
        live(probe, 0, 3)
        before = trap.hits["log.append.after"]
        live(probe, 3, 4)
    assert trap.hits["log.append.after"] == before + 3, "planned, skipped, committed"
    with arm("log.append.after", 2), pytest.raises(Crashed):
        live(rig, 3, 4)
    executor.sources = 0
    rig.reopen()
    assert executor.sources == 1 and rig.engine.epoch == 4
    assert live(rig, 4) == undisturbed
    assert rig.engine.stream("B").dead_letter == 2


def test_a_repair_reads_the_same_tuples_again(tmp_path, undisturbed):
    rig = opened(tmp_path / "state", Fatal(LocalExecutor()))
    live(rig, 0, 4)
    assert any(s.origin.skipped for s in rig.sources("B"))
    for path in rig.files("buckets"):
        path.unlink()
    assert live(rig, 4) == undisturbed


def test_with_one_query_a_handful_of_tuples_is_to_blame(tmp_path):
    alone = opened(tmp_path / "alone", LocalExecutor(), {"good": GOOD})
    for epoch in range(8):
        alone.epoch(tuples(epoch))
    rig = opened(tmp_path / "state", Fatal(LocalExecutor(), with_queries=True), {"good": GOOD})
    for epoch in range(8):
        rig.epoch(hostile(epoch))
    assert rig.rows("good") == alone.rows("good") and rig.engine.query("good").state == QueryState.RUNNING


def test_with_one_query_that_dies_of_many_tuples_the_query_is_to_blame(tmp_path):
    rig = opened(tmp_path / "state", Fatal(LocalExecutor(), with_queries=True), {"good": GOOD})
    rig.epoch(tuples(0))
    rows = tuples(1)
    rows["B"][3:7] = [(KILLING, 3, 40)] * 4
    rig.epoch(rows)
    assert rig.engine.query("good").state == QueryState.SUSPENDED and rig.engine.stream("B").dead_letter == 0
    assert rig.engine.stream("B").tuples == 24, "nothing is lost for the next query"


def test_a_read_full_of_them_goes_as_a_whole(tmp_path):
    rig = opened(tmp_path / "state", Fatal(LocalExecutor()))
    rig.epoch({"A": [(1, 1, 10)], "B": [(KILLING if i % 3 else 2, 1, 10) for i in range(40)]})
    (letter,) = rig.engine.dead_letters("B")
    assert letter.place == "pushed batch 0" and rig.engine.stream("A").tuples == 1
    rig.epoch({"A": [(2, 1, 11)], "B": [(2, 5, 11)]})
    assert rig.engine.stream("B").tuples == 1


# -- files -------------------------------------------------------------------------------------------------------


def write(folder: Path, name: str, rows: list[dict[str, Any]], kill: bool = False) -> None:
    lines = [json.dumps(row) for row in rows] + (["KILL"] if kill else [])
    (folder / name).write_text("\n".join(lines) + "\n")


def reading_files(path: Path, executor: Any, how: str, bad: tuple[int, ...], **config: Any) -> Counter[Any]:
    """An engine over six files, of which some kill when they are loaded; the rows of its queries."""
    folder = path / "in"
    folder.mkdir(parents=True)
    rig = Rig(path / "state", executor, **config)
    rig.stream("A", deadly.source(folder, how), k="BIGINT")
    rig.stream("B", k="BIGINT", x="BIGINT")
    rig.create("good", f"SELECT A.k, B.x FROM A JOIN B ON A.k = B.k {'WINDOW TUMBLING (SIZE 100 MS)'}")
    for number in range(6):
        rows = [{"k": i % 3, "ts": 10 * number + i} for i in range(4)]
        write(folder, f"{how}-{number}.jsonl", [{"k": 1, "ts": 5}] if number in bad else rows, number in bad)
    rig.epoch({"B": [(i % 3, i, 20) for i in range(9)]})
    rig.epoch({"B": [(1, 7, 30)]}, watermark=1000)
    letters = rig.engine.dead_letters("A")
    assert [x.place for x in letters] == [f"{how}-{n}.jsonl" for n in bad]
    assert all(x.reason.startswith(KILLS) for x in letters) and rig.engine.stream("A").tuples == 4 * (6 - len(bad))
    assert rig.engine.query("good").state == QueryState.RUNNING
    return Counter(rig.rows("good"))


def test_files_that_kill_when_they_are_loaded(tmp_path):
    with deadly.registered():
        rows = reading_files(tmp_path, Fatal(LocalExecutor()), "raise", (1, 4))
        assert sum(rows.values()) > 4


def test_if_most_reads_kill_something_else_is_broken(tmp_path):
    with deadly.registered(), pytest.raises(RuntimeError, match="does not bear"):
        reading_files(tmp_path, Fatal(LocalExecutor()), "raise", (0, 1, 3, 5))


@pytest.mark.spark
def test_files_that_end_the_worker_on_spark(tmp_path, spark):
    with deadly.registered():
        alone = reading_files(tmp_path / "local", LocalExecutor(), "exit", ())
        found = reading_files(tmp_path / "spark", spark, "exit", (2,))
        assert found and found < alone


@pytest.mark.spark
def test_a_file_that_never_ends_on_spark(tmp_path, spark):
    executor = SparkExecutor(spark.context, stage_timeout=6.0)
    with deadly.registered():
        assert reading_files(tmp_path, executor, "loop", (0,))


@pytest.mark.spark
def test_tuples_that_end_the_worker_on_spark(tmp_path, spark, undisturbed):
    rig = opened(tmp_path / "state", Fatal(spark, "kill"))
    assert live(rig) == undisturbed
    letters = rig.engine.dead_letters("B")
    assert len(letters) == 2 and all(x.reason.startswith(KILLS) and len(x.reason) > len(KILLS) + 5 for x in letters)
    assert "crashed" in letters[0].reason, letters[0].reason


# -- beside reading ahead -------------------------------------------------------------------------------------------


class TwoCores(LocalExecutor):
    """Joins wait for what is read ahead beside them, so that it is always there, for better or worse, when they end."""

    cores = 2

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: set[str] = set()
        self._changed = threading.Condition()

    def run(self, name: str, stage: Any, shared: Any, tasks: Any) -> Any:
        with self._changed:
            self.begun.append(name)
        ahead = f"epoch {int(name.split()[1].rstrip(':')) + 1}: source"
        try:
            if "join" in name and threading.current_thread() is threading.main_thread():
                with self._changed:
                    self._changed.wait_for(lambda: ahead in self.ended, timeout=2)
            return super().run(name, stage, shared, tasks)
        finally:
            with self._changed:
                self.ended.add(name)
                self._changed.notify_all()


def generated(path: Path, executor: Any, pipelined: bool) -> tuple[list[Any], int, list[str]]:
    """Rows, dead letters and the kinds of records of a life in which one tuple in 700 kills."""
    rig = Rig(path, executor, pipelined=pipelined, snapshot_every=1000)
    for seed, name in enumerate("AB"):
        options = {"rate": "max", "batch": "100", "seed": str(seed), "limit": "600", "column.k": "uniform(0,700)"}
        rig.stream(name, ConnectorSpec("generator", tuple(options.items())), k="BIGINT")
    rig.create("q", "SELECT A.k FROM A JOIN B ON A.k = B.k WINDOW TUMBLING (SIZE 1 SECOND)")
    rig.create("r", "SELECT A.k FROM A JOIN B ON A.k = B.k WINDOW TUMBLING (SIZE 2 SECONDS)")
    for _ in range(7):
        rig.epoch()
    rows, dead = rig.rows("q"), sum(s.dead_letter for s in rig.engine.streams())
    assert all(s.tuples + s.dead_letter == 600 for s in rig.engine.streams())
    rig.engine.abandon()
    return rows, dead, [record["$"] for record in Log(path / "log").read()[1]]


def test_reading_ahead_meets_them_first_and_survives_the_cleaning_up(tmp_path, caplog):
    """What is read ahead fails because of them; what is read ahead while their epoch runs again is not cleaned away."""
    rows, dead, _ = generated(tmp_path / "plain", Fatal(LocalExecutor()), pipelined=False)
    two = TwoCores()
    again, dead_again, records = generated(tmp_path / "ahead", Fatal(two), pipelined=True)
    assert (again, dead_again) == (rows, dead) and rows and dead >= 2
    assert "TuplesSkipped" in records and "met damage" not in caplog.text, "no bucket was taken for debris"
    first = {name: at for at, name in reversed(list(enumerate(two.begun)))}
    assert any(first.get(f"epoch {e + 1}: source", 999) < first.get(f"epoch {e}: join 1", -1) for e in range(1, 7))


# -- the search --------------------------------------------------------------------------------------------------


class World:
    """Reads with rows, some of which kill. Answers trials as an epoch would."""

    def __init__(
        self, rows: dict[ReadName, int], killing: set[tuple[ReadName, int]], unloadable: set[ReadName]
    ) -> None:
        self.rows, self.killing, self.unloadable, self.trials = rows, killing, unloadable, 0

    def __call__(self, skips: Any) -> dict[ReadName, int] | None:
        self.trials += 1
        whole = {ReadName(s.stream, s.read) for s in skips if s.what.end is None}
        if self.unloadable - whole:
            return None
        for read, row in self.killing:
            ranges = [s.what for s in skips if (s.stream, s.read) == read]
            if not any(s.end is None or s.first <= row < s.end for s in ranges):
                return None
        return {read: 0 if read in whole else n for read, n in self.rows.items()}


@pytest.mark.parametrize("seed", range(40))
def test_the_search_finds_all_killers_in_few_runs(seed):
    rng = Random(seed)
    names = [ReadName(rng.choice("AB"), n) for n in range(rng.choice((1, 2, 7, 64)))]
    rows = {read: rng.choice((1, 10, 5000)) for read in names}
    unloadable = set(rng.sample(names, min(max(1, len(names) // 2), rng.randrange(3))))
    rest = [read for read in names if read not in unloadable]
    killing = {(read, rng.randrange(rows[read])) for read in rng.sample(rest, min(len(rest), rng.randrange(4)))}
    if not unloadable | killing:
        killing = {(names[0], 0)}
    world = World(rows, killing, unloadable)
    found = find_killers(names, world, "why")
    assert found is not None
    assert {ReadName(s.stream, s.read) for s in found if s.what.end is None} == unloadable
    assert {(ReadName(s.stream, s.read), s.what.first) for s in found if s.what.end is not None} == killing
    assert all(s.what.end == s.what.first + 1 for s in found if s.what.end is not None)
    per_culprit = len(names).bit_length() + max(rows.values()).bit_length() + 4
    assert world.trials <= 1 + len(found) * per_culprit


def test_the_search_has_bounds():
    reads = [ReadName("A", n) for n in range(4)]
    rows = dict.fromkeys(reads, 100)
    assert find_killers([], World({}, set(), set()), "why") is None
    assert find_killers(reads, World(rows, set(), set(reads[:3])), "why") is None, "most reads"
    assert find_killers(reads, lambda skips: None, "why") is None, "it fails without any input"
    many = {(reads[1], row) for row in range(ROWS_OF_A_READ + 1)}
    found = find_killers(reads, World(rows, many, set()), "why")
    assert found == (SkippedTuples("A", 1, Skip(0, None, "why")),)
    assert find_killers(reads, World(rows, many, set()), "why", only_rows=True) is None
    few = {(read, 7) for read in reads}
    assert len(find_killers(reads, World(rows, few, set()), "why", only_rows=True) or ()) == 4
