"""The machine is lost at any moment: afterwards the store alone tells everything, each row exactly once.

The story (story.py) is told once to count the steps that change the store, and then once for each of them: the
process dies just before it, in the middle of it, or just after it, and the local directory is deleted, left as it is,
or replaced by an older copy of itself.
"""

from __future__ import annotations

import shutil
import uuid

import pytest

from runtime.engine.config import EngineConfig
from runtime.engine.engine import Engine
from runtime.execution.executor import LocalExecutor
from runtime.plugins import load
from runtime.store.arrow import ArrowObjects
from tests.runtime.story import Crash, tell, wrong

load(("tests.tools.opaque_store",))


class Steps:
    """Dies at the n-th step that changes the store. Torn: an object is half there, under its temporary name."""

    def __init__(self, monkeypatch, at=None, how="before"):
        self.at, self.how, self.count = at, how, 0
        monkeypatch.setattr(ArrowObjects, "put", self._put(ArrowObjects.put))
        for name in ("delete", "delete_folder"):
            monkeypatch.setattr(ArrowObjects, name, self._step(getattr(ArrowObjects, name)))

    def _now(self):
        self.count += 1
        return self.count - 1 == self.at

    def _step(self, real):
        def step(*args, **more):
            now = self._now()
            if now and self.how != "after":
                raise Crash
            done = real(*args, **more)
            if now:
                raise Crash
            return done

        return step

    def _put(self, real):
        whole = self._step(real)

        def put(tier, name, data, *, sync=True):
            if self.how == "torn" and self.count == self.at:
                folder, _, last = tier._path(name).rpartition("/")
                half = memoryview(data)[: memoryview(data).nbytes // 2]
                tier._write(f"{folder}/.{last}.{uuid.uuid4().hex[:8]}.tmp", half, sync)
            return whole(tier, name, data, sync=sync)

        return put


def opener(directory, fate, config):
    """`fate`: what happens to the local directory whenever the process has died."""
    state, copy = directory / "state", directory / "copy"

    def open_engine():
        if fate == "lost":
            shutil.rmtree(state, ignore_errors=True)
        elif fate == "older" and copy.exists():
            shutil.rmtree(state)
            shutil.copytree(copy, state)
        elif fate == "older" and state.exists():
            shutil.copytree(state, copy)
        return Engine.open(state, LocalExecutor(), config, lambda: 0)

    return open_engine


def config(directory, **more):
    return EngineConfig(partitions=2, snapshot_every=6, store=f"opaque://{directory / 'store'}", **more)


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    """How many steps the story has that change the store."""
    directory = tmp_path_factory.mktemp("all")
    with pytest.MonkeyPatch.context() as patch:
        counted = Steps(patch)
        engine = tell(opener(directory, "kept", config(directory)))
        count = counted.count
    assert wrong(engine) == []
    engine.close()
    return count


def die(directory, at, how, fate):
    with pytest.MonkeyPatch.context() as patch:
        counted = Steps(patch, at, how)
        engine = tell(opener(directory, fate, config(directory, cache_bytes=5000 if at % 2 else 0)))
        assert counted.count > at
    what = f"died {how} step {at}, the local directory was {fate}"
    assert wrong(engine) == [], what
    engine.abandon()
    engine = opener(directory, "lost", config(directory))()
    assert wrong(engine) == [], f"{what}, and is now lost"
    engine.close()
    shutil.rmtree(directory)


@pytest.mark.parametrize(("how", "fate"), [("before", "older"), ("torn", "lost"), ("after", "lost"), ("after", "kept")])
def test_a_crash_at_some_steps_of_the_store(tmp_path, steps, how, fate):
    first = ["before", "torn", "after"].index(how)
    for at in range(first, steps, 23):
        die(tmp_path / str(at), at, how, fate)


@pytest.mark.long
@pytest.mark.parametrize("fate", ["lost", "kept", "older"])
@pytest.mark.parametrize("how", ["before", "torn", "after"])
def test_a_crash_at_every_step_of_the_store(tmp_path, steps, how, fate):
    for at in range(steps):
        die(tmp_path / str(at), at, how, fate)
