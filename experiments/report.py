"""From results to something to read: results.parquet, report.md, one PNG per panel; and one report of everything.

A report is computed from the stored results and the stored configuration, so `python -m experiments report` gives the
same again. `write_all` puts all experiments into one folder to be kept with the project (docs/results): the reports,
their plots, and an index that says of each finding of the paper whether it is seen here.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.config import Experiment, Panel, available, parse
from experiments.driver import Record
from experiments.plots import plot_panel
from experiments.shapes import judge, target
from experiments.systems.plans import SAME

RESULTS, CONFIG, REPORT = "results.parquet", "config.toml", "report.md"

BUSY = 2.5
"""Load per core at the end of a measurement, above which other work must have been running."""


def save(directory: Path, experiment: Experiment, records: list[Record], *, quick: bool) -> None:
    """Called after every point, so an interrupted experiment keeps what it has measured."""
    frame = pd.DataFrame(records)
    frame["quick"] = quick
    making = directory / f".{RESULTS}.tmp"
    frame.to_parquet(making)
    making.rename(directory / RESULTS)
    (directory / CONFIG).write_text(experiment.source)


def stored(directory: Path, *, quick: bool) -> list[Record]:
    """What an earlier run of this variant has measured. Whether it is of the same points, its keys say."""
    path = directory / RESULTS
    if not path.exists():
        return []
    frame = pd.read_parquet(path)
    if "key" not in frame or bool(frame["quick"].any()) != quick:
        return []
    return [{k: v for k, v in r.items() if not _missing(v)} for r in frame.to_dict("records")]


def write_report(directory: Path) -> Path:
    experiment, results = _read(directory)
    lines = _lines(directory, experiment, results)
    path = directory / REPORT
    path.write_text("\n".join(lines).rstrip() + "\n")
    return path


def write_all(results: Path, into: Path) -> Path:
    """The reports of all experiments that have results, and an index of them."""
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    names = sorted(path.parent.name for path in results.glob(f"*/{RESULTS}") if (path.parent / CONFIG).exists())
    lines = ["# Results", "", "Written by `python -m experiments report`; do not edit.", ""]
    found = [(name, *_read(results / name)) for name in names]
    everything = pd.concat([r for _, _, r in found]) if found else pd.DataFrame()
    lines += [*_machine(everything), ""]
    lines += ["| | finding | here | numbers |", "|---|---|---|---|"]
    for name, experiment, frame in found:
        where = f"[{'Figure ' + experiment.figure if experiment.figure else name}]({name}.md)"
        for claim in experiment.claims:
            v = judge(claim, frame)
            lines.append(f"| {where} | {v.text} | {v.verdict} | {v.evidence} |")
    lines += ["", "## Targets", "", "| # | what | target | measured | met |", "|---|---|---|---|---|"]
    for name, experiment, frame in found:
        lines += _target_rows(experiment, frame, f"]({name}.md)")
        body = _lines(into, experiment, frame, prefix=f"{name}-")
        (into / f"{name}.md").write_text("\n".join(body).rstrip() + "\n")
    lines += ["", "## Not measured", ""]
    missing = [p.stem for p in available() if p.stem not in names]
    lines += [f"- {name}" for name in missing] or ["Everything was."]
    path = into / "README.md"
    path.write_text("\n".join(lines).rstrip() + "\n")
    return path


def _read(directory: Path) -> tuple[Experiment, pd.DataFrame]:
    results = pd.read_parquet(directory / RESULTS)
    name, quick = str(results["experiment"].iloc[0]), bool(results["quick"].any())
    return parse(name, (directory / CONFIG).read_text(), quick=quick), results


def _lines(directory: Path, experiment: Experiment, results: pd.DataFrame, prefix: str = "") -> list[str]:
    lines = [f"# {experiment.title}", "", *_facts(experiment, results)]
    for panel in experiment.panels:
        lines += _panel(directory, panel, results, prefix)
    return lines + _claims(experiment, results) + _targets(experiment, results) + _troubles(results)


def _machine(results: pd.DataFrame) -> list[str]:
    if results.empty:
        return []
    first = results.iloc[0]
    commits = ", ".join(sorted(set(results["commit"])))
    days = sorted({time.strftime("%Y-%m-%d", time.gmtime(t)) for t in results["began"]})
    said = [f"{first['cores']} cores, {first['machine']}; commit {commits}; {', '.join(days)}."]
    if results["quick"].any():
        said.append("**Quick variant**: few points, runs of seconds. A full run replaces it.")
    busy = (results["load"] / results["cores"] > BUSY).mean()
    if busy:
        said.append(
            f"**Busy machine**: other work was running during {busy:.0%} of the measurements "
            f"(median load {results['load'].median():.1f}, highest {results['load'].max():.1f}, our own included). "
            "Read ratios, and large ones only."
        )
    return ["  \n".join(said)]


def _facts(experiment: Experiment, results: pd.DataFrame) -> list[str]:
    seconds = (results["ended"] - results["began"]).sum()
    facts = [f"seed {experiment.seed}", f"measured in {seconds / 60:.0f} minutes"]
    if experiment.figure:
        facts.insert(0, f"Figure {experiment.figure} of the paper")
    return ["; ".join(facts) + ".", "", *_machine(results), ""]


def _panel(directory: Path, panel: Panel, results: pd.DataFrame, prefix: str) -> list[str]:
    data = results[results["panel"] == panel.name]
    if data.empty:
        return []
    lines = [f"## {panel.title}", ""]
    picture = plot_panel(panel, data, directory / f"{prefix}{panel.name}.png")
    if picture is not None:
        lines += [f"![{panel.title}]({picture.name})", ""]
    for system, words in panel.differs.items():
        if system in set(data["system"]):
            lines += [f"- `{system}` differs from `ajoin`: {words}."]
    if panel.differs:
        lines.append("")
    first = panel.points[0]
    varied = [k for k in first if any(p[k] != first[k] for p in panel.points) and k in data]
    shown = [*varied, "system", *_columns(panel, data)]
    return [*lines, *_table(data[shown]), ""]


def _columns(panel: Panel, data: pd.DataFrame) -> list[str]:
    plotted = panel.plot.get("y", ())
    wanted = {
        "throughput": [
            "throughput", "input_throughput", "seconds", "cpu_seconds", "peak_mb", "rows_checked", "rows_agree",
            "groups", "plan_differs",
        ],
        "memory": [
            "buffered_tuples", "tuple_bytes", "index_bytes", "queryset_bytes", "bytes_per_tuple", "bytes_over_raw",
        ],
        "live": [
            "throughput", "event_latency_mean", "event_latency_p50", "event_latency_p99", "deployment_latency_p50",
            "deployment_latency_p99", "epoch_period_p50", "backlog_seconds", "sustained",
        ],
        "sustainable": ["sustainable_rate", "throughput", "event_latency_p50", "event_latency_p99", "plan_differs"],
        "changes": [
            "changes", "epoch_p50", "epoch_max", "slowest_over_median", "steady_slowest_over_median", "rows_equal",
        ],
    }[panel.measure]  # fmt: skip
    also = [plotted] if isinstance(plotted, str) else list(plotted)
    return [c for c in dict.fromkeys([*wanted, *also, "status"]) if c in data and not data[c].map(_missing).all()]


def _missing(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, float) and pd.isna(value))


def _table(frame: pd.DataFrame) -> list[str]:
    head = [c.split(".")[-1].replace("_", " ") for c in frame.columns]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(_cell(v) for v in row) + " |" for row in frame.itertuples(index=False)]
    return lines


def _cell(value: Any) -> str:
    if _missing(value):
        return ""
    if isinstance(value, bool | str):
        text = str(value).replace("|", "/").replace("\n", " ")[:120]
        return f"**{text}**" if text == SAME else text
    if float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _claims(experiment: Experiment, results: pd.DataFrame) -> list[str]:
    lines = ["## What the paper found, and what we see", ""] if experiment.paper or experiment.claims else []
    if experiment.paper:
        lines += [experiment.paper, ""]
    if experiment.claims:
        lines += ["| the paper's finding | here | numbers |", "|---|---|---|"]
        for claim in experiment.claims:
            v = judge(claim, results)
            lines.append(f"| {v.text} | {v.verdict} | {v.evidence} |")
        lines.append("")
    return lines


def _targets(experiment: Experiment, results: pd.DataFrame) -> list[str]:
    if not experiment.targets:
        return []
    head = ["## Targets", "", "| # | what | target | measured | met |", "|---|---|---|---|---|"]
    return [*head, *_target_rows(experiment, results), ""]


def _target_rows(experiment: Experiment, results: pd.DataFrame, link: str = "") -> Sequence[str]:
    lines = []
    for t in experiment.targets:
        r = target(t, results)
        measured = "" if r.measured is None else f"{r.measured:,.3g}"
        id = f"[{r.id}{link}" if link else r.id
        lines.append(f"| {id} | {r.text} | {r.wanted} | {measured} | {r.met} |")
    return lines


def _troubles(results: pd.DataFrame) -> list[str]:
    bad = results[(results["status"] != "ok") & ~results["status"].str.startswith("not applicable")]
    differing = results[results["rows_agree"].astype(str).str.startswith("no")]
    lines = []
    if len(bad):
        lines += ["## Not finished", ""]
        lines += [f"- {r.panel}, {r.system}: {str(r.status)[:300]}" for r in bad.itertuples()] + [""]
    if len(differing):
        lines += ["## Row counts that differ", ""]
        lines += [f"- {r.panel}, {r.system}: {r.rows_agree}" for r in differing.itertuples()] + [""]
    return lines
