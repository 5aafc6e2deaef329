"""Damaged, cut and missing bucket files: noticed, named, and made again; rows are as if nothing had happened."""

from __future__ import annotations

import logging
from random import Random

import pytest

from optimizer.errors import InternalError
from runtime.api import ForceGroups, ForceOrder
from runtime.control.events import BucketsRepaired
from runtime.engine.engine import Engine
from runtime.execution.executor import LocalExecutor
from runtime.log.log import Log
from runtime.plugins import load
from tests.lives.executors import Stubborn, damage
from tests.runtime.damage_world import HOP, THREE, TWO, finish, joining, kinds, remove, repairs, tuples
from tests.runtime.rig import Rig
from tests.runtime.story import Crash, tell, wrong

load(("tests.tools.opaque_store",))
OPAQUE = "opaque://"


def spoiling(engine, spoil):
    """The engine, with `spoil(engine)` done to it before every epoch."""
    run = engine.run_epoch

    def spoiled():
        spoil(engine)
        return run()

    engine.run_epoch = spoiled
    return engine


@pytest.mark.parametrize("kind", ["base", "view", "joined", "every"])
def test_every_kind_of_file_is_made_again(tmp_path, kind):
    """Through creations, a reorder, a regrouping, a rescaling and a deletion, row for row as the oracle says."""
    rng, hit = Random(kind), []

    def spoil(engine):
        found = kinds(engine.state)
        if kind == "every":
            hit.extend(name for names in found.values() for name in names)
            for path in (engine.directory / "buckets").glob("*"):
                path.unlink()
        else:
            for name in found[kind][::2]:
                hit.append(name)
                damage(engine.directory / "buckets" / name, rng)

    engine = tell(lambda: spoiling(Engine.open(tmp_path, LocalExecutor()), spoil))
    assert wrong(engine) == []
    assert hit and repairs(engine) > 0
    engine.close()


def test_damage_is_named_in_the_log(tmp_path, caplog):
    rig = joining(tmp_path)
    refs = list(rig.engine.state.sources.values())
    (tmp_path / "buckets" / refs[0].file).unlink()
    (tmp_path / "buckets" / refs[1].file).write_bytes(b"")
    with caplog.at_level(logging.WARNING):
        rig.epoch(tuples(2))
    said = "\n".join(r.getMessage() for r in caplog.records)
    assert f"bucket file {refs[0].file} is missing" in said
    assert f"bucket file {refs[1].file} is damaged: it is empty" in said, "also what no task has met"
    assert "2 of 2 lost source buckets read again" in said
    assert not {refs[0].id, refs[1].id} & rig.engine.state.sources.keys(), "new ids"
    assert {p.name for p in rig.files("buckets")} == {f for names in kinds(rig.engine.state).values() for f in names}


@pytest.mark.parametrize("config", [{"sharing": "off"}, {"sharing": "astream"}, {"store": ""}, {"store": OPAQUE}])
def test_in_every_mode(tmp_path, config, undamaged):
    config = {key: f"{value}{tmp_path}/store" if key == "store" else value for key, value in config.items()}
    fetched = OPAQUE in str(config)  # Stubborn's tasks keep their cache, as executors do: they would not miss a file
    rig = joining(tmp_path / "state", LocalExecutor() if fetched else Stubborn(1), **config)
    remove(rig, kinds(rig.engine.state)["base"][::2])
    rig.reopen()
    assert finish(rig) == undamaged
    assert repairs(rig.engine) == 1


@pytest.mark.parametrize("kill", [True, False])
def test_a_restart_finds_the_damage_with_its_first_epoch(tmp_path, kill, undamaged):
    rig = joining(tmp_path)
    remove(rig, kinds(rig.engine.state)["base"])
    rig.reopen(kill=kill)
    assert finish(rig) == undamaged


class Dying(LocalExecutor):
    """The process dies in the first stage whose name contains `at`."""

    def __init__(self, at):
        self.at = at

    def run(self, name, stage, shared, tasks):
        if self.at and self.at in name:
            self.at = ""
            raise Crash
        return super().run(name, stage, shared, tasks)


