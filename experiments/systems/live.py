"""A live run: tuples arrive at a given rate, users create and delete queries while it goes on (Figures 18, 19 and 22b).

The platform runs as the service runs it (engine thread, query batches, paced epochs, periodic optimizer); only the
network is left out. A tuple's event time is the moment it became due, so for a result row the time from its latest
tuple to its epoch's commit is the event-time latency, waiting in the tuple queue included. Deployment
latency is measured by the client: from the request to the acknowledgement, after which the next epoch runs
with the query.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from random import Random
from typing import Any

import pyarrow.compute as pc

from ajoin.platform.periodic import Periodic
from ajoin.platform.platform import Pace, Platform, Wanted, only
from experiments.queues import RequestQueue, TupleQueue, percentiles
from experiments.systems.plans import aspects
from experiments.systems.protocol import Answer, Request
from experiments.template import TIME, TemplateQuery, ajoin_sql, used_streams
from experiments.workloads import UserRequest, make_requests
from optimizer.errors import AJoinError
from optimizer.model.types import StreamSchema
from runtime.api import Optimize, ResultBatch
from runtime.connectors.base import ConnectorSpec
from runtime.engine.engine import Engine

SAMPLED_BATCHES = 50
"""Result batches per epoch whose rows' latencies are looked at."""


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def uses(engine: Engine) -> float:
    """How many queries read an average input tuple: each reads the tuples of its own streams."""
    return sum(len(p.root.leaves) for p in engine.plan.placements) / max(1, len(engine.schemas()))


class _Apply:
    """Times the engine's `apply`: what deciding and logging plans costs."""

    def __init__(self, engine: Engine) -> None:
        self.seconds = 0.0
        self._apply = engine.apply
        engine.apply = self  # type: ignore[method-assign]

    def __call__(self, batch: Any) -> Any:
        began = time.perf_counter()
        try:
            return self._apply(batch)
        finally:
            self.seconds += time.perf_counter() - began


def run(engine: Engine, request: Request, schema: Callable[[str], StreamSchema], rng: Random) -> Answer:
    options = request["options"]
    planning = _Apply(engine)
    pace = Pace(float(options["live.batch_interval"]), float(options["live.epoch_interval"]), 1.0)
    platform = Platform(engine, clock=_now_ms, pace=pace)
    every = float(options["engine.optimize_every"])
    with ExitStack() as parts:
        parts.enter_context(platform)
        if every:
            parts.enter_context(Periodic("periodic optimizer", lambda: _optimize(platform), lambda: every))
        return _Live(platform, engine, request, rng, planning).run(schema)


def _optimize(platform: Platform) -> None:
    """As `ajoin serve` does."""
    only(platform.control(Optimize("incremental", force=False, rescale=True)).result())


