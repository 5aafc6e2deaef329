"""Figure 12 of the AJoin paper: the plan changes while windows are open.

    (a) join reordering of Q2: (V ⋈ W) ⋈ C becomes V ⋈ (W ⋈ C)
    (b) the partition function changes; old buckets meet new ones

The paper swaps operator states, or partitions twice for a while. Here a joined bucket is a cache of source buckets:
the new order's state is rebuilt from them between two epochs, and a partition is a range of any index, old or new.
Either way: the same rows in the same epochs as if nothing had happened.
"""

from __future__ import annotations

import pytest

from runtime.api import ForceOrder, Optimize, ScaleTo, SplitPartition
from runtime.execution.executor import LocalExecutor
from tests.runtime.rig import Rig

Q2 = """SELECT V.n AS v, W.n AS w, C.n AS c FROM V JOIN W ON V.vID = W.vID JOIN C ON W.usrID = C.usrID
        WINDOW HOPPING (SIZE 4 SECONDS, ADVANCE BY 1 SECOND)"""
EPOCHS = 8
OLD, NEW = (("V", "W"), "C"), ("V", ("W", "C"))


class Watching(LocalExecutor):
    """The names of all stages, without the epoch in front."""

    def __init__(self):
        self.stages = []

    def run(self, name, stage, shared, tasks):
        self.stages.append((name.split(": ")[-1], len(tasks)))
        return super().run(name, stage, shared, tasks)


def start(directory):
    rig = Rig(directory, Watching(), partitions=2)
    rig.stream("V", vID="BIGINT", n="INT")
    rig.stream("W", usrID="BIGINT", vID="BIGINT", n="INT")
    rig.stream("C", usrID="BIGINT", n="INT")
    rig.create("q2", Q2)
    rig.control(ForceOrder("q2", OLD))
    return rig


def second(rig, i):
    """Second i of all streams: five tuples each, few keys, numbered through."""
    at = [(5 * i + j, 1000 * i + 100 * j) for j in range(5)]
    rig.epoch({
        "V": [(n % 3, n, ts) for n, ts in at],
        "W": [(n % 4, n % 3, n, ts) for n, ts in at],
        "C": [(n % 4, n, ts) for n, ts in at],
    })  # fmt: skip
    return rig.delivered()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What each epoch delivers when the plan never changes."""
    rig = start(tmp_path_factory.mktemp("undisturbed"))
    return [second(rig, i) for i in range(EPOCHS)]


def told(rig, changes):
    """Play all seconds; `changes` maps a second to the controls before it."""
    out = []
    for i in range(EPOCHS):
        for control in changes.get(i, ()):
            rig.control(control)
        out.append(second(rig, i))
    return out


def test_figure_12a_reordering_between_two_epochs_changes_no_row_of_any_epoch(tmp_path, undisturbed):
    rig = start(tmp_path)
    assert told(rig, {4: [ForceOrder("q2", NEW)]}) == undisturbed
    assert sum(len(rows) for epoch in undisturbed for rows in epoch.values()) > 1000


def test_figure_12a_the_new_orders_state_is_rebuilt_from_source_buckets_and_delivers_nothing(tmp_path):
    rig = start(tmp_path)
    for i in range(4):
        second(rig, i)
    delivered = rig.rows("q2")
    assert rig.joined("V", "W") and not rig.joined("C", "W")
    rig.control(ForceOrder("q2", NEW))
    rig.executor.stages.clear()
    rig.epoch()  # nothing to read: only the transition
    assert [name for name, _ in rig.executor.stages] == ["rebuild views", "rebuild joins"]
    assert rig.joined("C", "W") and not rig.joined("V", "W")
    assert rig.rows("q2") == delivered
    # the rebuilt bucket holds what W ⋈ C has among the tuples that open windows can still see
    open_from = min(s.min_slice for s in rig.sources("W"))
    held = [(t["n"], s.min_slice) for s in rig.sources("W") for t in rig.tuples(s)]
    assert open_from <= 1000 and len(held) >= 15
    old_w = {int(b) for j in rig.joined("C", "W") for b in rig.open_joined(j).exposed(j.exposed[0])[0]}
    assert old_w <= {s.id for s in rig.sources("W")}


def test_figure_12a_and_back_again_every_epoch(tmp_path, undisturbed):
    rig = start(tmp_path)
    assert told(rig, {i: [ForceOrder("q2", (NEW, OLD)[i % 2])] for i in range(1, EPOCHS)}) == undisturbed


@pytest.mark.parametrize("partitions", [1, 3, 7])
def test_figure_12b_a_new_partition_function_changes_no_row_of_any_epoch(tmp_path, undisturbed, partitions):
    rig = start(tmp_path)
    assert told(rig, {3: [ScaleTo(partitions)], 6: [ScaleTo(2)]}) == undisturbed
    assert ("join 1", partitions) in rig.executor.stages


def test_figure_12b_nothing_is_migrated_and_nothing_partitioned_twice(tmp_path):
    rig = start(tmp_path)
    for i in range(3):
        second(rig, i)
    before = {p.name: p.stat().st_mtime_ns for p in rig.files("buckets")}
    rig.executor.stages.clear()
    rig.control(ScaleTo(5))
    rig.epoch()
    assert rig.executor.stages == []  # no stage at all: the list of boundaries is everything that changed
    assert {p.name: p.stat().st_mtime_ns for p in rig.files("buckets")} == before


def test_figure_11_a_partition_that_is_scaled_up_changes_no_row_either(tmp_path, undisturbed):
    """One side dealt out, the other seen by all: the join distributes over union."""
    rig = start(tmp_path)
    assert told(rig, {2: [SplitPartition(0, 3)], 5: [SplitPartition(1, 2)], 7: [SplitPartition(0, 1)]}) == undisturbed
    assert ("join 1", 4) in rig.executor.stages and ("join 1", 5) in rig.executor.stages


def test_everything_at_once_with_restarts_in_between(tmp_path, undisturbed):
    rig = start(tmp_path)
    out = []
    for i in range(EPOCHS):
        if i % 2:
            rig.control(ForceOrder("q2", (NEW, OLD)[i // 2 % 2]))
            rig.control(ScaleTo(1 + i % 4))
            rig.control(Optimize("incremental"))
        rig.reopen(kill=i % 3 == 0)
        out.append(second(rig, i))
    assert out == undisturbed
