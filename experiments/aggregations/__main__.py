"""Aggregation: input rates of the platform, of Flink SQL and of Spark Structured Streaming.

    python -m experiments.aggregations [A1 A2 A3 A6 A7] [--quick] [--runs 3] [--executor spark] [--systems ajoin,flink]

    A1   SUM, COUNT and MAX by 100,000 groups, tumbling windows of 1 s
    A2   1, 10, 100 and 1,000 queries with tumbling windows of 1 to 20 s at once, one grouping
    A3   SUM, COUNT and MAX by 10,000 groups, windows of 1 h that advance by 1 s, from an empty state on
    A6   SUM, COUNT and MAX by 100,000 groups, sessions with a gap of 1 s
    A7   1,000 queries with a condition each and five groupings, over one query

Every system reads the same tuples (200,000 per second of event time; A3: 10,000), in a process of its own, one after
the other. Its rows are first compared with those of an implementation in NumPy, over a short stream: number of rows and
sum of all aggregates, query by query (of many queries the first CHECKED; the platform: all). Then each run times all
systems in turn. Ratios are formed within a run; told are their median and spread.

Flink and Spark plan and start tasks in every run: a run over the first third is subtracted, after one to warm up. The
platform is charged for everything from its first epoch to its last commit. At the end of a file Flink closes all
windows; of A3 that would be 3,600 more than were due, so there it waits for more files, and the time is taken when the
last due window has come. What does not end in the time limit is told as such, with the rate it can have had at most.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.aggregations import workload
from experiments.aggregations.data import CHECKED_TUPLES, Data, expected, make, until_ms
from experiments.aggregations.workload import DENSITY, Aggregation
from experiments.systems.base import System
from experiments.systems.registry import FLINK_VENV, install_flink

RESULTS = Path(__file__).parents[1] / "results" / "aggregations"
CHECKED = 5
"""Queries whose rows Flink is asked for, of many: each is a job of its own."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Tuples in a chunk (5 s of event time in the full variant), chunks, seconds a run may take."""

    chunk: int
    chunks: int
    limit: float


FULL, QUICK = Sizes(1_000_000, 9, 600.0), Sizes(400_000, 6, 120.0)


class Worker(System):
    def __init__(self, name: str, log: Path, executor: str) -> None:
        super().__init__(name, log)
        self._executor = executor

    def command(self) -> list[str]:
        if self.name == "flink":
            install_flink()
        python = str(FLINK_VENV / "bin" / "python") if self.name == "flink" else sys.executable
        return [python, "-m", f"experiments.aggregations.{self.name}_worker"]

    def environment(self) -> Mapping[str, str]:
        return {"AJOIN_BENCH_EXECUTOR": self._executor}


@dataclass(frozen=True, slots=True)
class Case:
    """`queries` on these systems."""

    name: str
    queries: Sequence[Aggregation]
    systems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ratio:
    """Rate of one (case, system) over that of another, and what it should be at least."""

    what: str
    over: tuple[str, str]
    under: tuple[str, str]
    target: float


@dataclass(frozen=True, slots=True)
class Experiment:
    """`density`: tuples per second of event time; with another than that of most, chunks are of five seconds."""

    cases: tuple[Case, ...]
    ratios: tuple[Ratio, ...]
    density: int = DENSITY