class _Live:
    def __init__(self, platform: Platform, engine: Engine, request: Request, rng: Random, planning: _Apply) -> None:
        self.platform, self.engine, self.planning = platform, engine, planning
        self.options = request["options"]
        self.keys = int(request["keys"])
        self.queries = [TemplateQuery.from_json(q) for q in request["queries"]]
        self.streams = used_streams(self.queries)
        self.seconds = float(self.options["live.seconds"])
        self.rate = float(self.options["live.tuples_per_second"])
        if self.options["live.workload"] == "at_start":
            self.requests = [UserRequest(0.0, "create", i) for i in range(len(self.queries))]
        else:
            self.requests = make_requests(
                self.options["live.workload"],
                float(self.options["live.rate"]),
                int(self.options["live.parallel"]),
                self.seconds,
                rng,
            )
        self.acks = RequestQueue(float(self.options["live.ack_timeout"]))
        self.tuples = TupleQueue(self.rate)
        self.latencies: list[float] = []
        self.stages: dict[str, float] = {}
        self.errors: list[str] = []
        self.epoch_seconds: list[float] = []
        self.starts: list[float] = []

    def run(self, schema: Callable[[str], StreamSchema]) -> Answer:
        self._streams(schema)
        first = self._warm()
        began = time.monotonic()
        pulled_before = self._pulled()
        next_request, last_epoch = 0, first
        threshold = float(self.options["live.latency_threshold"])
        optimizations, last_optimized = 0, began
        work, rows = 0.0, 0
        pending = self.requests
        while (elapsed := time.monotonic() - began) < self.seconds:
            while next_request < len(pending) and pending[next_request].at_seconds <= elapsed:
                self._send(pending[next_request])
                next_request += 1
            due = pending[next_request].at_seconds - elapsed if next_request < len(pending) else 1.0
            self.platform.wait_until(lambda: self.engine.epoch > last_epoch, max(0.005, min(due, 0.25)))  # noqa: B023
            if self.engine.epoch == last_epoch:
                continue
            self.tuples.observe(time.monotonic() - began, self._pulled() - pulled_before)
            running = uses(self.engine)
            worst = 0.0
            recent = self.platform.statistics(self.engine.epoch - last_epoch).epochs
            for e in recent:
                if e.epoch <= last_epoch:
                    continue
                work += e.tuples * running
                rows += e.rows
                self.starts.append(e.committed_at_ms / 1000)
                for stage, spent in e.stage_seconds.items():
                    self.stages[stage] = self.stages.get(stage, 0.0) + spent
                found = self._latencies(e.epoch, e.committed_at_ms)
                worst = max(worst, max(found, default=0.0))
                self.latencies += found
            last_epoch = self.engine.epoch
            self.epoch_seconds.append(self.engine.status().epoch_seconds)
            if threshold and worst > threshold and time.monotonic() - last_optimized > threshold:
                self.platform.control(Optimize("incremental"))
                optimizations, last_optimized = optimizations + 1, time.monotonic()
        seconds = time.monotonic() - began
        return self._answer(seconds, work, rows, optimizations)

    # -- pieces ---------------------------------------------------------------------------------------------------

    def _streams(self, schema: Callable[[str], StreamSchema]) -> None:
        for i, name in enumerate(self.streams):
            s = schema(name)
            settings = {
                "rate": str(self.rate),
                "event_rate": str(self.rate),
                "start_ms": "now",
                "seed": str(i + 1),
                "batch": str(int(self.rate * 10) + 1),
            }
            settings |= {f"column.{c.name}": f"uniform(0,{self.keys - 1})" for c in s.columns if c.name != TIME}
            self.platform.create_stream(s, ConnectorSpec("generator", tuple(settings.items()))).result()

    def _warm(self) -> int:
        """One query for a few epochs, before anything is counted."""
        warm = TemplateQuery("warm", tuple(self.streams[:2]), ((0, 0),), (None, None), 1)
        self.platform.create_query(ajoin_sql(warm, times=True), "warm")
        start = self.engine.epoch
        self.platform.wait_until(lambda: self.engine.epoch >= start + 5, 60)
        self.platform.delete_queries(["warm"]).result()
        self.planning.seconds = 0.0
        return self.engine.epoch

    def _pulled(self) -> int:
        """Of the slowest stream."""
        return min(int(st.position.offset["n"]) for st in self.engine.state.streams.values())

    def _send(self, request: UserRequest) -> None:
        q = self.queries[request.query]
        began = time.monotonic()
        if request.kind == "create":
            future: Any = self.platform.create_queries([Wanted(q.id, ajoin_sql(q, times=True))])
        else:
            future = self.platform.delete_queries([q.id])

        def acknowledged(done: Any) -> None:
            refused = (
                [str(o) for o in done.result() if isinstance(o, AJoinError)] if not done.exception() else ["stopped"]
            )
            self.errors += refused
            if not refused:
                self.acks.acknowledged(time.monotonic() - began)

        future.add_done_callback(acknowledged)

    def _latencies(self, epoch: int, committed_ms: int) -> list[float]:
        """Of the oldest, the middle and the newest row of some of the epoch's batches, in seconds."""
        found: list[float] = []
        for number, batch in enumerate(self.engine.delivered(epoch)):
            if number == SAMPLED_BATCHES:
                break
            newest = _newest(batch)
            if newest is not None:
                found += [(committed_ms - t) / 1000 for t in pc.quantile(newest, [0.0, 0.5, 1.0]).to_pylist()]
        return found

    def _answer(self, seconds: float, work: float, rows: int, optimizations: int) -> Answer:
        gaps = [b - a for a, b in zip(self.starts, self.starts[1:], strict=False)]
        values = {
            "overall_throughput": work / seconds,
            "rows_per_second": rows / seconds,
            "epochs": len(self.starts),
            "optimizations": optimizations,
            "backlog_seconds": self.tuples.longest_seconds,
            "backlog_growth": self.tuples.growth(),
            "requests": len(self.acks.acks),
            "refused": len(self.errors),
            "sustained": float(self.tuples.sustained(self.acks.timeout) and self.acks.sustained() and not self.errors),
            "running_queries": len(self.engine.plan.placements),
        }
        values |= percentiles(self.latencies, "event_latency")
        values |= percentiles(self.acks.acks, "deployment_latency")
        values |= percentiles(gaps, "epoch_period")
        if gaps and self.acks.acks:
            period = values["epoch_period_p50"]
            values |= {f"deployment_epochs_p{p}": values[f"deployment_latency_p{p}"] / period for p in (50, 99)}
        spent = self.stages | {"optimizer": self.planning.seconds}
        # Stages overlap, and two epochs may end between two looks: then what the stages say is the larger sum.
        busy = max(sum(self.epoch_seconds) + self.planning.seconds, sum(spent.values()))
        other = max(0.0, busy - sum(spent.values()))
        for name, part in (spent | {"scheduling": other}).items():
            values[f"share_{name}"] = part / max(busy, 1e-9)
        return {"seconds": seconds, "values": values, "plans": {"end": aspects(self.engine)}}


def _newest(batch: ResultBatch) -> Any:
    """Per row the event time of its latest tuple."""
    times = [batch.rows.column(i) for i, f in enumerate(batch.rows.schema) if f.name.endswith(f"_{TIME}")]
    return pc.max_element_wise(*times) if times and batch.rows.num_rows else None
