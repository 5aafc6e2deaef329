"""A query that keeps epochs from ending is found and suspended; nobody else notices."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from optimizer.errors import AJoinError, AlreadyExists, FailedPrecondition, NotFound
from optimizer.model.plan import id_of
from runtime.api import QueryState, ResumeQuery, SuspendQuery
from runtime.control.quarantine import find_culprits
from runtime.execution.executor import LocalExecutor
from runtime.operators.join import JoinShared, run_join
from runtime.spark.executor import SparkExecutor
from runtime.state_tools.files import read_state
from runtime.state_tools.suspend import REASON, suspend
from runtime.store.mark import mark
from tests.runtime.rig import Rig

WINDOW = "WINDOW TUMBLING (SIZE 100 MS)"
GOOD = f"SELECT A.k, B.x FROM A JOIN B ON A.k = B.k WHERE B.x > 1 {WINDOW}"
OTHER = f"SELECT A.k, B.x, C.y FROM A JOIN B ON A.k = B.k JOIN C ON B.x = C.y {WINDOW}"
BAD = f"SELECT A.k, B.x FROM A JOIN B ON A.k = B.k {WINDOW}"


class Dying(LocalExecutor):
    """Join tasks die while one of these queries ends in them, as they would for lack of memory."""

    def __init__(self, *ids: str) -> None:
        self.ids, self.joins = set(ids), 0

    def run(self, name: str, stage: Any, shared: Any, tasks: Any) -> Any:
        if stage is run_join:
            self.joins += 1
            if self.ids & ending(shared):
                raise MemoryError("no memory is left for the rows of this task")
        return super().run(name, stage, shared, tasks)


def ending(shared: JoinShared) -> set[str]:
    joins = shared.joins.value
    return {id_of(sink.uid) for name in shared.stage for sink in joins[name].sinks}


def tuples(epoch: int) -> dict[str, list[tuple[int, int, int]]]:
    rng = Random(epoch)
    at = 40 * epoch
    return {name: [(rng.randrange(4), rng.randrange(5), at + rng.randrange(40)) for _ in range(12)] for name in "ABC"}


def opened(path: Path, executor: LocalExecutor) -> Rig:
    rig = Rig(path, executor)
    for name in "ABC":
        rig.stream(name, k="BIGINT", **{"A": {"n": "BIGINT"}, "B": {"x": "BIGINT"}, "C": {"y": "BIGINT"}}[name])
    rig.create("good", GOOD)
    rig.create("other", OTHER)
    return rig


@pytest.fixture
def undisturbed(tmp_path: Path) -> dict[str, list[Any]]:
    rig = opened(tmp_path / "undisturbed", LocalExecutor())
    for epoch in range(8):
        rig.epoch(tuples(epoch))
    return {id: rig.rows(id) for id in ("good", "other")}


def test_the_culprit_is_suspended_and_nobody_else_notices(tmp_path, undisturbed):
    executor = Dying("bad", "worse")
    rig = opened(tmp_path / "state", executor)
    for epoch in range(8):
        if epoch == 3:
            rig.create("bad", BAD)
            rig.create("worse", BAD)
        rig.epoch(tuples(epoch))
    assert {id: rig.rows(id) for id in ("good", "other")} == undisturbed and undisturbed["other"]
    for id in ("bad", "worse"):
        info = rig.engine.query(id)
        assert info.state == QueryState.SUSPENDED and "no memory is left" in info.suspended
    assert [p.uid for p in rig.engine.plan.placements] == ["good#1", "other#2"]
    listed = rig.engine.state
    assert {p.name for p in rig.files("buckets")} == listed.bucket_files, "probes leave nothing behind"
    assert {p.name for p in rig.files("results")} == listed.segment_files


def test_each_culprit_is_told_what_its_own_task_said(tmp_path, undisturbed):
    class Different(LocalExecutor):
        def run(self, name: str, stage: Any, shared: Any, tasks: Any) -> Any:
            if stage is run_join:
                for id in sorted({"bad", "worse"} & ending(shared)):
                    raise MemoryError(f"this is about {id}")
            return super().run(name, stage, shared, tasks)

    rig = opened(tmp_path / "state", Different())
    for id in ("worse", "bad"):
        rig.create(id, BAD)
    for epoch in range(8):
        rig.epoch(tuples(epoch))
    for id in ("bad", "worse"):
        assert rig.engine.query(id).suspended.endswith(f"this is about {id}")
    assert {id: rig.rows(id) for id in ("good", "other")} == undisturbed


def test_the_culprits_may_be_more_than_everybody_else(tmp_path, undisturbed):
    many = [f"bad{n}" for n in range(6)]
    rig = opened(tmp_path / "state", Dying(*many))
    for epoch in range(8):
        if epoch == 2:
            for id in many:
                rig.create(id, BAD)
        rig.epoch(tuples(epoch))
    assert {rig.engine.query(id).state for id in many} == {QueryState.SUSPENDED}
    assert {id: rig.rows(id) for id in ("good", "other")} == undisturbed


def test_all_of_them_may_be_to_blame_and_the_platform_goes_on(tmp_path):
    executor = Dying("good", "other")
    rig = opened(tmp_path / "state", executor)
    rig.epoch(tuples(0))
    assert {q.state for q in rig.engine.queries()} == {QueryState.SUSPENDED}
    executor.ids.clear()
    rig.control(ResumeQuery("good"))
    rig.epoch(tuples(5))
    assert rig.engine.query("good").state == QueryState.RUNNING and rig.rows("good")


def test_a_machine_on_which_nothing_runs_is_nobodys_fault(tmp_path):
    class Broken(Dying):
        def run(self, name: str, stage: Any, shared: Any, tasks: Any) -> Any:
            if self.joins:
                raise MemoryError("no worker starts")
            return super().run(name, stage, shared, tasks)

    rig = opened(tmp_path / "state", Broken("good", "other"))
    with pytest.raises(MemoryError):
        rig.epoch(tuples(0))
    assert all(q.state == QueryState.RUNNING for q in rig.engine.queries())


def test_it_survives_a_restart_and_can_be_resumed_or_deleted(tmp_path, undisturbed):
    executor = Dying("bad")
    rig = opened(tmp_path / "state", executor)
    rig.create("bad", BAD)
    for epoch in range(3):
        rig.epoch(tuples(epoch))
    rig.reopen()
    assert rig.engine.query("bad").state == QueryState.SUSPENDED
    with pytest.raises(AlreadyExists, match="suspended"):
        rig.create("bad", BAD)
    with pytest.raises(FailedPrecondition, match="running"):
        rig.control(ResumeQuery("good"))
    executor.ids.clear()
    resumed = rig.control(ResumeQuery("bad"))
    assert resumed is not None and (resumed.state, resumed.sql) == (QueryState.RUNNING, BAD)
    for epoch in range(3, 8):
        rig.epoch(tuples(epoch))
    assert rig.rows("bad") and min(start for start, *_ in rig.rows("bad")) >= resumed.active_from
    assert {id: rig.rows(id) for id in ("good", "other")} == undisturbed
    rig.control(SuspendQuery("bad", "enough"))
    version = rig.engine.plan.version
    assert rig.delete("bad").state == QueryState.DELETED
    assert rig.engine.plan.version == version, "a suspended query has no part in the plan"
    rig.reopen()
    assert rig.engine.query("bad").state == QueryState.DELETED
    rig.create("bad", BAD)


class Killed(BaseException):
    pass


class Killing(LocalExecutor):
    """The whole process dies with the query's join."""

    def run(self, name: str, stage: Any, shared: Any, tasks: Any) -> Any:
        if stage is run_join and "bad" in ending(shared):
            raise Killed
        return super().run(name, stage, shared, tasks)


