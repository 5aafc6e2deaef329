"""Metrics for Prometheus: what `ajoin status` says, in the text format, over HTTP.

    ajoin serve --set metrics_port=9411        then scrape http://127.0.0.1:9411/metrics

Labels are streams, stages and states, of which there are few. Queries come and go by the thousand, and every label
value is a time series that Prometheus keeps for weeks, so no metric has a label per query, except that sinks which are
behind are named; `ajoin query show` and GetStatistics tell about one query. The port asks nobody who they are. It is
off by default and, when it is on, listens on this machine only unless `metrics_host` says otherwise.

`render` is pure. The server has threads of its own and only reads what is committed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal

from ajoin.platform.platform import Platform, State
from optimizer.errors import FailedPrecondition
from runtime.api import PlatformStatus, StreamInfo

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PATH = "/metrics"


@dataclass(frozen=True, slots=True)
class Metric:
    """`samples`: labels and value; names of counters end in _total."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    samples: tuple[tuple[Mapping[str, str], float], ...]

    def lines(self) -> Iterator[str]:
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} {self.kind}"
        for labels, value in self.samples:
            inside = ",".join(f'{key}="{_escape(text)}"' for key, text in labels.items())
            yield f"{self.name}{{{inside}}} {_number(value)}" if inside else f"{self.name} {_number(value)}"


def render(status: PlatformStatus, streams: Iterable[StreamInfo], process: Iterable[Metric] = ()) -> str:
    metrics = [*_platform(status), *_streams(list(streams)), *process]
    return "".join(f"{line}\n" for metric in metrics for line in metric.lines())


def _platform(s: PlatformStatus) -> list[Metric]:
    def one(name: str, kind: Literal["gauge", "counter"], help: str, value: float) -> Metric:
        return Metric(name, kind, help, (({}, value),))

    return [
        Metric(
            "ajoin_state",
            "gauge",
            "1 for the state the platform is in.",
            tuple(({"state": state.value}, float(s.state == state.value)) for state in State),
        ),
        one("ajoin_epochs_total", "counter", "Epochs committed since the state directory was created.", s.epoch),
        one("ajoin_epoch_seconds", "gauge", "Seconds the last epoch took.", s.epoch_seconds),
        one("ajoin_latency_seconds", "gauge", "Seconds from reading to commit, for the last epoch.", s.latency_seconds),
        one("ajoin_plan_version", "gauge", "Version of the shared plan.", s.plan_version),
        one("ajoin_streams", "gauge", "Streams.", s.streams),
        one("ajoin_queries", "gauge", "Running queries.", s.queries),
        one("ajoin_rows_total", "counter", "Rows delivered, for all queries together.", s.rows),
        one("ajoin_buckets", "gauge", "Buckets kept for open windows.", s.buckets),
        one("ajoin_bucket_bytes", "gauge", "Bytes of these buckets.", s.bucket_bytes),
        one("ajoin_recovery_seconds", "gauge", "Seconds the last start took.", s.recovery_seconds),
        one("ajoin_recovery_records", "gauge", "Log records the last start had to read.", s.recovery_records),
        one("ajoin_fast_bytes", "gauge", "Bytes in the state directory, with a durable tier.", s.fast_bytes),
        one("ajoin_durable_bytes", "gauge", "Bytes in the durable tier.", s.durable_bytes),
        one("ajoin_upload_seconds", "gauge", "Seconds of the last epoch's upload.", s.upload_seconds),
        one("ajoin_sinks", "gauge", "Sinks that get rows.", s.sinks),
        Metric(
            "ajoin_sink_epochs_behind",
            "gauge",
            "Epochs a sink lacks; only of sinks that fail or lack more than the newest.",
            tuple(
                ({"query": b.query_id, "sink": str(b.number), "kind": b.kind}, b.epochs_behind) for b in s.sinks_behind
            ),
        ),
        one("ajoin_uptime_seconds", "gauge", "Seconds since the platform was started.", s.uptime_seconds),
        Metric(
            "ajoin_stage_seconds_total",
            "counter",
            "Seconds spent, by stage.",
            tuple(({"stage": stage}, seconds) for stage, seconds in sorted(s.stage_seconds.items())),
        ),
    ]


def _streams(streams: list[StreamInfo]) -> list[Metric]:
    def each(name: str, kind: Literal["gauge", "counter"], help: str, values: Iterable[float | None]) -> Metric:
        named = zip(streams, values, strict=True)
        return Metric(name, kind, help, tuple(({"stream": s.schema.name}, v) for s, v in named if v is not None))

    return [
        each("ajoin_tuples_total", "counter", "Tuples accepted.", [s.tuples for s in streams]),
        each("ajoin_late_dropped_total", "counter", "Tuples too late to be used.", [s.late_dropped for s in streams]),
        each("ajoin_dead_letters_total", "counter", "Tuples that could not be read.", [s.dead_letter for s in streams]),
        each("ajoin_backlog", "gauge", "What did not fit into the last epoch.", [s.backlog for s in streams]),
        each("ajoin_throttled", "gauge", "1 if the last epoch hit its bound.", [float(s.throttled) for s in streams]),
        each(
            "ajoin_watermark_lag_seconds",
            "gauge",
            "How far the watermark trails the clock.",
            [None if s.lag_ms is None else s.lag_ms / 1000 for s in streams],
        ),
    ]


def process_metrics(proc: Path = Path("/proc/self")) -> list[Metric]:
    """This process's memory and open files; nothing where the system does not tell."""
    try:
        resident = int((proc / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        files = len(list((proc / "fd").iterdir()))
    except (OSError, ValueError, IndexError):
        return []
    return [
        Metric("process_resident_memory_bytes", "gauge", "Resident memory of the driver.", (({}, resident),)),
        Metric("process_open_fds", "gauge", "Open files of the driver.", (({}, files),)),
    ]


class MetricsServer:
    """`with MetricsServer(platform, host, port) as metrics:`; port 0 takes a free one.

    `more`: metrics of what runs beside the platform; called for every scrape, from the server's threads.
    """

    def __init__(
        self, platform: Platform, host: str, port: int, more: Callable[[], Iterable[Metric]] = lambda: ()
    ) -> None:
        class Handler(BaseHTTPRequestHandler):
            timeout = 10
            server_version, sys_version = "ajoin", ""

            def do_GET(self) -> None:
                if self.path.partition("?")[0] != PATH:
                    self.send_error(404, f"only {PATH} is here")
                    return
                extra = [*more(), *process_metrics()]
                body = render(platform.status(), platform.streams(), extra).encode()
                self.send_response(200)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """A scrape every few seconds is no news."""

        try:
            self._server = ThreadingHTTPServer((host, port), Handler)
        except OSError as failure:
            raise FailedPrecondition(
                f"cannot serve metrics on {host}:{port}: {failure.strerror or failure}",
                reason="ADDRESS_IN_USE",
                hint="choose another metrics_port or metrics_host; metrics_port 0 serves none",
            ) from None
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="ajoin-metrics", daemon=True)

    @property
    def address(self) -> str:
        host, port = self._server.server_address[:2]
        return f"{host!s}:{port}"

    def __enter__(self) -> MetricsServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