@pytest.mark.parametrize("stage", ["source", "join 1", "join 2"])
def test_a_planned_epoch_is_repaired_on_opening(tmp_path, stage, undamaged):
    executor = Dying("")
    rig = joining(tmp_path, executor)
    executor.at = f"epoch 3: {stage}"
    with pytest.raises(Crash):
        rig.epoch(tuples(2))
    state = rig.engine.state
    remove(rig, [*kinds(state)["base"][1:3], *kinds(state)["joined"][:1]])
    rig.reopen()
    assert rig.engine.epoch == 3
    assert finish(rig, 3) == undamaged


@pytest.mark.parametrize("at", ["epoch 3: lost buckets", "epoch 3: rebuild joins", "before the log", "after the log"])
def test_a_crash_in_the_middle_of_a_repair(tmp_path, at, undamaged, monkeypatch):
    executor = Dying("")
    rig = joining(tmp_path, executor)
    before = rig.engine.state.to_json()
    remove(rig, kinds(rig.engine.state)["base"][:2])
    executor.at = at
    append = Log.append

    def cut(log, record):
        if record["$"] == "BucketsRepaired" and executor.at:
            if at == "after the log":
                append(log, record)
            executor.at = ""
            raise Crash
        append(log, record)

    monkeypatch.setattr(Log, "append", cut)
    with pytest.raises(Crash):
        rig.epoch(tuples(2))
    if at != "after the log":
        (planned,) = (r for r in Log(tmp_path / "log").read()[1][-1:])
        assert planned["$"] == "EpochPlanned" and rig.engine.state.to_json()["sources"] == before["sources"]
    rig.reopen()
    assert finish(rig, 3) == undamaged
    assert {p.name for p in rig.files("buckets")} == {f for names in kinds(rig.engine.state).values() for f in names}


def test_a_plan_change_that_waits_meets_a_repaired_state(tmp_path):
    def life(rig, spoil):
        rig.create("more", THREE.replace("A.n AS a", "A.n + 1 AS a"))
        rig.control(ForceOrder("three", ["A", ["B", "C"]]))
        rig.control(ForceGroups((("two", 1), ("three", 0), ("more", 2))))
        rig.delete("two")
        spoil()
        return finish(rig)

    plain, other = joining(tmp_path / "plain"), joining(tmp_path / "other")
    expected = life(plain, lambda: None)
    assert life(other, lambda: remove(other, kinds(other.engine.state)["base"])) == expected
    assert repairs(other.engine) == 1


def test_counts_and_dead_letters_are_not_counted_again(tmp_path):
    def life(path, spoil):
        rig = Rig(path)
        for name in "AB":
            rig.stream(name, k="BIGINT", n="INT", delay=0, lateness=0)
        rig.create("q", "SELECT COUNT(*) AS c FROM A JOIN B ON A.k = B.k WINDOW TUMBLING (SIZE 4 SECONDS)")
        rig.epoch({"A": [(1, 1, 1000), (1, 2, 1500)], "B": [(1, 1, 1200)]})
        rig.epoch({"A": [(1, 3, 200), (1, 4, 1900), (None, 5, None)], "B": [(1, 2, 1700)]})  # one late, one dead
        if spoil:
            remove(rig, kinds(rig.engine.state)["base"])
        rig.epoch({"B": [(1, 9, 3000)]}, watermark=1 << 40)
        told = [(s.tuples, s.late_dropped, s.dead_letter) for s in rig.engine.streams()]
        return rig.rows("q"), told, rig.engine.dead_letters()

    assert life(tmp_path / "plain", False) == life(tmp_path / "spoiled", True)


