"""The driver: every point of every panel on every system, one after the other, on the same tuples and queries.

Per point and system:

1. a correctness run over a few chunks, counting the rows of every query; all systems must agree,
   or the report says who does not;
2. a warm-up over the first chunks, whose time also tells how many chunks keep the system busy for `run.seconds`;
3. the timed run over that many chunks (a prefix of the same data for every system).

Throughput is tuples over seconds of the timed run. Flink and Spark pay for planning, code generation and
starting tasks in every run; that is not their throughput, so for them the warm-up's tuples and seconds are
subtracted from the timed run's. A platform's time counts when its plan has settled (systems/platform_worker.py).
Overall throughput is the sum over all running queries of the tuples on their own streams, as in the paper.

What was measured before is not measured again (`before`): a record says which point and system it is of.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from experiments.config import Experiment, Panel
from experiments.data import SPARE, Dataset, DataSpec
from experiments.similarity import ALL_ALIKE, QueryGenerator, pattern_query
from experiments.sustainable import search
from experiments.systems.base import ROOT, Measurement, System
from experiments.systems.plans import differences
from experiments.systems.registry import PLATFORMS, make_system
from experiments.template import ATTRIBUTES, TemplateQuery, used_streams

Record = dict[str, Any]
Progress = Callable[[str], None]


@dataclass
class Driver:
    experiment: Experiment
    directory: Path
    executor: str = "spark"
    systems: tuple[str, ...] | None = None
    say: Progress = lambda text: None
    before: Sequence[Record] = ()

    def runs(self) -> int:
        return sum(len(p.points) * len(self._systems(p)) for p in self.experiment.panels)

    def run(self) -> Iterator[list[Record]]:
        """One list after each measurement: everything measured so far, in the order of the experiment.

        One system at a time is alive: an idle JVM still takes memory, and two platforms would share the cores.
        """
        done = {r["key"]: r for r in self.before if worth_keeping(r)}
        order: list[str] = []
        system: System | None = None
        try:
            for panel in self.experiment.panels:
                inputs = [self._inputs(panel, point) for point in panel.points]
                for name in self._systems(panel):
                    for number, (point, (data, queries)) in enumerate(zip(panel.points, inputs, strict=True)):
                        key = f"{panel.name}/{number}/{name}/{digest(point)}"
                        order.append(key)
                        if key not in done:
                            if system is None or system.name != name:
                                if system is not None:
                                    system.stop()
                                system = make_system(name, self.directory / "logs", self.executor)
                            self.say(f"{panel.name}, {name}: {describe(panel, point)}")
                            began = time.time()
                            system.prepare(data, queries, dict(point) | {"measure": panel.measure})
                            measured = measure(panel.measure, system, point, data, queries, self.experiment.seed)
                            made = record(self.experiment, panel, point, queries, measured, began)
                            done[key] = made | {"key": key, "point": number}
                        found = [done[k] for k in order]
                        compare(found)
                        yield found
                for data, _ in inputs:
                    data.remove()
        finally:
            if system is not None:
                system.stop()

    def _inputs(self, panel: Panel, point: Mapping[str, Any]) -> tuple[Dataset, list[TemplateQuery]]:
        seed = self.experiment.seed
        data = Dataset(data_spec(point, seed), self.directory / "data")
        return data, make_queries(point, data.spec, seed, wanted_queries(panel.measure, point))

    def _systems(self, panel: Panel) -> list[str]:
        return [s for s in panel.systems if self.systems is None or s in self.systems]


# -- measuring one system at one point --------------------------------------------------------------------------------


def measure(
    kind: str, system: System, point: Mapping[str, Any], data: Dataset, queries: list[TemplateQuery], seed: int
) -> Measurement:
    limit = float(point["run.time_limit"])
    common = {
        "queries": [q.to_json() for q in queries],
        "keys": data.spec.keys,
        "event_rate": data.spec.event_rate,
        "seed": seed,
    }
    if kind in ("live", "changes", "sustainable") and system.name not in PLATFORMS:
        return Measurement(system.name, "not applicable: only the platform takes requests while it runs")
    if kind in ("live", "changes"):
        return system.ask(common | {"op": kind, "options": dict(point)}, limit)
    if kind == "sustainable":
        return sustainable(system, point, common, limit)
    return throughput(system, point, data, limit)


def sustainable(system: System, point: Mapping[str, Any], common: Mapping[str, Any], limit: float) -> Measurement:
    best = Measurement(system.name, "failed: no rate was sustained")

    def probe(rate: float) -> bool:
        nonlocal best
        options = dict(point) | {"live.tuples_per_second": rate}
        measured = system.ask(dict(common) | {"op": "live", "options": options}, limit)
        good = measured.finished and bool(measured.values.get("sustained"))
        if good:
            best = replace(measured, values=dict(measured.values) | {"sustainable_rate": rate})
        return good

    search(probe, float(point["live.tuples_per_second"]))
    return best


def throughput(system: System, point: Mapping[str, Any], data: Dataset, limit: float) -> Measurement:
    most = data.spec.chunks
    checked = system.run(min(most, int(point["run.check_chunks"])), count=True, time_limit=limit)
    if not checked.finished:
        return checked
    warm = system.run(min(most, int(point["run.warm_chunks"])), time_limit=limit)
    if not warm.finished:
        return replace(warm, rows=checked.rows)
    wanted = float(point["run.seconds"])
    timed = warm
    chunks = warm.chunks
    while chunks < most and timed.seconds < 0.7 * wanted:
        # A short run is mostly fixed cost, so its rate is an underestimate; grow at most eightfold at a time.
        growth = min(8.0, wanted / max(timed.seconds, 1e-3))
        chunks = min(most, max(chunks + 1, int(chunks * growth)))
        longer = system.run(chunks, time_limit=limit)
        if not longer.finished:
            break  # what was finished before the limit still counts
        timed = longer
    best = timed
    for _ in range(int(point["run.repeat"]) - 1):
        again = system.run(chunks, time_limit=limit)
        if again.finished and again.seconds < best.seconds:
            best = again
    if system.pays_for_starting and best.chunks > warm.chunks and best.seconds > warm.seconds:
        net = replace(best, tuples=best.tuples - warm.tuples, seconds=best.seconds - warm.seconds)
        best = replace(net, values=dict(best.values) | {"gross_seconds": best.seconds})
    return replace(best, rows=checked.rows)


# -- records ------------------------------------------------------------------------------------------------------


def record(
    experiment: Experiment,
    panel: Panel,
    point: Mapping[str, Any],
    queries: list[TemplateQuery],
    m: Measurement,
    began: float,
) -> Record:
    flat = {k: ", ".join(map(str, v)) if isinstance(v, list) else v for k, v in point.items()}
    flat["queries.selectivity"] = str(flat["queries.selectivity"])
    overall = m.rate * sum(len(q.sources) for q in queries) / max(1, len(used_streams(queries)))
    if m.finished and m.seconds and point["engine.submit"] == "adhoc" and "overall_tuples" in m.values:
        overall = m.values["overall_tuples"] / m.seconds
    return {
        "experiment": experiment.name,
        "panel": panel.name,
        "system": m.system,
        "status": m.status,
        **flat,
        "tuples": m.tuples,
        "seconds": m.seconds,
        "input_throughput": m.rate,
        "throughput": float(m.values.get("overall_throughput", overall)),
        "cpu_seconds": m.cpu_seconds,
        "peak_mb": m.peak_bytes / 2**20,
        "rows_checked": sum(m.rows.values()) if m.rows is not None else None,
        "rows_by_query": json.dumps(dict(m.rows)) if m.rows is not None else "",
        "plans": json.dumps(m.plans) if m.plans else "",
        **m.values,
        "cores": os.cpu_count(),
        "machine": processor(),
        "load": os.getloadavg()[0],
        "commit": commit(),
        "began": began,
        "ended": time.time(),
    }


def worth_keeping(r: Record) -> bool:
    """What failed is tried again; what took too long would do so again."""
    return r["status"] in ("ok", "timed out") or str(r["status"]).startswith("not applicable")


def compare(records: list[Record]) -> None:
    """Per point: do all systems find the same rows, and is what a platform runs another plan than that of `ajoin`?"""
    points: dict[tuple[str, int], list[Record]] = {}
    for r in records:
        points.setdefault((r["panel"], r["point"]), []).append(r)
    for together in points.values():
        counts = {r["system"]: json.loads(r["rows_by_query"]) for r in together if r.get("rows_by_query")}
        plans = {r["system"]: json.loads(r["plans"]) for r in together if r.get("plans")}
        for r in together:
            r["rows_agree"] = agreement(r["system"], counts)
            other = r["system"] != "ajoin" and r["system"] in plans and "ajoin" in plans
            r["plan_differs"] = differences(plans["ajoin"], plans[r["system"]]) if other else ""


def agreement(system: str, counts: Mapping[str, Mapping[str, int]]) -> str:
    """'yes', 'no (...)', or '' when there was nobody to compare with."""
    mine = counts.get(system)
    others = {s: c for s, c in counts.items() if s != system}
    if mine is None or not others:
        return ""
    differing = [s for s, c in others.items() if any(c.get(q) != n for q, n in mine.items())]
    return f"no (not with {', '.join(differing)})" if differing else "yes"


# -- inputs -------------------------------------------------------------------------------------------------------


def data_spec(point: Mapping[str, Any], seed: int) -> DataSpec:
    return DataSpec(
        int(point["data.streams"]),
        int(point["data.keys"]),
        int(point["data.event_rate"]),
        int(point["data.chunk_seconds"]),
        int(point["data.chunks"]),
        seed,
        int(point["data.phase_chunks"]),
    )


def wanted_queries(measure: str, point: Mapping[str, Any]) -> int:
    if measure != "live" or point["live.workload"] == "at_start":
        return int(point["queries.count"])
    if point["live.workload"] == "SC1":
        return int(point["live.parallel"])
    return int(float(point["live.seconds"]) * float(point["live.rate"])) + 1


def make_queries(point: Mapping[str, Any], spec: DataSpec, seed: int, count: int) -> list[TemplateQuery]:
    """The same list for the same point and seed. More queries continue the list of fewer ones."""
    rng = Random(seed)
    attributes = SPARE if point["queries.selectivity"] in ALL_ALIKE else ATTRIBUTES
    pattern = pattern_query(spec.names, int(point["queries.ways"]), rng, attributes)
    generator = QueryGenerator(
        pattern,
        spec.names,
        similarity=float(point["queries.similarity"]),
        selectivity=point["queries.selectivity"],
        windows=point["queries.windows"],
        keys=spec.keys,
        rng=rng,
        parts=int(point["queries.parts"]),
    )
    return [generator.next() for _ in range(count)]


def describe(panel: Panel, point: Mapping[str, Any]) -> str:
    """What makes this point different from the others of its panel."""
    varied = [k for k in point if any(p[k] != point[k] for p in panel.points)]
    return ", ".join(f"{k.split('.')[-1]} {point[k]}" for k in varied) or "one point"


def digest(point: Mapping[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(dict(point), sort_keys=True).encode(), digest_size=6).hexdigest()


def processor() -> str:
    try:
        names = [line.partition(":")[2].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def commit() -> str:
    """Of the code that runs, as far as it is known; with a plus if files have been changed since."""
    try:
        asked = ["git", "describe", "--always", "--abbrev=8", "--dirty=+"]
        return subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"
