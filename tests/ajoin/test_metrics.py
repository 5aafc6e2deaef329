"""Metrics as Prometheus reads them, and the log as programs read it."""

from __future__ import annotations

import json
import logging
import re
import urllib.request
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from ajoin import errors
from ajoin.platform.logs import FIELDS, JsonFormatter, handler
from ajoin.platform.metrics import PlatformCollector, query_metrics, serve_metrics, status_metrics, stream_metrics
from optimizer.model.types import StreamSchema
from runtime.api import PlatformStatus, QueryInfo, QueryState, SinkStatus, StreamInfo
from runtime.connectors.base import ConnectorSpec
from tests.ajoin.world import JOIN, World, running, with_streams
from tests.tools.docs import ROOT

STATUS = PlatformStatus("RUNNING", 7, 3, 2, 1, 500, 60, 4, 1000, 0.25, 9.5, {"join": 1.5, "source": 2.0})
LATE = SinkStatus("q", "q#1", 1, "kafka", epochs_behind=7, error="no broker", failing_since_ms=1)
HEAVY = QueryInfo(
    "heavy", "heavy#1", "", QueryState.RUNNING, None, None, 500, 9, 1, 1, 0, lag_ms=2_500, epochs_behind=12
)


def parsed(text: str) -> dict[tuple[str, str], float]:
    """Samples by name and label, read as Prometheus reads them."""
    samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert (family.type == "counter") == sample.name.endswith("_total")
            label = ",".join(sample.labels.values())
            assert (sample.name, label) not in samples
            samples[sample.name, label] = sample.value
    return samples


class Given(Collector):
    def __init__(
        self, status: PlatformStatus, streams: tuple[StreamInfo, ...], behind: tuple[QueryInfo, ...] = ()
    ) -> None:
        self._status, self._streams, self._behind = status, streams, behind

    def collect(self) -> list[Metric]:
        return [
            *status_metrics(self._status),
            *stream_metrics(self._streams),
            *query_metrics(self._behind, self._behind),
        ]


def exposed(
    *streams: StreamInfo, status: PlatformStatus = STATUS, behind: tuple[QueryInfo, ...] = ()
) -> dict[tuple[str, str], float]:
    registry = CollectorRegistry()
    registry.register(Given(status, streams, behind))
    return parsed(generate_latest(registry).decode())


def stream(name: str, **values) -> StreamInfo:
    return StreamInfo(StreamSchema(name, (), "ts"), ConnectorSpec("push"), **values)


def test_what_is_told():
    behind = stream("V", tuples=300, late_dropped=2, dead_letter=1, backlog=40, throttled=True, lag_ms=1500)
    samples = exposed(behind, stream("W", tuples=200))
    assert samples["ajoin_state", "RUNNING"] == 1
    assert sum(v for (name, _), v in samples.items() if name == "ajoin_state") == 1
    assert samples["ajoin_epochs_total", ""] == 7 and samples["ajoin_rows_total", ""] == 60
    assert samples["ajoin_stage_seconds_total", "join"] == 1.5
    assert samples["ajoin_tuples_total", "V"] == 300
    assert samples["ajoin_late_dropped_total", "V"] == 2 and samples["ajoin_dead_letters_total", "V"] == 1
    assert samples["ajoin_backlog", "V"] == 40
    assert samples["ajoin_throttled", "V"] == 1 and samples["ajoin_throttled", "W"] == 0
    assert samples["ajoin_watermark_lag_seconds", "V"] == 1.5
    assert ("ajoin_watermark_lag_seconds", "W") not in samples


@pytest.mark.parametrize("name", ['a"b', "a\\", "a\nb", "ünï", 'x"} 1\nfake 2'])
def test_a_stream_s_name_cannot_break_the_format(name):
    samples = exposed(stream(name, tuples=5))
    assert samples["ajoin_tuples_total", name] == 5 and ("fake", "") not in samples


def test_the_documented_names_are_there():
    page = (ROOT / "docs/operations.md").read_text(encoding="utf-8").split("## Metrics and logs")[1]
    documented = set(re.findall(r"`(ajoin_\w+)`", page))
    v = stream("V", lag_ms=1, latency_ms=1)
    samples = exposed(v, status=replace(STATUS, sinks_behind=(LATE,)), behind=(HEAVY,))
    told = {name for name, _ in samples}
    assert {name for name in documented if not name.startswith("ajoin_control_")} <= told and len(documented) > 15


def test_only_sinks_that_are_behind_are_named():
    samples = exposed(status=replace(STATUS, sinks=3, sinks_behind=(LATE,)))
    assert samples["ajoin_sinks", ""] == 3
    named = {key: value for key, value in samples.items() if key[0] == "ajoin_sink_epochs_behind"}
    assert named == {("ajoin_sink_epochs_behind", "kafka,q,1"): 7}


def test_queries_that_are_behind_are_named():
    samples = exposed(behind=(HEAVY, replace(HEAVY, id="new", lag_ms=None, epochs_behind=1)))
    assert samples["ajoin_query_epochs_behind", "heavy"] == 12 and samples["ajoin_query_lag_seconds", "heavy"] == 2.5
    assert samples["ajoin_query_epochs_behind", "new"] == 1 and ("ajoin_query_lag_seconds", "new") not in samples


def test_a_scrape(tmp_path):
    with with_streams(tmp_path / "s") as world, serving(world) as address:
        world.client.create_query(JOIN, id="a-query")
        world.feed({"V": [{"ts": 1, "vID": 1, "geo": "x"}], "W": [{"ts": 2, "vID": 1, "usrID": 5}]})
        with urllib.request.urlopen(f"http://{address}/metrics") as answer:
            assert answer.headers["Content-Type"] == CONTENT_TYPE_PLAIN_0_0_4
            text = answer.read().decode()
        samples = parsed(text)
        assert samples["ajoin_queries", ""] == 1 and samples["ajoin_rows_total", ""] == 1
        assert samples["ajoin_tuples_total", "V"] == 1
        assert samples["process_resident_memory_bytes", ""] > 1 << 20 and samples["process_open_fds", ""] > 3
        assert "a-query" not in text, "queries are no labels"


def test_two_platforms_of_one_process_have_metrics_of_their_own(tmp_path):
    with running(tmp_path / "a") as a, with_streams(tmp_path / "b") as b, serving(a) as first, serving(b) as second:
        counts = []
        for address in (first, second):
            with urllib.request.urlopen(f"http://{address}/metrics") as answer:
                counts.append(parsed(answer.read().decode())["ajoin_streams", ""])
    assert counts == [0, 2]


def test_a_taken_port_is_a_clear_error(tmp_path):
    with running(tmp_path / "s") as world, serving(world) as first:
        port = int(first.rpartition(":")[2])
        with pytest.raises(errors.FailedPrecondition) as refused, serving(world, port):
            pass
        assert refused.value.reason == "ADDRESS_IN_USE"


def serving(world: World, port: int = 0) -> AbstractContextManager[str]:
    return serve_metrics("127.0.0.1", port, PlatformCollector(world.platform))


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