def test_a_stream_that_was_idle_comes_back_after_a_repair(tmp_path):
    """What it brings for windows that the others closed meanwhile is in no window, repaired or not."""

    def life(path, spoil):
        rig = Rig(path)
        for name in "AB":
            rig.stream(name, k="BIGINT", n="INT", delay=0, idle=1000)
        rig.create("q", f"SELECT A.n AS a, B.n AS b FROM A JOIN B ON A.k = B.k {HOP}")
        rig.epoch({"A": [(1, 1, 1000)], "B": [(1, 1, 1100)]})
        for second in range(2, 9):
            rig.clock.now += 600
            rig.epoch({"A": [(1, second, 1000 * second)]})
        if spoil:
            remove(rig, kinds(rig.engine.state)["base"])
        rig.epoch({"A": [(1, 9, 8200)], "B": [(1, n, 1000 * n) for n in range(1, 10)]})
        rig.epoch({"A": [(1, 10, 9100)]}, watermark=1 << 40)
        return rig.rows("q"), [(s.tuples, s.late_dropped) for s in rig.engine.streams()]

    rows, told = life(tmp_path / "plain", False)
    assert rows and life(tmp_path / "spoiled", True) == (rows, told)


@pytest.mark.parametrize("restart", [False, True])
def test_nobody_needs_the_buckets_of_a_deleted_query(tmp_path, restart):
    rig = joining(tmp_path)
    rig.delete("two")
    rig.delete("three")
    rig.engine.delete_stream("C")
    remove(rig, kinds(rig.engine.state)["base"])
    if restart:
        rig.reopen()
    rig.create("again", TWO)
    rig.epoch({s: rows for s, rows in tuples(2).items() if s != "C"})
    rig.epoch(watermark=1 << 40)
    assert rig.rows("again")


def test_a_rotten_cache_heals_by_itself(tmp_path, undamaged):
    rig = joining(tmp_path / "state", store=f"{OPAQUE}{tmp_path}/store")
    rng = Random(1)
    cached = [p for p in (rig.directory / "cache").iterdir() if p.is_file()]
    assert cached
    for path in cached:
        damage(path, rng)
    assert finish(rig) == undamaged
    assert repairs(rig.engine) == 0, "nothing had to be read from its source"


def test_damage_that_keeps_coming_back_is_an_error(tmp_path):
    class Hopeless(LocalExecutor):
        def run(self, name, stage, shared, tasks):
            if name.startswith("epoch 3: join"):
                raise InternalError("bucket file b2.bucket is damaged: always", reason="BUCKET_DAMAGED")
            return super().run(name, stage, shared, tasks)

    rig = joining(tmp_path, Hopeless())
    with pytest.raises(InternalError, match="always"):
        rig.epoch(tuples(2))


def test_a_repair_is_a_value_that_reads_back(tmp_path):
    rig = joining(tmp_path)
    remove(rig, kinds(rig.engine.state)["base"][:1])
    rig.epoch(tuples(2))
    _, records = Log(tmp_path / "log").read()
    assert sum(r["$"] == BucketsRepaired.__name__ for r in records) == 1
    state = rig.engine.state.to_json()
    rig.reopen()
    again = rig.engine.state.to_json()
    assert {k: again[k] for k in ("sources", "joined", "next_bucket", "next_source")} == {
        k: state[k] for k in ("sources", "joined", "next_bucket", "next_source")
    }


@pytest.mark.spark
@pytest.mark.parametrize("store", [None, ""])  # of other stores executors have whole copies in their caches
def test_tasks_on_spark_say_what_they_met_and_the_epoch_is_repaired(tmp_path, spark, undamaged, store, caplog):
    rig = joining(tmp_path / "state", spark, store=None if store is None else f"{store}{tmp_path}/store")
    names = kinds(rig.engine.state)
    changed = rig.folder("buckets") / names["base"][0]
    raw = bytearray(changed.read_bytes())
    raw[40] ^= 1
    changed.write_bytes(raw)
    remove(rig, [names["base"][2], *names["joined"][:1]])
    rig.reopen()
    with caplog.at_level(logging.WARNING):
        assert finish(rig) == undamaged
    said = "\n".join(r.getMessage() for r in caplog.records)
    assert f"bucket file {names['base'][0]} is damaged" in said and f"bucket file {names['base'][2]} is missing" in said
    assert repairs(rig.engine) == 1