def experiments() -> dict[str, Experiment]:
    counts = (1, 10, 100, 1_000)
    a2 = tuple(Case(f"{n} windows", workload.windows(n), ("ajoin", "flink")) for n in counts)
    a7 = tuple(Case(f"{n} conditions", workload.conditions(n), ("ajoin",)) for n in (1, 1_000))
    one, many = ("1 windows", "ajoin"), ("1000 windows", "ajoin")
    grouped, session = ("100,000 groups", "ajoin"), ("sessions", "ajoin")
    return {
        "A1": Experiment(
            (Case(grouped[0], workload.grouped(), ("ajoin", "flink", "spark")),),
            (
                Ratio("over Flink", grouped, (grouped[0], "flink"), 10),
                Ratio("over Spark", grouped, (grouped[0], "spark"), 10),
            ),
        ),
        "A2": Experiment(
            a2,
            (
                Ratio("1,000 windows over one", many, one, 0.5),
                Ratio("1,000 windows, over Flink", many, ("1000 windows", "flink"), 100),
                Ratio("100 windows, over Flink", ("100 windows", "ajoin"), ("100 windows", "flink"), 10),
            ),
        ),
        "A3": Experiment(
            (Case("1 h by 1 s", workload.long_windows(), ("ajoin", "flink")),),
            (Ratio("over Flink", ("1 h by 1 s", "ajoin"), ("1 h by 1 s", "flink"), 20),),
            density=10_000,
        ),
        "A6": Experiment(
            (Case(session[0], workload.sessions(), ("ajoin", "flink")),),
            (Ratio("over Flink", session, (session[0], "flink"), 10),),
        ),
        "A7": Experiment(
            a7,
            (Ratio("1,000 conditions over one", ("1000 conditions", "ajoin"), ("1 conditions", "ajoin"), 0.3),),
        ),
    }


