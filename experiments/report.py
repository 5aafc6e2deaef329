"""From results to something to read: results.parquet, report.md, one PNG per panel.

The report is computed from the stored results and the stored configuration, so `python -m experiments
report DIR` gives the same again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from experiments.config import Experiment, Panel, parse
from experiments.driver import Record
from experiments.plots import plot_panel
from experiments.shapes import judge, target

RESULTS, CONFIG, REPORT = "results.parquet", "config.toml", "report.md"


def save(directory: Path, experiment: Experiment, records: list[Record], *, quick: bool) -> None:
    """Called after every point, so an interrupted experiment keeps what it has measured."""
    frame = pd.DataFrame(records)
    frame["quick"] = quick
    making = directory / f".{RESULTS}.tmp"
    frame.to_parquet(making)
    making.rename(directory / RESULTS)
    (directory / CONFIG).write_text(experiment.source)


def write_report(directory: Path) -> Path:
    results = pd.read_parquet(directory / RESULTS)
    quick = bool(results["quick"].any())
    experiment = parse(str(results["experiment"].iloc[0]), (directory / CONFIG).read_text(), quick=quick)
    lines = [f"# {experiment.title}", ""]
    lines += _facts(experiment, results, quick)
    for panel in experiment.panels:
        lines += _panel(directory, panel, results)
    lines += _claims(experiment, results) + _targets(experiment, results) + _troubles(results)
    path = directory / REPORT
    path.write_text("\n".join(lines).rstrip() + "\n")
    return path


def _facts(experiment: Experiment, results: pd.DataFrame, quick: bool) -> list[str]:
    seconds = results["began"].max() - results["began"].min()
    facts = [f"{results['cores'].iloc[0]} cores, {results['machine'].iloc[0]}", f"seed {experiment.seed}"]
    facts.append(f"measured in {seconds / 60:.0f} minutes" + (", quick variant" if quick else ""))
    if experiment.figure:
        facts.insert(0, f"Figure {experiment.figure} of the paper")
    return ["; ".join(facts) + ".", ""]


def _panel(directory: Path, panel: Panel, results: pd.DataFrame) -> list[str]:
    data = results[results["panel"] == panel.name]
    if data.empty:
        return []
    lines = [f"## {panel.title}", ""]
    picture = plot_panel(panel, data, directory / f"{panel.name}.png")
    if picture is not None:
        lines += [f"![{panel.title}]({picture.name})", ""]
    varied = [k for k in panel.points[0] if any(p[k] != panel.points[0][k] for p in panel.points) and k in data]
    shown = [*varied, "system", *_columns(panel, data)]
    lines += [*_table(data[shown]), ""]
    return lines


def _columns(panel: Panel, data: pd.DataFrame) -> list[str]:
    plotted = panel.plot.get("y", ())
    wanted = {
        "throughput": ["throughput", "input_throughput", "seconds", "cpu_seconds", "peak_mb",
        "rows_checked", "rows_agree"], "memory": ["buffered_tuples", "tuple_bytes", "index_bytes",
        "queryset_bytes", "bytes_per_tuple", "bytes_over_raw"], "live": [
            "throughput", "event_latency_mean", "event_latency_p50", "event_latency_p99", "deployment_latency_p50",
            "deployment_latency_p99", "epoch_period_p50", "backlog_seconds", "sustained",
        ], "sustainable": ["sustainable_rate", "throughput", "event_latency_p50", "event_latency_p99"],
        "changes": ["changes", "epoch_p50", "epoch_max", "slowest_over_median",
        "steady_slowest_over_median", "rows_equal"],
    }[panel.measure]  # fmt: skip
    also = [plotted] if isinstance(plotted, str) else list(plotted)
    return [c for c in dict.fromkeys([*wanted, *also, "status"]) if c in data and data[c].notna().any()]


def _table(frame: pd.DataFrame) -> list[str]:
    head = [c.split(".")[-1].replace("_", " ") for c in frame.columns]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(_cell(v) for v in row) + " |" for row in frame.itertuples(index=False)]
    return lines


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and pd.isna(value)):
        return ""
    if isinstance(value, bool | str):
        return str(value).replace("|", "/").replace("\n", " ")[:120]
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
    lines = ["## Targets", "", "| # | what | target | measured | met |", "|---|---|---|---|---|"]
    for t in experiment.targets:
        r = target(t, results)
        measured = "" if r.measured is None else f"{r.measured:,.3g}"
        lines.append(f"| {r.id} | {r.text} | {r.wanted} | {measured} | {r.met} |")
    return [*lines, ""]


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
