"""One PNG per panel: lines over a numeric axis, bars over a named one, stacked bars for a breakdown."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.config import Panel
from experiments.systems.plans import SAME

COLOURS = {
    "ajoin": "#1b6ca8",
    "eager": "#3aa17e",
    "unshared": "#7fb2d6",
    "astream": "#e08e0b",
    "flink": "#c0392b",
    "spark": "#7d5ba6",
    "kernels": "#4c4c4c",
}


def plot_panel(panel: Panel, data: pd.DataFrame, path: Path) -> Path | None:
    """None when the panel wants no plot or nothing was measured."""
    spec = panel.plot
    data = data[data["status"] == "ok"]
    if not spec or data.empty:
        return None
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import EngFormatter

    figure, axes = pyplot.subplots(figsize=(6.4, 3.8), layout="constrained")
    ys = spec["y"] if isinstance(spec["y"], list) else [spec["y"]]
    ys = [y for y in ys if y in data and data[y].notna().any()]
    if not ys:
        pyplot.close(figure)
        return None
    if spec.get("kind") == "stacked":
        _stacked(axes, data, spec["x"], ys)
    elif pd.api.types.is_numeric_dtype(data[spec["x"]]) and spec.get("kind") != "bars":
        _lines(axes, data, spec, ys)
    else:
        _bars(axes, data, spec, ys)
    axes.set_xlabel(spec.get("x_label", spec["x"]))
    axes.set_ylabel(spec.get("y_label", ", ".join(ys)))
    axes.set_title(textwrap.fill(panel.title, 84), fontsize=11)
    axes.grid(axis="y", alpha=0.3)
    if axes.get_yscale() == "linear":
        axes.yaxis.set_major_formatter(EngFormatter())
    axes.set_ymargin(0.12)  # room for "same plan"
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8)
    figure.savefig(path, dpi=75)
    pyplot.close(figure)
    return path


def _series(data: pd.DataFrame, spec: Any, ys: list[str]) -> list[tuple[str, str, pd.DataFrame, str]]:
    """(label, colour, rows, y): one per system, `by` value and column."""
    by = spec.get("by")
    found = []
    for system, mine in data.groupby("system", sort=False):
        parts = [("", mine)] if not by else [(f", {by.split('.')[-1]} {v}", p) for v, p in mine.groupby(by)]
        for suffix, part in parts:
            for y in ys:
                name = f"{system}{suffix}" + (f", {y}" if len(ys) > 1 else "")
                colour = COLOURS.get(str(system), "#333333") if len(ys) == 1 and not by else ""
                found.append((name, colour, part, y))
    return found


def _lines(axes: Any, data: pd.DataFrame, spec: Any, ys: list[str]) -> None:
    for label, colour, part, y in _series(data, spec, ys):
        curve = part.dropna(subset=[y]).groupby(spec["x"])[y].mean().sort_index()
        same = part[part["plan_differs"] == SAME].groupby(spec["x"])[y].mean() if "plan_differs" in part else ()
        for x in getattr(same, "index", ()):
            axes.annotate(SAME, (x, same[x]), textcoords="offset points", xytext=(0, 7), fontsize=7, ha="center")
        axes.plot(curve.index, curve.to_numpy(), marker="o", label=label, **({"color": colour} if colour else {}))
    for axis in spec.get("log", ""):
        (axes.set_xscale if axis == "x" else axes.set_yscale)("log")
    xs = sorted(data[spec["x"]].unique())
    axes.set_xticks(xs, [f"{x:g}" for x in xs])
    axes.xaxis.minorticks_off()


def _bars(axes: Any, data: pd.DataFrame, spec: Any, ys: list[str]) -> None:
    names = list(dict.fromkeys(data[spec["x"]].astype(str)))
    series = _series(data, spec, ys)
    width = 0.8 / len(series)
    for number, (label, colour, part, y) in enumerate(series):
        heights = part.assign(**{spec["x"]: part[spec["x"]].astype(str)}).groupby(spec["x"])[y].mean()
        places = [i + (number - (len(series) - 1) / 2) * width for i in range(len(names))]
        style = {"color": colour} if colour else {}
        axes.bar(places, [heights.get(n, 0.0) for n in names], width, label=label, **style)
        same = set(part[part["plan_differs"] == SAME][spec["x"]].astype(str)) if "plan_differs" in part else set()
        for place, n in zip(places, names, strict=True):
            if n in same:
                axes.annotate(SAME, (place, heights[n]), fontsize=7, ha="center", va="bottom", rotation=90)
    if "y" in spec.get("log", ""):
        axes.set_yscale("log")
    axes.set_xticks(range(len(names)), names, rotation=20 if max(map(len, names)) > 8 else 0, fontsize=8)


def _stacked(axes: Any, data: pd.DataFrame, x: str, ys: list[str]) -> None:
    means = data.assign(**{x: data[x].astype(str)}).groupby(x, sort=False)[ys].mean().fillna(0.0)
    below = pd.Series(0.0, index=means.index)
    for y in ys:
        axes.bar(means.index, means[y], 0.6, bottom=below, label=y.removeprefix("share_"))
        below = below + means[y]
