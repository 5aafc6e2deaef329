"""A plan change with long windows open is prepared portion by portion; rows come as if nothing had happened."""

from __future__ import annotations

import logging

import pytest

from optimizer.search.forced import force_order
from runtime.api import ForceOrder
from runtime.crashpoints import Crashed, arm
from runtime.engine import preparation
from tests.runtime.rig import Rig
from tests.runtime.test_figure_12 import NEW, OLD, Watching, second

LONG = """SELECT V.n AS v, W.n AS w, C.n AS c FROM V JOIN W ON V.vID = W.vID JOIN C ON W.usrID = C.usrID
          WINDOW HOPPING (SIZE 40 SECONDS, ADVANCE BY 20 SECONDS)"""
OTHER = "SELECT V.n AS v, W.n AS w FROM V JOIN W ON V.vID = W.vID WINDOW TUMBLING (SIZE 3 SECONDS)"
BEFORE, EPOCHS = 12, 34


@pytest.fixture(autouse=True)
def one_epoch_at_a_time(monkeypatch):
    """However fast this machine is: a portion is what has come, and one older epoch."""
    monkeypatch.setattr(preparation, "AT_ONCE", 1)
    monkeypatch.setattr(preparation, "SHARE", 0.0)


def start(directory, **config):
    rig = Rig(directory, Watching(), partitions=2, **config)
    rig.stream("V", vID="BIGINT", n="INT")
    rig.stream("W", usrID="BIGINT", vID="BIGINT", n="INT")
    rig.stream("C", usrID="BIGINT", n="INT")
    rig.create("q", LONG)
    rig.control(ForceOrder("q", OLD))
    return rig


def change(rig, order=NEW):
    uid = rig.engine.state.names["q"]
    rig.engine.change_to(force_order(rig.engine.plan, rig.engine.state.running[uid], order))


def reordered(rig):
    return bool(rig.joined("C", "W"))


def played(rig, at=None, until=EPOCHS):
    """Every second with what it delivers; `at[i]` happens before second i."""
    out = []
    for i in range(until):
        for act in (at or {}).get(i, ()):
            act(rig)
        out.append(second(rig, i))
    return out


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return played(start(tmp_path_factory.mktemp("undisturbed")))


def test_a_reordering_takes_a_portion_an_epoch_and_ends_with_the_window(tmp_path, undisturbed):
    rig = start(tmp_path)
    assert played(rig, until=BEFORE) == undisturbed[:BEFORE]
    change(rig)
    version, most, last = rig.engine.plan.version, 0, None
    for i in range(BEFORE, EPOCHS):
        rig.executor.stages.clear()
        assert second(rig, i) == undisturbed[i]
        views = [tasks for name, tasks in rig.executor.stages if name == "rebuild views"]
        most = max(most, *views, 0) if views else most
        if last is None and rig.engine.plan.version > version:
            last = i
            assert not reordered(rig), "it was decided, and the next epoch makes it"
        elif last is not None:
            assert not views and not any(name == "rebuild joins" for name, _ in rig.executor.stages)
    assert last is not None and last > BEFORE + 3
    assert reordered(rig) and not rig.joined("V", "W")
    assert 0 < most <= 6, "views of three streams, of one epoch or two"
    listed = {f"buckets/{name}" for name in rig.engine.state.bucket_files}
    assert {f"buckets/{p.name}" for p in rig.files("buckets")} == listed, "nothing is left over"


def test_queries_come_and_go_meanwhile(tmp_path):
    churn = {
        BEFORE + 1: [lambda rig: rig.create("a", OTHER)],
        BEFORE + 3: [lambda rig: rig.create("b", LONG)],
        BEFORE + 5: [lambda rig: rig.delete("a")],
        BEFORE + 6: [lambda rig: rig.create("c", OTHER)],
    }
    plain = played(start(tmp_path / "plain"), churn)
    rig = start(tmp_path / "prepared")
    assert played(rig, {BEFORE: [change], **churn}) == plain
    assert reordered(rig)
    assert sum(len(rows) for epoch in plain for rows in epoch.values()) > 1000


@pytest.mark.parametrize("config", [{}, {"store": True}])
def test_killed_between_two_portions_and_begun_again(tmp_path, undisturbed, config):
    rig = start(tmp_path / "near", **({"store": str(tmp_path / "store")} if config else {}))
    out = played(rig, {BEFORE: [change]}, BEFORE + 2)
    with arm("preparation.portion", 1), pytest.raises(Crashed):
        second(rig, BEFORE + 2)
    rig.reopen(kill=True)
    assert {p.name for p in rig.files("buckets")} == {f.rpartition("/")[2] for f in rig.engine.state.bucket_files}
    out.append(rig.delivered())
    change(rig)
    for i in range(BEFORE + 3, EPOCHS):
        if i % 4 == 0:
            rig.reopen(kill=i % 8 == 0)
            change(rig) if not reordered(rig) and rig.engine.plan == rig.engine.state.executed else None
        out.append(second(rig, i))
    assert out == undisturbed


def test_killed_between_the_decision_and_its_epoch(tmp_path, undisturbed):
    """What was prepared is gone then; the epoch makes it as it always could."""
    rig = start(tmp_path)
    out = played(rig, {BEFORE: [change]}, BEFORE + 1)
    version, i = rig.engine.plan.version, BEFORE + 1
    while rig.engine.plan.version == version:
        out.append(second(rig, i))
        i += 1
    rig.reopen(kill=True)
    rig.executor.stages.clear()
    out.append(second(rig, i))
    assert ("rebuild joins", 2) in rig.executor.stages
    out += [second(rig, j) for j in range(i + 1, EPOCHS)]
    assert out == undisturbed
    assert reordered(rig)


def test_somebody_forces_something_else_meanwhile(tmp_path, undisturbed, caplog):
    rig = start(tmp_path)
    bushy = (("C", "W"), "V")
    with caplog.at_level(logging.INFO, "ajoin.engine"):
        out = played(rig, {BEFORE: [change], BEFORE + 3: [lambda rig: rig.control(ForceOrder("q", bushy))]})
    assert out == undisturbed
    assert any("the plan has moved on" in m for m in caplog.messages)
    assert {p.name for p in rig.files("buckets")} == rig.engine.state.bucket_files


def test_a_damaged_bucket_in_the_middle(tmp_path, undisturbed):
    def damage(rig):
        victim = rig.folder("buckets") / rig.sources("W")[2].file
        victim.write_bytes(victim.read_bytes()[:-100])

    rig = start(tmp_path)
    out = played(rig, {BEFORE: [change], BEFORE + 2: [damage]})
    assert out == undisturbed
    assert {p.name for p in rig.files("buckets")} == rig.engine.state.bucket_files
