"""Metrics as Prometheus reads them, and the log as programs read it."""

from __future__ import annotations

import json
import logging
import re
import urllib.error
import urllib.request
from dataclasses import replace

import pytest

from ajoin import errors
from ajoin.platform.logs import FIELDS, JsonFormatter, handler
from ajoin.platform.metrics import CONTENT_TYPE, MetricsServer, process_metrics, render
from optimizer.model.types import StreamSchema
from runtime.api import PlatformStatus, SinkStatus, StreamInfo
from runtime.connectors.base import ConnectorSpec
from tests.ajoin.world import JOIN, running, with_streams

SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z]+="(?:[^"\\\n]|\\[\\"n])*",?)*)\})? (-?[0-9.e+-]+)')
STATUS = PlatformStatus("RUNNING", 7, 3, 2, 1, 500, 60, 4, 1000, 0.25, 9.5, {"join": 1.5, "source": 2.0})


def parsed(text: str) -> dict[tuple[str, str], float]:
    """Samples by name and labels; every line must be one, or belong to the header of one."""
    samples, typed, seen = {}, {}, set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in typed, "one header for each metric"
            typed[name] = kind
        elif not line.startswith("# HELP "):
            match = SAMPLE.fullmatch(line)
            assert match, line
            name, labels, value = match.groups()
            assert (typed[name] == "counter") == name.endswith("_total")
            samples[name, labels or ""] = float(value)
            seen.add(name)
    assert text.endswith("\n")
    return samples


def stream(name: str, **values) -> StreamInfo:
    return StreamInfo(StreamSchema(name, (), "ts"), ConnectorSpec("push"), **values)


def test_the_text_format():
    behind = stream("V", tuples=300, late_dropped=2, dead_letter=1, backlog=40, throttled=True, lag_ms=1500)
    samples = parsed(render(STATUS, [behind, stream("W", tuples=200)]))
    assert samples["ajoin_state", 'state="RUNNING"'] == 1
    assert sum(v for (name, _), v in samples.items() if name == "ajoin_state") == 1
    assert samples["ajoin_epochs_total", ""] == 7 and samples["ajoin_rows_total", ""] == 60
    assert samples["ajoin_stage_seconds_total", 'stage="join"'] == 1.5
    assert samples["ajoin_tuples_total", 'stream="V"'] == 300
    assert samples["ajoin_backlog", 'stream="V"'] == 40
    assert samples["ajoin_throttled", 'stream="V"'] == 1 and samples["ajoin_throttled", 'stream="W"'] == 0
    assert samples["ajoin_watermark_lag_seconds", 'stream="V"'] == 1.5
    assert ("ajoin_watermark_lag_seconds", 'stream="W"') not in samples


@pytest.mark.parametrize("name", ['a"b', "a\\", "a\nb", "ünï", 'x"} 1\nfake 2'])
def test_a_stream_s_name_cannot_break_the_format(name):
    samples = parsed(render(STATUS, [stream(name, tuples=5)]))
    escaped = name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    assert samples["ajoin_tuples_total", f'stream="{escaped}"'] == 5


def test_only_sinks_that_are_behind_are_named():
    late = SinkStatus("q", "q#1", 1, "kafka", epochs_behind=7, error="no broker", failing_since_ms=1)
    samples = parsed(render(replace(STATUS, sinks=3, sinks_behind=(late,)), []))
    assert samples["ajoin_sinks", ""] == 3
    named = {key: value for key, value in samples.items() if key[0] == "ajoin_sink_epochs_behind"}
    assert list(named.values()) == [7]
    ((_, labels),) = named
    assert set(labels.split(",")) == {'query="q"', 'sink="1"', 'kind="kafka"'}


def test_a_scrape(tmp_path):
    with with_streams(tmp_path / "s") as world, MetricsServer(world.platform, "127.0.0.1", 0) as metrics:
        world.client.create_query(JOIN, id="a-query")
        world.feed({"V": [{"ts": 1, "vID": 1, "geo": "x"}], "W": [{"ts": 2, "vID": 1, "usrID": 5}]})
        with urllib.request.urlopen(f"http://{metrics.address}/metrics") as answer:
            assert answer.headers["Content-Type"] == CONTENT_TYPE
            text = answer.read().decode()
        samples = parsed(text)
        assert samples["ajoin_queries", ""] == 1 and samples["ajoin_rows_total", ""] == 1
        assert samples["ajoin_tuples_total", 'stream="V"'] == 1
        assert samples["process_resident_memory_bytes", ""] > 1 << 20 and samples["process_open_fds", ""] > 3
        assert "a-query" not in text, "queries are no labels"
        with pytest.raises(urllib.error.HTTPError) as other:
            urllib.request.urlopen(f"http://{metrics.address}/")
        assert other.value.code == 404


def test_a_taken_port_is_a_clear_error(tmp_path):
    with running(tmp_path / "s") as world, MetricsServer(world.platform, "127.0.0.1", 0) as first:
        port = int(first.address.rpartition(":")[2])
        with pytest.raises(errors.FailedPrecondition) as refused:
            MetricsServer(world.platform, "127.0.0.1", port)
        assert refused.value.reason == "ADDRESS_IN_USE"


def test_where_the_system_does_not_tell_there_are_no_process_metrics(tmp_path):
    assert process_metrics(tmp_path) == []


# -- the log ------------------------------------------------------------------------------------------------


def logged(**options) -> dict:
    record = logging.LogRecord("ajoin.x", logging.WARNING, "f.py", 1, "n is %d", (5,), options.pop("exc_info", None))
    vars(record).update(options)
    line = JsonFormatter().format(record)
    assert "\n" not in line
    return json.loads(line)


def test_a_json_line_has_stable_keys():
    made = logged()
    assert set(made) == {"time", "level", "logger", "thread", "message"}
    assert (made["level"], made["logger"], made["message"]) == ("warning", "ajoin.x", "n is 5")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", made["time"])


def test_a_line_says_what_it_is_about_and_nothing_unknown():
    made = logged(**dict.fromkeys(FIELDS, 3), other=1)
    assert {name: made[name] for name in FIELDS} == dict.fromkeys(FIELDS, 3) and "other" not in made


def test_an_error_keeps_its_traceback_on_one_line():
    try:
        raise ValueError("two\nlines")
    except ValueError as failure:
        made = logged(exc_info=(ValueError, failure, failure.__traceback__))
    assert made["error"] == "ValueError: two\nlines" and "test_metrics.py" in made["traceback"]


def test_text_is_the_other_format():
    record = logging.LogRecord("ajoin.x", logging.INFO, "f.py", 1, "hello", (), None)
    assert handler("text").format(record).endswith("INFO    ajoin.x hello")
    assert json.loads(handler("json").format(record))["message"] == "hello"