@pytest.fixture
def killed(tmp_path):
    """The state directory of a platform that died in an epoch that was planned."""
    rig = opened(tmp_path / "state", Killing())
    rig.epoch(tuples(0))
    rig.create("bad", BAD)
    with pytest.raises(Killed):
        rig.epoch(tuples(1))
    rig.engine.abandon()
    return tmp_path / "state"


def test_a_start_does_not_depend_on_a_query(killed, undisturbed):
    """On the next start, the planned epoch would die again."""
    again = Rig(killed, Dying("bad"))
    assert again.engine.epoch == 2 and again.engine.query("bad").state == QueryState.SUSPENDED
    for epoch in range(2, 8):
        again.epoch(tuples(epoch))
    assert {id: again.rows(id) for id in ("good", "other")} == undisturbed


def test_queries_can_be_suspended_before_anything_runs(killed, undisturbed):
    waiting = Rig(killed, Killing(), finish_on_open=False)
    assert waiting.engine.epoch == 1 and waiting.engine.state.planned is not None, "it answers before it runs"
    waiting.engine.abandon()
    again = Rig(killed, Killing(), suspend=("bad", "nobody"))
    assert again.engine.epoch == 2 and again.engine.query("bad").state == QueryState.SUSPENDED
    for epoch in range(2, 8):
        again.epoch(tuples(epoch))
    assert {id: again.rows(id) for id in ("good", "other")} == undisturbed


