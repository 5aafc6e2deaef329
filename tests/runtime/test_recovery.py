"""Crashes at every stage and at every write: afterwards each row is there exactly once.

The story (story.py) has a three-way join, a reordering, a regrouping, a rescaling, a creation and a deletion. It is
told once to count the places where the process can die, and then once for each of them.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runtime.engine.config import EngineConfig
from runtime.engine.engine import Engine
from runtime.execution.executor import LocalExecutor
from tests.runtime.rig import Rig
from tests.runtime.story import Crash, expected, story, tell, wrong

CONFIG = EngineConfig(partitions=2, snapshot_every=6)


class Dying(LocalExecutor):
    """Dies in stage number `at`, after `tasks` of its tasks (None: after all, before the answer gets back)."""

    def __init__(self, at=None, tasks=None):
        self.at, self.tasks = at, tasks
        self.stages = []

    def run(self, name, stage, shared, tasks):
        self.stages.append(name)
        if len(self.stages) - 1 == self.at:
            super().run(name, stage, shared, tasks[: self.tasks])
            raise Crash(name)
        return super().run(name, stage, shared, tasks)


def opener(directory, executor):
    return lambda: Engine.open(directory, executor, CONFIG, lambda: 0)


@pytest.fixture(scope="module")
def stages(tmp_path_factory):
    executor = Dying()
    engine = tell(opener(tmp_path_factory.mktemp("undisturbed"), executor))
    assert wrong(engine) == []
    return executor.stages


def test_the_story_has_everything(stages):
    kinds = {name.split(": ")[-1] for name in stages}
    assert {"source", "join 1", "join 2", "rebuild views"} <= kinds
    assert any("rebuild joins" in kind for kind in kinds)
    assert all(q.rows for q in expected().queries.values())
    assert sum("event" in line for line in story()) == 90


@pytest.mark.parametrize("tasks", [1, *(pytest.param(n, marks=pytest.mark.long) for n in (0, None))])
def test_a_crash_in_any_stage_loses_and_repeats_nothing(tmp_path, stages, tasks):
    for at in range(len(stages)):
        executor = Dying(at, tasks)
        engine = tell(opener(tmp_path / str(at), executor))
        assert wrong(engine) == [], f"died in stage {at}: {stages[at]}"
        assert len(executor.stages) > at
        engine.abandon()


class Disk:
    """Dies at the n-th step that changes what is on disk, before or after it."""

    STEPS = ("replace", "fsync", "unlink")

    def __init__(self, monkeypatch, at=None, after=False):
        self.at, self.after, self.count = at, after, 0
        for name in self.STEPS:
            monkeypatch.setattr(os, name, self._step(getattr(os, name)))

    def _step(self, real):
        def step(*args, **kwargs):
            self.count += 1
            if self.count - 1 == self.at and not self.after:
                raise Crash
            result = real(*args, **kwargs)
            if self.count - 1 == self.at:
                raise Crash
            return result

        return step


@pytest.fixture(scope="module")
def steps_on_disk(tmp_path_factory):
    """How many steps the story has that change what is on disk."""
    with pytest.MonkeyPatch.context() as patch:
        disk = Disk(patch)
        tell(opener(tmp_path_factory.mktemp("all"), LocalExecutor())).close()
    return disk.count


def die_on_disk(directory, at, after):
    with pytest.MonkeyPatch.context() as patch:
        Disk(patch, at, after)
        engine = tell(opener(directory, LocalExecutor()))
    assert wrong(engine) == [], f"died {'after' if after else 'before'} step {at} on disk"
    engine.abandon()


@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_some_steps_on_disk(tmp_path, steps_on_disk, after):
    for at in range(int(after), steps_on_disk, 17):
        die_on_disk(tmp_path / str(at), at, after)


@pytest.mark.long
@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_every_step_on_disk(tmp_path, steps_on_disk, after):
    for at in range(steps_on_disk):
        die_on_disk(tmp_path / str(at), at, after)


def test_what_a_crash_left_lying_around_is_removed_on_opening(tmp_path):
    executor = Dying()
    engine = tell(opener(tmp_path, executor))
    engine.abandon()
    debris = [
        tmp_path / "buckets" / "b999.bucket",
        tmp_path / "buckets" / ".b998.bucket.1.abc.tmp",
        tmp_path / "buckets" / "b2-v9-0-0.bucket",
        tmp_path / "results" / "e0000000099-1-0-0.segment",
        tmp_path / "results" / ".e0000000099-1-0-0.segment.1.tmp",
    ]
    for path in debris:
        path.write_bytes(b"half")
    before = set(files(tmp_path)) - set(debris)
    engine = opener(tmp_path, executor)()
    assert set(files(tmp_path)) == before
    assert wrong(engine) == []


def files(directory: Path):
    return [p for folder in ("buckets", "results") for p in (directory / folder).iterdir()]


class Broken(Exception):
    """A stage that fails without the process dying."""


class Failing(LocalExecutor):
    """From the stage with this word in its name on, nothing runs on the machine."""

    def __init__(self):
        self.word = None

    def run(self, name, stage, shared, tasks):
        if self.word is not None and (self.word in name or "does nothing" in name):
            raise Broken(name)
        return super().run(name, stage, shared, tasks)


@pytest.mark.parametrize("word", ["source", "join 1", "join 2"])
def test_an_epoch_that_failed_can_be_run_again_by_the_same_engine(tmp_path, word):
    executor = Failing()

    class Retrying(Engine):
        def run_epoch(self):
            executor.word = word
            try:
                done = super().run_epoch()
            except Broken:
                executor.word = None
                done = super().run_epoch()
            executor.word = None
            return done

    engine = tell(lambda: Retrying.open(tmp_path, executor, CONFIG, lambda: 0))
    assert wrong(engine) == []


JOIN = "SELECT A.n AS a, B.n AS b FROM A JOIN B ON A.k = B.k WINDOW TUMBLING (SIZE 1 SECOND)"


@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize("word", ["source", "join 1"])
def test_the_plan_may_change_between_a_failed_epoch_and_its_repetition(tmp_path, word, kill):
    """Deleting the query that makes epochs fail must be possible, and what the first attempt wrote must not count."""
    rig = Rig(tmp_path, Failing(), partitions=1)
    for name in "ABX":
        rig.stream(name, k="BIGINT", n="INT")
    rig.create("q1", JOIN)
    rig.create("bad", JOIN)
    rig.executor.word = word
    with pytest.raises(Broken):
        rig.epoch({"A": [(1, 1, 5)], "B": [(1, 2, 6)], "X": [(1, 1, 5)]})
    rig.delete("bad")
    rig.create("q2", JOIN.replace("A.k = B.k", "A.n + 1 = B.n AND A.k = B.k"))
    rig.engine.delete_stream("X")
    rig.executor.word = None
    if kill:
        rig.reopen()
    else:
        rig.engine.run_epoch()
    assert rig.engine.epoch == 1
    assert rig.rows("q1") == rig.rows("q2") == [(0, 1000, 1, 2)]
    assert rig.rows("bad") == []