class Bench:
    """`rates[(case, system)]`: tuples a second, one per run; `bounds`: at most so many, because it did not end in time;
    `notes`: what went wrong."""

    def __init__(self, folder: Path, sizes: Sizes, executor: str, logs: Path, systems: set[str]) -> None:
        self.sizes, self._systems = sizes, systems
        self._folder, self._executor, self._logs = folder, executor, logs
        self._made: dict[int, tuple[Data, Data]] = {}
        self.rates: dict[tuple[str, str], list[float]] = {}
        self.notes: dict[tuple[str, str], str] = {}
        self.bounds: dict[tuple[str, str], float] = {}

    def ask(  # type: ignore[no-untyped-def]
        self, system: Worker, data: Data, density: int, queries: Sequence[Aggregation], until: int | None = None
    ):
        request = {
            "op": "run",
            "data": str(data.folder),
            "queries": [q.to_json() for q in queries],
            "count": until is not None,
            "until": until,
            "last": until_ms(data, density),
        }
        return system.ask(request, self.sizes.limit)

    def data(self, density: int) -> tuple[Data, Data]:
        """Of the first third, and whole."""
        if density not in self._made:
            usual = density == DENSITY
            chunk = self.sizes.chunk if usual else 5 * density
            chunks = self.sizes.chunks if usual else 2 * self.sizes.chunks
            places = self._folder / f"short-{density}", self._folder / f"long-{density}"
            self._made[density] = make(places[0], chunk, chunks // 3, density), make(places[1], chunk, chunks, density)
        return self._made[density]

    def check(self, name: str, experiment: Experiment) -> None:
        """Rows first. A stream of the same kind at a lower density, so that windows close in it."""
        density = CHECKED_TUPLES // 30
        data = make(self._folder / f"check-{name}", CHECKED_TUPLES // 10, 10, density)
        until = until_ms(data, density)
        for case in experiment.cases:
            right = expected(data, case.queries, until)
            assert any(rows for rows, _ in right.values()), "nothing to compare"
            for system in self._chosen(case):
                asked = case.queries if system == "ajoin" else case.queries[:CHECKED]
                worker = self._worker(system)
                answer = self.ask(worker, data, density, asked, until)
                worker.stop()
                if not answer.finished:
                    self.notes[(case.name, system)] = f"rows not compared: {answer.status}"
                    continue
                wrong = [q.id for q in asked if list(answer.rows[q.id]) != right[q.id]]
                first = f"{wrong[0]}: {answer.rows[wrong[0]]} instead of {right[wrong[0]]}" if wrong else ""
                assert not wrong, f"{system}, {case.name}: other rows for {len(wrong)} queries, {first}"
                print(f"{name} {case.name}: {system} makes the expected rows for {len(asked)} queries", flush=True)

    def measure(self, case: Case, density: int) -> None:
        short, long = self.data(density)
        for name in self._chosen(case):
            at = (case.name, name)
            if "timed out" in self.notes.get(at, ""):
                continue
            worker = self._worker(name)
            try:
                if name != "ajoin":
                    self.ask(worker, short, density, case.queries)  # warm: the one that is subtracted must not be cold
                first = self.ask(worker, short, density, case.queries)
                whole = self.ask(worker, long, density, case.queries) if first.finished else first
            finally:
                worker.stop()
            if not first.finished or not whole.finished:
                reached = long if first.finished else short
                self.bounds[at] = reached.tuples / self.sizes.limit
                self.notes[at] = f"{whole.status[:120]} (at most {self.bounds[at]:,.0f} tuples/s)"
            elif name == "ajoin":
                self.rates.setdefault(at, []).append(long.tuples / whole.seconds)
            else:
                seconds = max(whole.seconds - first.seconds, 1e-3)
                self.rates.setdefault(at, []).append((long.tuples - short.tuples) / seconds)
            print(f"{case.name}: {name} {_shown(self.rates.get(at, []))} {self.notes.get(at, '')}", flush=True)

    def _worker(self, name: str) -> Worker:
        return Worker(name, self._logs / f"{name}.log", self._executor)

    def _chosen(self, case: Case) -> list[str]:
        return [s for s in case.systems if s in self._systems]


def _shown(rates: Sequence[float]) -> str:
    if not rates:
        return "-"
    return f"{statistics.median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"


def report(name: str, experiment: Experiment, bench: Bench) -> str:
    lines = [f"## {name}", "", "| queries | system | tuples/s, median (spread) | |", "|---|---|---|---|"]
    for case in experiment.cases:
        for system in case.systems:
            at = (case.name, system)
            lines.append(f"| {case.name} | {system} | {_shown(bench.rates.get(at, []))} | {bench.notes.get(at, '')} |")
    lines += ["", "| ratio | target | measured | met |", "|---|---|---|---|"]
    for ratio in experiment.ratios:
        over, under = bench.rates.get(ratio.over, []), bench.rates.get(ratio.under, [])
        each = [a / b for a, b in zip(over, under, strict=False)]
        if each:
            spread = f"{statistics.median(each):.2f} ({min(each):.2f} to {max(each):.2f})"
            met = "yes" if statistics.median(each) >= ratio.target else "no"
        elif over and ratio.under in bench.bounds:
            least = statistics.median(over) / bench.bounds[ratio.under]
            spread, met = f"more than {least:.1f}", "yes" if least >= ratio.target else ""
        else:
            spread, met = bench.notes.get(ratio.under, "not measured"), ""
        lines.append(f"| {ratio.what} | at least {ratio.target:g} | {spread} | {met} |")
    return "\n".join([*lines, ""])


def main(arguments: list[str] | None = None) -> None:
    known = experiments()
    parser = argparse.ArgumentParser(prog="python -m experiments.aggregations", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*known, []], help="which (default: all)")
    parser.add_argument("--quick", action="store_true", help="a quarter of the tuples, 2 minutes per run at most")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--executor", choices=("spark", "local"), default="spark")
    parser.add_argument("--systems", default="ajoin,flink,spark")
    parser.add_argument("--limit", type=float, help="seconds a run may take")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    sizes = QUICK if given.quick else FULL
    if given.limit:
        sizes = Sizes(sizes.chunk, sizes.chunks, given.limit)
    given.out.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="ajoin-aggregations-") as folder:
        bench = Bench(Path(folder), sizes, given.executor, given.out, set(given.systems.split(",")))
        chosen = {name: known[name] for name in given.names or known}
        for name, experiment in chosen.items():
            bench.check(name, experiment)
        for _ in range(given.runs):
            for experiment in chosen.values():
                for case in experiment.cases:
                    bench.measure(case, experiment.density)
            stored = {f"{case}/{system}": rates for (case, system), rates in bench.rates.items()}
            (given.out / "results.json").write_text(json.dumps(stored, indent=2) + "\n")
            text = "\n".join(report(name, experiment, bench) for name, experiment in chosen.items())
            (given.out / "report.md").write_text(text)
    print(text)
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