@pytest.mark.parametrize("which", ["bad", "all"])
def test_queries_can_be_suspended_without_a_platform(killed, which):
    """Whatever starts, with this query it dies in the planned epoch. A wrong id changes nothing."""
    with pytest.raises(NotFound):
        suspend(killed, ["bad", "nobody"], 7)
    assert read_state(killed).state.running.keys() == {"good#1", "other#2", "bad#3"}, (
        "one that is wrong changes nothing"
    )
    done = suspend(killed, [which], 7)
    assert done.planned == 2 and set(done.queries) == ({"bad"} if which == "bad" else {"bad", "good", "other"})
    again = Rig(killed, Killing())
    assert again.engine.epoch == 2 and again.engine.query("bad").state == QueryState.SUSPENDED
    assert again.engine.query("bad").suspended == REASON
    with pytest.raises(FailedPrecondition, match="another running platform"):
        suspend(killed, ["all"], 7)


def test_the_others_go_on_after_a_suspension_without_a_platform(killed, undisturbed):
    suspend(killed, ["bad"], 7)
    again = Rig(killed, Killing())
    for epoch in range(2, 8):
        again.epoch(tuples(epoch))
    assert {id: again.rows(id) for id in ("good", "other")} == undisturbed
    again.control(ResumeQuery("bad"))
    again.engine.close()
    with pytest.raises(FailedPrecondition) as twice:
        suspend_twice(killed)
    assert twice.value.reason == "QUERY_SUSPENDED"


def suspend_twice(directory: Path) -> None:
    suspend(directory, ["bad"], 7)
    suspend(directory, ["bad"], 7)


def test_a_state_in_a_store_is_not_suspended_from_outside(killed):
    mark(killed, "file:///somewhere")
    with pytest.raises(FailedPrecondition) as refused:
        suspend(killed, ["bad"], 7)
    assert refused.value.reason == "STATE_IN_STORE" and "--store" in refused.value.hint


def test_what_the_epoch_measured_belongs_to_the_plan_without_the_culprit(tmp_path):
    """The culprit has the only bit of a second word of query sets, which the plan without it does not have."""
    rig = opened(tmp_path / "state", Dying("bad"))
    for number in range(62):
        rig.create(f"q{number}", GOOD)
    rig.create("bad", GOOD)
    assert rig.engine.plan.by_uid["bad#65"].slot == 64
    rig.epoch(tuples(0))
    rig.epoch(tuples(1))
    assert rig.engine.query("bad").state == QueryState.SUSPENDED
    assert rig.rows("q7") == rig.rows("good")


def test_a_failure_that_passes_suspends_nobody(tmp_path, undisturbed):
    class Once(LocalExecutor):
        def __init__(self) -> None:
            self.left = 1

        def run(self, name: str, stage: Any, shared: Any, tasks: Any) -> Any:
            if name == "epoch 4: join 1" and self.left:
                self.left -= 1
                raise RuntimeError("the machine is gone")
            return super().run(name, stage, shared, tasks)

    rig = opened(tmp_path / "state", Once())
    for epoch in range(8):
        rig.epoch(tuples(epoch))
    assert {id: rig.rows(id) for id in ("good", "other")} == undisturbed
    assert all(q.state == QueryState.RUNNING for q in rig.engine.queries())


def test_what_fails_without_any_query_is_nobodys_fault(tmp_path):
    class NoSource(LocalExecutor):
        def run(self, name: str, stage: Any, shared: Any, tasks: Any) -> Any:
            if "source" in name:
                raise RuntimeError("nothing can be read")
            return super().run(name, stage, shared, tasks)

    rig = opened(tmp_path / "state", NoSource())
    with pytest.raises(RuntimeError, match="nothing can be read"):
        rig.epoch(tuples(0))
    assert all(q.state == QueryState.RUNNING for q in rig.engine.queries())


