"""COUNT(*) per window: when a row comes, with which revision and number, and over which joins."""

from __future__ import annotations

import pytest

from runtime.api import ForceOrder, ScaleTo, SplitPartition
from runtime.execution.executor import LocalExecutor
from tests.runtime.rig import Rig

TWO = "SELECT COUNT(*) AS n FROM A JOIN B ON A.k = B.k"
TUMBLING = "WINDOW TUMBLING (SIZE 10 MILLISECONDS)"


def rig_of(tmp_path, *names, executor=None, **timing) -> Rig:
    rig = Rig(tmp_path, executor)
    for name in names or ("A", "B"):
        rig.stream(name, k="BIGINT", v="BIGINT", s="STRING", **timing)
    return rig


def t(ts, k=1, v=0, s="x"):
    return (k, v, s, ts)


def test_a_window_is_delivered_when_the_watermark_reaches_its_end(tmp_path):
    rig = rig_of(tmp_path)
    rig.create("q", f"{TWO} {TUMBLING}")
    rig.epoch({"A": [t(1), t(2)], "B": [t(3), t(4), t(5, k=2)]})
    assert rig.delivered() == {}
    rig.epoch({"A": [t(10)], "B": [t(9)]})  # B's watermark is 9
    assert rig.delivered() == {}
    rig.epoch({"B": [t(10), t(10)]})
    assert rig.delivered() == {"q": [(0, 10, 0, 6)]}
    rig.epoch(watermark=20)
    assert rig.delivered() == {"q": [(10, 20, 0, 2)]}
    assert rig.engine.query("q").rows == 2
    assert rig.engine.state.partials == {}, "nothing can reach these windows any more"


def test_late_tuples_revise_a_closed_window_once_per_epoch(tmp_path):
    rig = rig_of(tmp_path, lateness=100)
    rig.create("q", f"{TWO} {TUMBLING}")
    rig.epoch({"A": [t(1), t(30)], "B": [t(2), t(30)]})
    assert rig.delivered() == {"q": [(0, 10, 0, 1)]}
    rig.epoch({"A": [t(3), t(4)], "B": [t(5, k=9)]})
    assert rig.delivered() == {"q": [(0, 10, 1, 3)]}
    rig.epoch({"A": [t(3, k=8)]})  # accepted, but joins with nothing: the number stands
    assert rig.delivered() == {}
    rig.epoch({"A": [t(11)], "B": [t(11)]})  # a closed window that had nothing: its first row
    assert rig.delivered() == {"q": [(10, 20, 0, 1)]}
    rig.epoch(watermark=1000)
    assert rig.delivered() == {"q": [(30, 40, 0, 1)]}
    assert rig.engine.state.partials == {}


def test_hopping_windows_and_the_bounds_as_columns(tmp_path):
    rig = rig_of(tmp_path)
    rig.create(
        "q",
        "SELECT window_end AS until, COUNT(*), window_start FROM A JOIN B ON A.k = B.k "
        "WINDOW HOPPING (SIZE 10 MILLISECONDS, ADVANCE BY 5 MILLISECONDS)",
    )
    rig.epoch({"A": [t(8), t(9)], "B": [t(9), t(12)]}, watermark=100)
    (batch,) = rig.engine.read_results("q")
    assert batch.rows.schema.names == ["window_start", "window_end", "revision", "until", "count"]
    assert rig.rows("q") == [(0, 10, 0, 10, 2), (5, 15, 0, 15, 4)]


@pytest.mark.parametrize("condition", ["A.k = B.k", "A.s = B.s", "A.k = B.k AND A.s = B.s", "A.k = B.k AND A.v < B.v"])
def test_exact_keys_and_all_others_give_the_same_numbers_as_rows(tmp_path, condition):
    rig = rig_of(tmp_path)
    rig.create("rows", f"SELECT A.v FROM A JOIN B ON {condition} {TUMBLING}")
    rig.create("q", f"SELECT COUNT(*) FROM A JOIN B ON {condition} {TUMBLING}")
    for first in (0, 5, 12):
        tuples = [t(first + i % 7, k=i % 2, v=i, s="xyz"[i % 3]) for i in range(20)]
        rig.epoch({"A": tuples, "B": tuples[3:]})
    rig.epoch(watermark=100)
    by_window: dict[tuple[int, int], int] = {}
    for start, end, _ in rig.rows("rows"):
        by_window[start, end] = by_window.get((start, end), 0) + 1
    assert {(start, end): n for start, end, _, n in rig.rows("q")} == by_window


