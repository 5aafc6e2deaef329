"""Kafka under the engine: every message counts once, whatever dies in between."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from optimizer.errors import Unavailable
from runtime.execution.executor import LocalExecutor
from tests.kafka.support import arrow_message, message, spec
from tests.runtime.rig import Rig

SQL = "SELECT V.k FROM V JOIN W ON V.k = W.k WINDOW TUMBLING (SIZE 1 DAY)"
LONG = 1 << 40


class Told(BaseException):
    """The process dies in this stage; nothing may catch it."""


class Failing(LocalExecutor):
    """Fails, when told to, the stage whose name ends so; after its tasks have run."""

    def __init__(self) -> None:
        self.fail = ""

    def run(self, name: str, stage: Any, shared: Any, tasks: Sequence[Any]) -> list[Any]:
        done = super().run(name, stage, shared, tasks)
        if self.fail and name.endswith(self.fail):
            raise Told(name)
        return done


def rig(directory: Path, executor: LocalExecutor | None = None, **sources: Any) -> Rig:
    made = Rig(directory, executor)
    for name, source in sources.items():
        made.stream(name, source, k="BIGINT", delay=LONG)
    return made


def drain(r: Rig) -> None:
    """Until everything is read. A broker on a busy machine may be slower than the timeout of a test about outages."""
    while r.engine.has_input() or r.engine.state.planned is not None:
        with suppress(Unavailable):
            r.epoch()


def keys(r: Rig, id: str = "q") -> list[int]:
    return sorted(row[-1] for row in r.rows(id))


def test_exactly_once_over_crashes_at_every_stage(broker, topic, tmp_path):
    v, w = topic("v", partitions=3), topic("w", partitions=2)
    for p in range(3):
        broker.send(v, *(message(k) for k in range(p, 300, 3)), partition=p)
    for p in range(2):
        broker.send(w, *(message(k) for k in range(p, 300, 2)), partition=p)
    executor = Failing()
    limit = {"max_messages": 40, "parallelism": 2}
    r = rig(tmp_path, executor, V=spec(broker, v, **limit), W=spec(broker, w, **limit))
    r.create("q", SQL)
    crashes = 0
    while r.engine.has_input():
        executor.fail = ("source", "", "join 1", "")[r.engine.epoch % 4]
        try:
            r.epoch()
        except Told:
            crashes += 1
            executor.fail = ""
        r.reopen()
    assert crashes >= 2
    assert [r.engine.stream(s).tuples for s in "VW"] == [300, 300]
    assert keys(r) == list(range(300)), "each pair once"


def test_messages_keep_arriving_and_partitions_too(broker, topic, tmp_path):
    v, w = topic("v"), topic("w")
    r = rig(tmp_path, V=spec(broker, v), W=spec(broker, w, format="arrow", start="latest"))
    r.create("q", SQL)
    broker.send(w, arrow_message(*range(50)))
    for k in range(5):
        broker.send(v, message(k))
        drain(r)
    with broker.admin() as admin:
        admin.create_partitions({v: 2})
        admin.wait_for_topics([v])
    broker.send(v, *(message(k) for k in range(5, 20)), partition=1)
    r.reopen()
    broker.send(v, *(message(k) for k in range(20, 30)), b"broken", None)
    drain(r)
    assert keys(r) == list(range(30))
    info = r.engine.stream("V")
    assert (info.tuples, info.dead_letter, info.late_dropped) == (30, 2, 0)
    assert [d.place for d in r.engine.dead_letters("V")] == [f"{v} partition 0 offset {n}" for n in (15, 16)]


def test_an_outage_is_no_input_and_a_planned_epoch_runs_after_it(broker, topic, tmp_path):
    v, w = topic("v"), topic("w")
    broker.send(w, *(message(k) for k in range(20)))
    broker.send(v, *(message(k) for k in range(10)))
    executor = Failing()
    calm = rig(tmp_path / "calm", V=spec(broker, v), W=spec(broker, w))
    planned = rig(tmp_path / "planned", executor, V=spec(broker, v, timeout_ms=500), W=spec(broker, w, timeout_ms=500))
    for r in (calm, planned):
        r.create("q", SQL)
        drain(r)
    broker.send(v, *(message(k) for k in range(10, 20)))
    assert calm.engine.has_input()
    executor.fail = "source"
    with pytest.raises(Told):
        drain(planned)
    executor.fail = ""
    broker.stop(kill=True)
    try:
        assert not calm.engine.has_input(), "an outage is no input and no error"
        calm.epoch()
        calm.reopen()
        assert not calm.engine.has_input()
        with pytest.raises(Unavailable, match="does not answer"):
            planned.epoch()
    finally:
        broker.start()
    calm.clock.now += 60_000
    drain(calm)
    drain(planned)
    assert keys(calm) == keys(planned) == list(range(20))


@pytest.mark.spark
def test_tasks_on_spark_workers_read_the_topic(broker, topic, tmp_path, spark):
    v, w = topic("v", partitions=2), topic("w")
    for p in range(2):
        broker.send(v, *(message(k) for k in range(p, 5_000, 2)), partition=p)
    broker.send(w, arrow_message(*range(5_000)))
    r = rig(tmp_path, spark, V=spec(broker, v), W=spec(broker, w, format="arrow"))
    r.create("q", SQL)
    drain(r)
    assert keys(r) == list(range(5_000))
