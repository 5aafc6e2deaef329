"""What a soak has measured, as a table with a verdict per quantity and one plot of everything over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import pandas as pd

from experiments.trend import Trend, trend

SHARE = 0.10
"""Tolerated growth per hour, as a share of the median ..."""
FLOORS = {
    "driver_mb": 30.0, "jvm_mb": 60.0, "workers_mb": 60.0, "open_files": 20.0, "state_mb": 10.0, "state_files": 60.0,
    "epoch_seconds": 0.05,
}  # fmt: skip
"""... and what is always tolerated, in the quantity's own unit per hour."""
NAMES = {
    "driver_mb": "memory of the driver (MB)",
    "jvm_mb": "memory of Spark's JVM (MB)",
    "workers_mb": "memory of the Python workers (MB)",
    "open_files": "open files, all processes",
    "state_mb": "state directory (MB)",
    "state_files": "files in the state directory",
    "epoch_seconds": "seconds of an epoch",
}
LONG_ENOUGH = 10.0
"""Minutes. Shorter runs are mostly warm-up, whatever their slopes are."""


@dataclass(frozen=True, slots=True)
class Sample:
    hours: float
    epoch: int
    epoch_seconds: float
    driver_mb: float
    jvm_mb: float
    workers_mb: float
    open_files: int
    state_mb: float
    state_files: int
    queries: int
    backlog: int


def tolerated(quantity: str, values: Sequence[float]) -> float:
    return max(FLOORS[quantity], SHARE * median(values))


def write_report(folder: Path, samples: Sequence[Sample], troubles: Sequence[str], minutes: float) -> list[str]:
    """report.md, samples.parquet and soak.png in `folder`; answers the quantities that grow."""
    data = pd.DataFrame([asdict(s) for s in samples])
    data.to_parquet(folder / "samples.parquet")
    hours = list(data["hours"])
    rows, grown = [], list[str]()
    for quantity, name in NAMES.items():
        values = [float(v) for v in data[quantity]]
        found = trend(hours, values)
        limit = tolerated(quantity, values)
        if found is not None and found.grows(limit) and minutes >= LONG_ENOUGH:
            grown.append(name)
        rows.append(_row(name, found, limit, name in grown))
    epochs = samples[-1].epoch - samples[0].epoch if samples else 0
    queries = median(data["queries"])
    lines = [
        "# Soak",
        "",
        f"{minutes:g} minutes, {len(samples)} samples, {epochs:,} epochs, {queries:g} queries at a time.",
        "The first fifth is warm-up and does not count.",
        "",
        "| | median of the first fifth | of the last fifth | slope per hour | 95 % interval | tolerated | |",
        "|---|---|---|---|---|---|---|",
        *rows,
        "",
        *(f"Trouble: {text}" for text in troubles),
        _verdict(grown, troubles, minutes),
        "",
        "![everything over time](soak.png)",
        "",
    ]
    (folder / "report.md").write_text("\n".join(lines), encoding="utf-8")
    _plot(data, folder / "soak.png")
    return grown


def _row(name: str, found: Trend | None, limit: float, grows: bool) -> str:
    if found is None:
        return f"| {name} | - | - | - | - | {limit:.3g} | too few samples |"
    interval = f"{found.low:+.3g} to {found.high:+.3g}"
    said = "**grows**" if grows else "flat" if found.low <= 0 <= found.high or found.slope <= limit else "unclear"
    return f"| {name} | {found.first:.4g} | {found.last:.4g} | {found.slope:+.3g} | {interval} | {limit:.3g} | {said} |"


def _verdict(grown: Sequence[str], troubles: Sequence[str], minutes: float) -> str:
    if troubles:
        return "Something went wrong on the way."
    if minutes < LONG_ENOUGH:
        return f"Less than {LONG_ENOUGH:g} minutes: too short for a verdict."
    return f"Grows: {', '.join(grown)}." if grown else "Nothing grows."


def _plot(data: pd.DataFrame, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(4, 2, figsize=(10, 10), layout="constrained", sharex=True)
    for at, (quantity, name) in zip(axes.flat, NAMES.items(), strict=False):
        at.plot(60 * data["hours"], data[quantity], color="#1b6ca8", linewidth=1)
        at.set_title(name, fontsize=9)
        at.set_ylim(bottom=0)
        at.grid(alpha=0.3)
    last = axes.flat[-1]
    last.plot(60 * data["hours"], data["queries"], color="#e08e0b", linewidth=1)
    last.set_title("queries", fontsize=9)
    for at in axes[-1]:
        at.set_xlabel("minutes")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