@pytest.mark.parametrize("order", [(("A", "B"), ("C", "D")), ((("A", "B"), "C"), "D"), ("A", ("B", ("C", "D")))])
def test_nested_joins_are_summed_through_closed_lists(tmp_path, order):
    rig = rig_of(tmp_path, "A", "B", "C", "D")
    joined = "FROM A JOIN B ON A.k = B.k JOIN C ON B.v = C.v JOIN D ON C.k = D.k"
    rig.create("q", f"SELECT COUNT(*) {joined} WHERE B.v < 3 {TUMBLING}")
    rig.create("all", f"SELECT COUNT(*) {joined} {TUMBLING}")
    rig.create("rows", f"SELECT A.k {joined} {TUMBLING}")
    for id in ("q", "all", "rows"):
        rig.control(ForceOrder(id, order))
    rig.control(ScaleTo(3))
    rig.control(SplitPartition(0, 2))
    for first in (0, 4):
        for name in "ABCD":
            rig.epoch({name: [t(first + i % 5, k=i % 2, v=i % 4) for i in range(9)]})
    rig.epoch(watermark=100)
    (whole,) = rig.rows("all")
    assert whole == (0, 10, 0, len(rig.rows("rows")))
    (some,) = rig.rows("q")
    assert 0 < some[3] < whole[3]


def test_only_complete_windows_after_creation_and_nothing_after_deletion(tmp_path):
    rig = rig_of(tmp_path)
    rig.epoch({"A": [t(5)], "B": [t(5)]})
    assert rig.create("q", f"{TWO} {TUMBLING}").active_from == 10
    rig.epoch({"A": [t(6), t(12)], "B": [t(6), t(12)]})
    rig.epoch({"A": [t(20), t(21)], "B": [t(20)]})
    assert rig.delivered() == {"q": [(10, 20, 0, 1)]}
    rig.delete("q")
    rig.epoch(watermark=100)
    assert rig.rows("q") == [(10, 20, 0, 1)]
    assert rig.engine.state.partials == {}


class PowerCut(BaseException):
    """The process is gone; nothing may catch it."""


class Interrupted(LocalExecutor):
    """Fails after a stage when told to, as a machine that goes down would."""

    armed: str | None = None

    def run(self, name, stage, shared, tasks):
        done = super().run(name, stage, shared, tasks)
        if self.armed is not None and self.armed in name:
            raise PowerCut
        return done


@pytest.mark.parametrize("stage", ["join", "close"])
def test_a_crash_in_the_closing_epoch_delivers_each_row_once(tmp_path, stage):
    executor = Interrupted()
    rig = rig_of(tmp_path, executor=executor, lateness=100)
    rig.create("q", f"{TWO} {TUMBLING}")
    rig.epoch({"A": [t(1)], "B": [t(2)]})
    executor.armed = stage
    with pytest.raises(PowerCut):
        rig.epoch({"A": [t(3), t(20)], "B": [t(4), t(20)]})
    executor.armed = None
    rig.reopen(kill=True)
    assert rig.rows("q") == [(0, 10, 0, 4)]
    rig.reopen(kill=False)  # from a snapshot
    rig.epoch({"A": [t(3)]})
    assert rig.rows("q") == [(0, 10, 0, 4), (0, 10, 1, 6)]


def test_a_stream_that_comes_back_from_idling_changes_no_closed_window(tmp_path):
    rig = Rig(tmp_path)
    rig.stream("A", k="BIGINT")
    rig.stream("B", k="BIGINT", idle=5)
    rig.create("q", f"SELECT COUNT(*) FROM A JOIN B ON A.k = B.k {TUMBLING}")
    rig.epoch({"A": [(1, 1)], "B": [(1, 2)]})
    rig.clock.now = 10
    rig.epoch({"A": [(1, 25)]})  # B is idle: A alone moves the query's time to 25
    assert rig.rows("q") == [(0, 10, 0, 1)]
    rig.epoch({"B": [(1, 3), (1, 22)]})
    rig.epoch(watermark=100)
    assert rig.rows("q") == [(0, 10, 0, 1), (20, 30, 0, 1)]
