"""Back-pressure: an epoch reads only so much, the rest waits, is counted, and comes later; nothing is lost."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from runtime.connectors.base import ConnectorSpec
from runtime.connectors.files import FilesSource
from runtime.connectors.files import parse_config as files_config
from runtime.connectors.generator import GeneratorSource
from runtime.connectors.generator import parse_config as generator_config
from runtime.connectors.push import PushSource
from runtime.engine.pressure import WALL_CLOCK_LIKE_MS, Gauges, Pressure, lag_ms
from tests.runtime.rig import Rig

START = {"n": 0, "t0": 0}


def generator(**options: str) -> GeneratorSource:
    return GeneratorSource(generator_config(options, None))


@given(
    st.integers(1, 50), st.integers(1, 5000), st.integers(0, 200), st.none() | st.integers(0, 300), st.integers(0, 60)
)
def test_a_generator_s_backlog_is_what_later_epochs_read_at_the_same_time(batch, now, n, limit, rate):
    options = {"rate": str(max(rate, 1)), "batch": str(batch)} | ({} if limit is None else {"limit": str(limit)})
    source = generator(**options)
    place = {"n": n, "t0": 0}
    left = source.backlog(place, now)
    place = source.latest(place, now)
    read = 0
    while (after := source.latest(place, now)) != place:
        read += after["n"] - place["n"]
        place = after
    assert left == read


def test_a_generator_without_a_rate_is_never_behind():
    assert generator(rate="max", batch="10").backlog(START, 10**9) == 0


def test_files_that_do_not_fit_are_the_backlog(tmp_path: Path):
    data = tmp_path / "data"
    data.mkdir()
    for i in range(7):
        (data / f"{i}.jsonl").write_text(json.dumps({"ts": i}) + "\n")
    source = FilesSource(files_config({"path": str(data), "max_files": "3"}), tmp_path / "state")
    left = []
    place = 0
    for _ in range(4):
        after = source.latest(place, 0)
        left.append(source.backlog(place, 0))
        place = after
    assert left == [4, 1, 0, 0] and place == 7
    again = FilesSource(files_config({"path": str(data), "max_files": "3"}), tmp_path / "state")
    assert again.latest(0, 0) == 3 and again.backlog(0, 0) == 4, "what the ledger holds beyond the epoch waits too"


def test_an_epoch_takes_all_that_was_pushed(tmp_path: Path):
    source = PushSource(tmp_path / "push")
    for _ in range(5):
        source.append_rows([{"ts": 1}])
    assert source.latest(0, 0) == 5 and source.backlog(0, 0) == 0


def test_gauges_belong_to_the_committed_epoch():
    pressure = Pressure()
    pressure.planned(1, {"V": 5, "W": 0})
    assert pressure.gauges == Gauges()
    pressure.planned(2, {"V": 3, "W": 0})  # read ahead
    assert pressure.committed(1, 2.0) == Gauges(2.0, {"V": 5, "W": 0})
    assert pressure.gauges.throttled == ("V",)
    pressure.planned(2, {"V": 0, "W": 0})  # thrown away and chosen again
    assert pressure.committed(2, 0.5) == Gauges(0.5, {"V": 0, "W": 0})


def test_lag_is_told_where_event_time_is_wall_clock_time():
    now = 1_700_000_000_000
    assert lag_ms(now, now - 1500) == 1500
    assert lag_ms(now, now + 1500) == 0
    assert lag_ms(now, None) is None
    assert lag_ms(now, 5000) is None
    assert lag_ms(now, now - WALL_CLOCK_LIKE_MS - 1) is None


def test_an_engine_that_is_behind_says_so_and_catches_up(tmp_path: Path):
    rig = Rig(tmp_path)
    options = {"rate": "1000", "batch": "100", "limit": "1000", "start_ms": "now"}
    rig.clock.now = 1_700_000_000_000
    rig.stream("A", ConnectorSpec("generator", tuple(options.items())), k="BIGINT")
    rig.epoch()
    rig.clock.now += 10_000
    told = []
    while rig.engine.has_input():
        report = rig.epoch()
        info, status = rig.engine.stream("A"), rig.engine.status()
        assert info.throttled == (report.throttled == ("A",)) == (status.throttled == ("A",)) == (info.backlog > 0)
        assert status.backlog == {"A": info.backlog} and info.backlog_unit == "tuples"
        assert status.latency_seconds == report.latency_seconds > 0
        told.append(info.backlog)
    assert told == [899, 799, 699, 599, 499, 399, 299, 199, 99, 0]
    assert rig.engine.stream("A").tuples == 1000, "nothing is dropped"
    assert rig.engine.stream("A").lag_ms == rig.engine.status().lag_ms == 10_000 - 999
    rig.engine.close()
