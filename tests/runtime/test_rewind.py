"""A stream is moved back: a poisoned watermark where nobody has acted on it, or the place it is read from."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from optimizer.errors import FailedPrecondition, InvalidRequest, NotFound
from runtime.api import ResumeQuery, SuspendQuery
from runtime.connectors.base import ConnectorSpec
from runtime.control.invariants import validate_state
from runtime.crashpoints import Crashed, arm
from tests.runtime.rig import Rig

JOIN = "SELECT A.n AS a, B.n AS b FROM A JOIN B ON A.k = B.k WINDOW TUMBLING (SIZE 1 SECOND)"
SELF = "SELECT X.n AS a, Y.n AS b FROM A AS X JOIN A AS Y ON X.k = Y.k WINDOW TUMBLING (SIZE 1 SECOND)"
COUNT = "SELECT COUNT(*) AS many FROM A JOIN B ON A.k = B.k WINDOW TUMBLING (SIZE 1 SECOND)"
YEAR_9999 = 253_402_300_799_000


@pytest.fixture
def rig(tmp_path):
    rig = Rig(tmp_path, partitions=1)
    for name in "ABC":
        rig.stream(name, k="BIGINT", n="INT")
    return rig


def poisoned(rig, *queries):
    """B stands at second 4, and A in the year 9999."""
    for number, sql in enumerate(queries):
        rig.create(f"q{number}", sql)
    rig.epoch({"A": [(1, 1, 3900)], "B": [(1, 2, 3950), (1, 3, 4000)]})
    rig.epoch({"A": [(7, 9, YEAR_9999)]})
    assert rig.engine.stream("A").watermark == YEAR_9999
    rig.epoch({"A": [(1, 4, 4200)]})
    assert rig.engine.stream("A").late_dropped == 1


def reset(rig, to, stream="A"):
    info = rig.engine.reset_watermark(stream, to)
    validate_state(rig.engine.state)
    assert (info.watermark, info.max_event_time) == (to, to)
    return info


def refused(rig, to, stream="A"):
    before = rig.engine.state
    with pytest.raises(FailedPrecondition) as why:
        rig.engine.reset_watermark(stream, to)
    assert rig.engine.state is before
    return why.value


@pytest.mark.parametrize("kill", [True, False])
def test_a_poisoned_watermark_goes_back_and_rows_go_on(rig, kill):
    poisoned(rig, JOIN, COUNT)
    reset(rig, 4000)
    rig.reopen(kill=kill)
    assert rig.engine.stream("A").watermark == 4000, "it is in the log"
    rig.epoch({"A": [(1, 5, 4300), (1, 6, 5100)], "B": [(1, 7, 4400), (1, 8, 5200)]})
    rig.epoch(watermark=6000)
    rows = [(3000, 4000, 1, 2), (4000, 5000, 5, 3), (4000, 5000, 5, 7), (5000, 6000, 6, 8)]
    assert rig.rows("q0") == rows, "also with the tuple that B brought before"
    assert [r[:2] + r[-1:] for r in rig.rows("q1")] == [(3000, 4000, 1), (4000, 5000, 2), (5000, 6000, 1)]
    assert rig.engine.stream("A").late_dropped == 1, "what came too late stays dropped"


def test_windows_that_are_closed_stay_closed(rig):
    poisoned(rig, JOIN)
    why = refused(rig, 3999)
    assert why.reason == "WATERMARK_IN_USE"
    assert "'q0' has closed its window from 1970-01-01 00:00:03.000 to 1970-01-01 00:00:04.000" in why.message
    assert "(4000) is possible" in why.hint
    rig.epoch({"B": [(1, 1, 4999)]})
    reset(rig, 4100)
    assert rig.engine.query("q0").watermark == 4100, "lower than before, but no window lies in between"
    rig.epoch({"A": [(1, 1, 4100)]})
    assert (4000, 5000, 1, 1) in rig.rows("q0")


def test_a_query_that_has_gone_along_cannot_go_back(rig):
    poisoned(rig, SELF)
    why = refused(rig, 5000)
    assert why.reason == "WATERMARK_IN_USE"
    assert "suspend or delete query 'q0'" in why.hint and "possible" not in why.hint
    rig.control(SuspendQuery("q0", "it has seen the year 9999"))
    reset(rig, 5000)
    again = rig.control(ResumeQuery("q0"))
    assert again.active_from == 6000
    rig.epoch({"A": [(1, 1, 6100), (1, 2, 6200)]})
    assert len(rig.rows("q0")) == 4


@pytest.mark.parametrize("window", ["SESSION (1 SECOND)", "COUNT (SIZE 2)", "PUNCTUATED BY (n = 1)"])
def test_windows_that_follow_from_tuples_let_nothing_go_back(rig, window):
    poisoned(rig, f"SELECT k, COUNT(*) AS many FROM A GROUP BY k WINDOW {window}")
    why = refused(rig, 4000)
    assert why.reason == "WATERMARK_IN_USE"
    assert "'q0' has closed windows up to 9999-12-31 23:59:59.000; where its windows lie follows" in why.message
    assert "from 1970" not in why.message, "4 s and the year 9999 bound no window"
    rig.delete("q0")
    reset(rig, 4000)


def test_a_query_that_begins_later_has_closed_nothing(rig):
    """Created when A was poisoned already, its first window lies in the year 9999."""
    poisoned(rig)
    rig.create("late", SELF)
    assert rig.engine.query("late").active_from > YEAR_9999
    reset(rig, 4000)


def test_state_that_is_gone_stays_gone(tmp_path):
    """With a lateness, a watermark that opens no window could still let tuples into dead ones."""
    rig = Rig(tmp_path, partitions=1)
    rig.stream("A", k="BIGINT", n="INT", lateness=2000)
    rig.stream("B", k="BIGINT", n="INT")
    poisoned(rig, JOIN)
    rig.epoch({"B": [(1, 1, 9000)]})
    why = refused(rig, 9000)
    assert "does not have the tuples for it any more" in why.message and "(11000) is possible" in why.hint
    assert refused(rig, 10_999).reason == "WATERMARK_IN_USE"
    reset(rig, 11_000)
    rig.epoch({"A": [(1, 5, 9000), (1, 6, 8999)]})
    assert rig.engine.stream("A").late_dropped == 2, "the one before the reset, and the one before 9000"
    assert (9000, 10_000, 5, 1) in rig.rows("q0")


def test_only_back(rig):
    assert refused(rig, 5).reason == "WATERMARK_NOT_BACK"
    poisoned(rig)
    assert refused(rig, YEAR_9999).reason == "WATERMARK_NOT_BACK"
    with pytest.raises(InvalidRequest):
        rig.engine.reset_watermark("A", -(1 << 60))
    with pytest.raises(NotFound):
        rig.engine.reset_watermark("nowhere", 5)
    reset(rig, -5000)


def test_a_watermark_that_waits_to_be_raised_is_forgotten(rig):
    rig.epoch({"A": [(1, 1, 5000)]})
    rig.engine.raise_watermark("A", YEAR_9999)
    reset(rig, 4000)
    rig.epoch()
    assert rig.engine.stream("A").watermark == 4000


def test_an_epoch_that_was_planned_raises_it_no_more(rig):
    rig.epoch({"A": [(1, 1, 5000)]})
    with arm("epoch.planned"), pytest.raises(Crashed):
        rig.epoch({"A": [(1, 1, 5100)]}, watermark=YEAR_9999)
    rig.local.config = replace(rig.config, finish_on_open=False)
    rig.reopen()
    assert rig.engine.state.planned is not None
    reset(rig, 4000)
    rig.epoch()
    assert rig.engine.stream("A").watermark == 5100 and rig.engine.stream("B").watermark == YEAR_9999


# -- restarts -----------------------------------------------------------------------------------------------------

GENERATOR = {"rate": "max", "batch": "10", "event_rate": "10", "limit": "40", "column.k": "const(1)", "column.n": "seq"}


@pytest.fixture
def generated(tmp_path):
    """Two streams of 40 tuples, 10 per epoch; the query joins them."""
    rig = Rig(tmp_path, partitions=1)
    for name in "AB":
        rig.stream(name, ConnectorSpec("generator", tuple(GENERATOR.items())), k="BIGINT", n="INT")
    rig.create("q", JOIN)
    rig.epoch()
    rig.epoch()
    return rig


def test_a_stream_in_use_is_not_restarted(generated):
    with pytest.raises(FailedPrecondition, match="running queries: q") as why:
        generated.engine.restart_stream("A", "earliest")
    assert why.value.reason == "STREAM_IN_USE" and "suspend" in why.value.hint


@pytest.mark.parametrize("kill", [True, False])
def test_a_restarted_stream_is_as_new(generated, kill):
    rig = generated
    rig.control(SuspendQuery("q", "to read again"))
    for name in "AB":
        info = rig.engine.restart_stream(name, "earliest")
        assert (info.watermark, info.max_event_time, info.tuples) == (None, None, 20)
    validate_state(rig.engine.state)
    rig.reopen(kill=kill)
    assert rig.control(ResumeQuery("q")).active_from is None, "all windows count again"
    for _ in range(5):
        rig.epoch()
    assert len(rig.rows("q")) == 400, "four windows of 10 times 10"
    assert rig.engine.stream("A").tuples == 60 and rig.engine.stream("A").late_dropped == 0


def test_where_it_stands(generated):
    rig = generated
    rig.delete("q")
    rig.engine.restart_stream("A")
    assert rig.engine.stream("A").watermark is None
    rig.epoch()
    assert rig.engine.stream("A").tuples == 30 and rig.engine.stream("A").max_event_time == 2900


def test_at_an_offset_also_in_the_middle_of_a_planned_epoch(generated):
    rig = generated
    rig.delete("q")
    with arm("epoch.source"), pytest.raises(Crashed):
        rig.epoch()
    rig.local.config = replace(rig.config, finish_on_open=False)
    rig.reopen()
    rig.engine.restart_stream("A", "15")
    rig.epoch()
    assert rig.engine.stream("A").tuples == 20 and rig.engine.stream("B").tuples == 30, "the planned epoch, without A"
    rig.epoch()
    assert rig.engine.stream("A").tuples == 30 and rig.engine.stream("A").max_event_time == 2400


@pytest.mark.parametrize("at", ["41", "-1", "yesterday", "1.5", " ", "9" * 5000])
def test_an_offset_that_is_none_changes_nothing(generated, at):
    rig = generated
    rig.delete("q")
    before = rig.engine.state
    with pytest.raises(InvalidRequest) as why:
        rig.engine.restart_stream("A", at)
    assert why.value.reason == "BAD_OFFSET" and rig.engine.state is before


def test_pushed_batches_that_are_still_there(rig):
    rig.create("q", JOIN)
    rig.epoch({"A": [(1, 1, 100)]})
    rig.epoch({"A": [(1, 2, 200)]})
    rig.delete("q")
    rig.engine.restart_stream("A", "1")
    rig.epoch()
    assert rig.engine.stream("A").tuples == 3 and rig.engine.stream("A").max_event_time == 200
    with pytest.raises(InvalidRequest, match="from 2 to 2"):
        rig.engine.restart_stream("A", "0")
    rig.engine.restart_stream("A", "latest")
    rig.epoch({"A": [(1, 3, 50)]})
    assert rig.engine.stream("A").watermark == 50


@pytest.mark.parametrize("kill", [None, True, False])
def test_others_do_not_notice_a_restart(tmp_path, kill):
    three = "SELECT A.n AS a, C.n AS c FROM A JOIN B ON A.k = B.k JOIN C ON B.j = C.j WINDOW TUMBLING (SIZE 2 SECONDS)"
    two = "SELECT B.n AS b, C.n AS c FROM B JOIN C ON B.j = C.j WINDOW TUMBLING (SIZE 2 SECONDS)"
    options = GENERATOR | {"column.k": "uniform(0,3)", "column.j": "uniform(0,3)"}

    def life(folder, restarted):
        rig = Rig(folder)
        for name in "ABC":
            rig.stream(name, ConnectorSpec("generator", tuple(options.items())), k="BIGINT", j="BIGINT", n="INT")
        rig.create("three", three)
        rig.create("two", two)
        rig.epoch()
        rig.epoch()
        rig.control(SuspendQuery("three", "to read again"))
        if restarted:
            rig.engine.restart_stream("A", "earliest")
            if kill is not None:
                rig.reopen(kill=kill)
            validate_state(rig.engine.state)
        rig.control(ResumeQuery("three"))
        for _ in range(4):
            rig.epoch()
            validate_state(rig.engine.state)
        return rig

    rig = life(tmp_path / "restarted", True)
    assert rig.rows("two") == life(tmp_path / "plain", False).rows("two") != []
    assert rig.engine.stream("A").tuples == 60 and rig.rows("three")


def test_both_survive_the_loss_of_the_machine(tmp_path):
    rig = Rig(tmp_path / "state", store=str(tmp_path / "store"))
    for name in "AB":
        rig.stream(name, k="BIGINT", n="INT")
    poisoned(rig, JOIN)
    reset(rig, 4000)
    rig.engine.raise_watermark("B", YEAR_9999)
    rig.epoch({"A": [(1, 5, 4300)]})
    assert rig.rows("q0")[-1] == (4000, 5000, 5, 3)
    rig.control(SuspendQuery("q0", "B is poisoned, too"))
    rig.engine.restart_stream("B")
    rig.engine.abandon()
    shutil.rmtree(tmp_path / "state")
    rig.engine = rig._open()
    assert rig.engine.stream("A").watermark == 4300 and rig.engine.stream("B").watermark is None
    assert rig.control(ResumeQuery("q0")).active_from == 5000
    rig.epoch({"A": [(1, 6, 5100)], "B": [(1, 7, 5200)]})
    assert rig.rows("q0") == [(5000, 6000, 6, 7)]
