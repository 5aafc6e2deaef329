"""Metrics for Prometheus: what `ajoin status` says, in the text format, over HTTP.

    ajoin serve --set metrics_port=9411        then scrape http://127.0.0.1:9411/metrics

Labels are streams, stages and states, of which there are few. Queries come and go by the thousand, and every label
value is a time series that Prometheus keeps for weeks, so no metric has a label per query, except that sinks and
queries which are behind, and queries which leave rows out, are named; `ajoin query show` and GetStatistics tell about
one query. The port has no authentication. It is off by default and, when it is on, listens on this machine only unless
`metrics_host` says otherwise.

A `PlatformCollector` reads what is committed when it is scraped, on a thread of the HTTP server; between two scrapes
nothing is computed or kept. Format and HTTP are prometheus-client's, with a registry of our own, so that several
platforms in one process keep their metrics apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ajoin.platform.platform import Platform, PlatformState
from optimizer.errors import FailedPrecondition
from runtime.api import PlatformStatus, QueryInfo, StreamInfo


class PlatformCollector(Collector):
    def __init__(self, platform: Platform) -> None:
        self._platform = platform

    def collect(self) -> Iterator[Metric]:
        yield from status_metrics(self._platform.status())
        yield from stream_metrics(self._platform.streams())
        yield from query_metrics(self._platform.queries_behind(), self._platform.queries_with_gaps())


def status_metrics(s: PlatformStatus) -> list[Metric]:
    states = GaugeMetricFamily("ajoin_state", "1 for the state the platform is in.", labels=["state"])
    for state in PlatformState:
        states.add_metric([state.value], float(s.state == state.value))
    stages = CounterMetricFamily("ajoin_stage_seconds_total", "Seconds spent, by stage.", labels=["stage"])
    for stage, seconds in sorted(s.stage_seconds.items()):
        stages.add_metric([stage], seconds)
    return [
        states,
        CounterMetricFamily(
            "ajoin_epochs_total", "Epochs committed since the state directory was created.", value=s.epoch
        ),
        GaugeMetricFamily("ajoin_epoch_seconds", "Seconds the last epoch took.", value=s.epoch_seconds),
        GaugeMetricFamily(
            "ajoin_latency_seconds", "Age of the last epoch's oldest tuple at its commit.", value=s.latency_seconds
        ),
        GaugeMetricFamily("ajoin_plan_version", "Version of the shared plan.", value=s.plan_version),
        GaugeMetricFamily("ajoin_streams", "Streams.", value=s.streams),
        GaugeMetricFamily("ajoin_queries", "Running queries.", value=s.queries),
        CounterMetricFamily("ajoin_rows_total", "Rows delivered, for all queries together.", value=s.rows),
        CounterMetricFamily(
            "ajoin_overflows_total", "Sums that did not fit BIGINT and were delivered as NULL.", value=s.overflows
        ),
        GaugeMetricFamily("ajoin_buckets", "Buckets kept for open windows.", value=s.buckets),
        GaugeMetricFamily("ajoin_bucket_bytes", "Bytes of these buckets.", value=s.bucket_bytes),
        GaugeMetricFamily("ajoin_recovery_seconds", "Seconds the last start took.", value=s.recovery_seconds),
        GaugeMetricFamily(
            "ajoin_recovery_records", "Log records the last start had to read.", value=s.recovery_records
        ),
        GaugeMetricFamily("ajoin_store_bytes", "Bytes of buckets and results in the store.", value=s.store_bytes),
        GaugeMetricFamily("ajoin_cache_bytes", "Bytes of the store that this machine keeps.", value=s.cache_bytes),
        GaugeMetricFamily("ajoin_sinks", "Sinks that get rows.", value=s.sinks),
        _sinks_behind(s),
        GaugeMetricFamily("ajoin_uptime_seconds", "Seconds since the platform was started.", value=s.uptime_seconds),
        stages,
    ]


def _sinks_behind(s: PlatformStatus) -> Metric:
    behind = GaugeMetricFamily(
        "ajoin_sink_epochs_behind",
        "Epochs a sink lacks; only of sinks that fail or lack more than the newest.",
        labels=["query", "sink", "kind"],
    )
    for sink in s.sinks_behind:
        behind.add_metric([sink.query_id, str(sink.number), sink.kind], sink.epochs_behind)
    return behind


def stream_metrics(streams: Iterable[StreamInfo]) -> list[Metric]:
    label = ["stream"]
    tuples = CounterMetricFamily("ajoin_tuples_total", "Tuples accepted.", labels=label)
    late = CounterMetricFamily("ajoin_late_dropped_total", "Tuples too late to be used.", labels=label)
    dead = CounterMetricFamily("ajoin_dead_letters_total", "Tuples that could not be read.", labels=label)
    backlog = GaugeMetricFamily("ajoin_backlog", "What did not fit into the last epoch.", labels=label)
    throttled = GaugeMetricFamily("ajoin_throttled", "1 if the last epoch hit its bound.", labels=label)
    lag = GaugeMetricFamily("ajoin_watermark_lag_seconds", "How far the watermark trails the clock.", labels=label)
    latency = GaugeMetricFamily(
        "ajoin_stream_latency_seconds", "Age of the oldest tuple of the last epoch that read some.", labels=label
    )
    for s in streams:
        name = [s.schema.name]
        if s.latency_ms is not None:
            latency.add_metric(name, s.latency_ms / 1000)
        tuples.add_metric(name, s.tuples)
        late.add_metric(name, s.late_dropped)
        dead.add_metric(name, s.dead_letter)
        backlog.add_metric(name, s.backlog)
        throttled.add_metric(name, float(s.throttled))
        if s.lag_ms is not None:
            lag.add_metric(name, s.lag_ms / 1000)
    return [tuples, late, dead, backlog, throttled, lag, latency]


def query_metrics(behind: Iterable[QueryInfo], with_gaps: Iterable[QueryInfo]) -> list[Metric]:
    """`behind`: the queries of which work was put off; `with_gaps`: of which open windows lack rows."""
    label = ["query"]
    epochs = GaugeMetricFamily(
        "ajoin_query_epochs_behind", "Epochs since work of a query was put off; only while some is.", labels=label
    )
    lag = GaugeMetricFamily(
        "ajoin_query_lag_seconds", "How late such a query's results are, in event time.", labels=label
    )
    for q in behind:
        epochs.add_metric([q.id], q.epochs_behind)
        if q.lag_ms is not None:
            lag.add_metric([q.id], q.lag_ms / 1000)
    gaps = GaugeMetricFamily(
        "ajoin_query_incomplete", "1 for a query that leaves rows out of windows which are still open.", labels=label
    )
    for q in with_gaps:
        gaps.add_metric([q.id], 1.0)
    return [epochs, lag, gaps]


@contextmanager
def serve_metrics(host: str, port: int, *collectors: Collector) -> Iterator[str]:
    """Serve what these tell, and this process's memory and open files, until the end; port 0 takes a free one.

    Gives the address.
    """
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    ProcessCollector(registry=registry)
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as failure:
        raise FailedPrecondition(
            f"cannot serve metrics on {host}:{port}: {failure.strerror or failure}",
            reason="ADDRESS_IN_USE",
            hint="choose another metrics_port or metrics_host; metrics_port 0 serves none",
        ) from None
    try:
        yield f"{host}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
