"""A worker that takes more memory than its share fails its task, with the reason, before the machine runs out."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from optimizer.errors import InternalError
from runtime.api import QueryState
from runtime.connectors.base import ConnectorSpec
from runtime.engine.quarantine import KILLS
from runtime.machine.watch import DRIVER, LEAST, anonymous, run_within, worker_share
from runtime.operators.join import JoinShared
from runtime.spark.executor import SparkExecutor
from tests.runtime.rig import Rig
from tests.runtime.test_quarantine import BAD, DyingOnSpark, ending, opened, tuples

LIMIT = 600 << 20
PIECE = 32 << 20

GB = 1 << 30


def test_a_share_leaves_room_for_driver_and_jvm():
    assert worker_share(4, 16 * GB) == (16 * GB - 4 * GB) // 4
    assert worker_share(2, 6 * GB) == (6 * GB - DRIVER) // 2
    assert worker_share(64, 4 * GB) == LEAST
    assert worker_share(2) >= LEAST


def grow(most: int) -> list[Any]:
    """Take memory page by page, as a task does that has too much to hold."""
    held = []
    for _ in range(most // PIECE):
        held.append(np.ones(PIECE, np.uint8))
    return held


TASK = """
import numpy as np
from runtime.machine.watch import anonymous, run_within

held = []

def grow():
    while True:
        held.append(np.ones(8 << 20, np.uint8))

def deaf():
    while True:
        try:
            grow()
        except MemoryError:
            pass

before = anonymous()
try:
    run_within(before + (256 << 20), "a task", {task})
except MemoryError as why:
    print(why, anonymous() - before)
"""


@pytest.mark.parametrize("task", ["grow", "deaf"])
def test_a_task_that_takes_too_much_fails_in_time_and_says_so(task):
    code = TASK.format(task=task)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    said = re.search(r"a task took [\d,]+ bytes of memory, .* \(setting worker_memory\) (\d+)", done.stdout)
    assert done.returncode == 0 and said is not None, done.stderr
    assert 256 << 20 < int(said[1]) < 8 * GB


def test_what_a_task_returns_or_raises_comes_through():
    limit = anonymous() + (512 << 20)
    assert run_within(limit, "it", lambda: len(grow(4 * PIECE))) == 4

    def refuse() -> None:
        raise InternalError("no", reason="NO")

    with pytest.raises(InternalError, match="no"):
        run_within(limit, "it", refuse)


def test_files_in_memory_do_not_count(tmp_path):
    np.ones(256 << 20, np.uint8).tofile(tmp_path / "file")
    mapped = np.memmap(tmp_path / "file", np.uint8, mode="r")
    before = anonymous()
    assert run_within(before + (128 << 20), "it", lambda: int(mapped.sum(dtype=np.int64))) == 256 << 20
    assert anonymous() - before < 64 << 20


# -- on Spark --------------------------------------------------------------------------------------------------


def hungry(shared: tuple[Any, Any], task: Any) -> Any:
    stage, inner = shared
    if isinstance(inner, JoinShared) and "bad" in ending(inner):
        grow(1 << 40)
    return stage(inner, task)


class HungryOnSpark(DyingOnSpark):
    def run(self, name: str, stage: Any, shared: Any, tasks: Any) -> Any:
        return self._executor.run(name, hungry, (stage, shared), tasks)


def eat(shared: None, task: int) -> int:
    grow(task)
    return task


@pytest.mark.spark
def test_a_stage_names_what_its_tasks_took_on_spark(spark):
    executor = SparkExecutor(spark.context, worker_memory=LIMIT)
    assert executor.run("small", eat, None, [1, 2]) == [1, 2]
    with pytest.raises(InternalError, match=r"a task of large took [\d,]+ bytes of memory") as caught:
        executor.run("large", eat, None, [1, 1 << 40])
    assert caught.value.reason == "STAGE_FAILED"
    assert caught.value.message.splitlines()[-1].endswith("(setting worker_memory)"), "nothing of Spark is behind it"
    assert executor.run("small", eat, None, [1, 2]) == [1, 2]


@pytest.mark.spark
def test_a_query_that_takes_too_much_memory_is_suspended_on_spark(tmp_path, spark):
    rig = opened(tmp_path / "state", HungryOnSpark(SparkExecutor(spark.context, worker_memory=LIMIT)))
    rig.epoch(tuples(0))
    rig.create("bad", BAD)
    rig.epoch(tuples(1))
    info = rig.engine.query("bad")
    assert info.state == QueryState.SUSPENDED and "setting worker_memory" in info.suspended
    assert rig.engine.query("good").state == QueryState.RUNNING


@pytest.mark.spark
def test_a_file_that_unpacks_to_too_much_is_a_dead_letter_on_spark(tmp_path, spark):
    """A long text that repeats takes no room in a Parquet file, and its footer does not tell either."""
    folder = tmp_path / "in"
    folder.mkdir()
    columns = {"k": pa.array([1, 2]), "text": pa.array(["a", "b"]), "ts": pa.array([1, 2], pa.int64())}
    pq.write_table(pa.table(columns), folder / "a.parquet")
    bomb(folder / "b.parquet", rows=20_000, characters=1 << 20)
    assert (folder / "b.parquet").stat().st_size < 4 << 20
    rig = Rig(tmp_path / "state", SparkExecutor(spark.context, worker_memory=LIMIT))
    rig.stream("A", ConnectorSpec("files", (("path", str(folder)),)), k="BIGINT", text="STRING")
    rig.stream("B", k="BIGINT")
    rig.create("good", "SELECT A.k, A.text FROM A JOIN B ON A.k = B.k WINDOW TUMBLING (SIZE 1 SECOND)")
    rig.epoch({"B": [(1, 5), (2, 6)]})
    assert [row[2:] for row in rig.rows("good")] == [(1, "a"), (2, "b")]
    (letter,) = rig.engine.dead_letters("A")
    assert letter.place == "b.parquet" and letter.reason.startswith(KILLS) and "memory" in letter.reason


def bomb(path: Path, rows: int, characters: int) -> None:
    text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["x" * characters]))
    table = pa.table({"k": pa.array(range(rows)), "text": text, "ts": pa.array(np.full(rows, 5), pa.int64())})
    pq.write_table(table.replace_schema_metadata(None), path, store_schema=False, dictionary_pagesize_limit=8 << 20)