def test_errors_that_tell_their_own_story_are_not_investigated(tmp_path):
    class Refusing(LocalExecutor):
        asked = 0

        def run(self, name: str, stage: Any, shared: Any, tasks: Any) -> Any:
            Refusing.asked += 1
            raise FailedPrecondition("somebody else has the state", reason="STATE_TAKEN")

    rig = opened(tmp_path / "state", Refusing())
    with pytest.raises(AJoinError, match="somebody else"):
        rig.epoch(tuples(0))
    assert Refusing.asked == 1


@pytest.mark.parametrize("seed", range(20))
def test_the_search_finds_all_culprits_in_few_runs(seed):
    rng = Random(seed)
    uids = [f"q{i}#{i}" for i in range(rng.choice((1, 2, 7, 64, 1000)))]
    guilty = set(rng.sample(uids, min(max(1, len(uids) // 2), rng.randrange(1, 4))))
    runs = []

    def ends(kept: Any) -> bool:
        runs.append(len(kept))
        return not guilty & set(kept)

    found = find_culprits(uids, ends, len(uids))
    assert found is not None and set(found) == guilty
    assert len(runs) <= 2 + len(guilty) * (len(uids).bit_length() + 1)


def test_a_query_that_only_fails_beside_another_one_is_enough():
    culprits = find_culprits(["a", "b", "c"], lambda kept: not {"a", "c"} <= set(kept), 3)
    assert culprits is not None and len(culprits) == 1
    assert find_culprits(["a"], lambda kept: True, 1) == ()
    assert find_culprits(["a"], lambda kept: False, 1) is None
    assert find_culprits(["a", "b", "c"], lambda kept: not kept, 2) is None, "more than may be"


def dying(shared: tuple[Any, Any], task: Any) -> Any:
    """The task's process is gone, as if the system had taken its memory back."""
    stage, inner = shared
    if isinstance(inner, JoinShared) and "bad" in ending(inner):
        os.kill(os.getpid(), signal.SIGKILL)
    return stage(inner, task)


class DyingOnSpark:
    def __init__(self, executor: Any) -> None:
        self._executor = executor
        self.here, self.stop, self.executors = executor.here, executor.stop, executor.executors

    @property
    def cores(self) -> int:
        return int(self._executor.cores)

    def run(self, name: str, stage: Any, shared: Any, tasks: Any) -> Any:
        return self._executor.run(name, dying, (stage, shared), tasks)


@pytest.mark.spark
def test_a_query_that_kills_workers_is_suspended_on_spark(tmp_path, undisturbed, spark):
    rig = opened(tmp_path / "state", DyingOnSpark(spark))
    for epoch in range(8):
        if epoch == 3:
            rig.create("bad", BAD)
        rig.epoch(tuples(epoch))
    assert {id: rig.rows(id) for id in ("good", "other")} == undisturbed
    assert rig.engine.query("bad").state == QueryState.SUSPENDED


def endless(shared: tuple[Any, Any], task: Any) -> Any:
    stage, inner = shared
    while isinstance(inner, JoinShared) and "bad" in ending(inner):
        time.sleep(0.1)
    return stage(inner, task)


class EndlessOnSpark(DyingOnSpark):
    def run(self, name: str, stage: Any, shared: Any, tasks: Any) -> Any:
        return self._executor.run(name, endless, (stage, shared), tasks)


@pytest.mark.spark
def test_a_query_that_never_ends_is_suspended_on_spark(tmp_path, undisturbed, spark):
    """Its stages are ended by the watchdog, and its workers with them; others may run at the same time."""
    executor = SparkExecutor(spark.context, stage_timeout=8.0)
    rig = opened(tmp_path / "state", EndlessOnSpark(executor))
    for epoch in range(8):
        if epoch == 6:
            rig.create("bad", BAD)
        rig.epoch(tuples(epoch))
    assert {id: rig.rows(id) for id in ("good", "other")} == undisturbed
    info = rig.engine.query("bad")
    assert info.state == QueryState.SUSPENDED and "longer than 8 s" in info.suspended
