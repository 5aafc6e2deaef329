"""Do we see what the paper saw? Claims are checked against the measurements, never written by hand.

A claim names a check, a panel, and what to look at; the answer is 'seen', 'not seen' or 'not measured', with the
numbers that decided. A check looks at the shape of a curve and not at its height: the paper had 4 to 8 machines. A
claim that needs them says why (`cannot`), and its answer is 'cannot be seen on 2 cores'. Where it is known why
something is not seen, the claim says so, too (`why`).

Two systems are only compared where they run different plans: a point at which they do not says nothing about either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from experiments.systems.plans import SAME

TOLERANCE = 0.05
"""Changes smaller than this are noise."""


@dataclass(frozen=True, slots=True)
class Verdict:
    text: str
    verdict: str
    evidence: str


def judge(claim: Mapping[str, Any], results: pd.DataFrame) -> Verdict:
    if "cannot" in claim:
        return Verdict(claim["text"], "cannot be seen on 2 cores", claim["cannot"])
    data = results[(results["panel"] == claim["panel"]) & (results["status"] == "ok")]
    left_out = ""
    if "plan_differs" in data and "other" in claim:
        same = (data["plan_differs"] == SAME) & data["system"].isin((claim["system"], claim["other"]))
        points = set(data[same]["point"])
        data = data[~data["point"].isin(points)]
        left_out = f"; same plan at {len(points)} points, left out" if points else ""
    for column, value in claim.get("where", {}).items():
        data = data[data[column].astype(str) == str(value)]
    try:
        holds, evidence = CHECKS[claim["check"]](claim, data)
    except _NotMeasured as why:
        return Verdict(claim["text"], "not measured", f"{why}{left_out}")
    why = f"; {claim['why']}" if "why" in claim and not holds else ""
    return Verdict(claim["text"], "seen" if holds else "not seen", evidence + left_out + why)


class _NotMeasured(Exception):
    pass


def _curve(data: pd.DataFrame, claim: Mapping[str, Any], system: str | None = None, y: str | None = None) -> pd.Series:
    """Mean of y per x, in x order, or in the `order` that the claim gives (for names)."""
    x, y = claim["x"], y or claim["y"]
    system = system or claim.get("system", "ajoin")
    mine = data[data["system"] == system]
    if y not in mine or mine[y].dropna().empty:
        raise _NotMeasured(f"no {y} of {system}")
    curve = mine.dropna(subset=[y]).groupby(x)[y].mean().sort_index()
    if "order" in claim:
        curve = curve.reindex([v for v in claim["order"] if v in curve.index])
    if len(curve) < 2:
        raise _NotMeasured(f"{system} finished fewer than two points")
    return curve


def _show(curve: pd.Series) -> str:
    return ", ".join(f"{x}: {v:,.3g}" for x, v in curve.items())


def _rises(claim: Mapping[str, Any], data: pd.DataFrame) -> tuple[bool, str]:
    c = _curve(data, claim)
    return bool(c.iloc[-1] > c.iloc[0] * (1 + TOLERANCE)), _show(c)


def _falls(claim: Mapping[str, Any], data: pd.DataFrame) -> tuple[bool, str]:
    c = _curve(data, claim)
    return bool(c.iloc[-1] < c.iloc[0] * (1 - TOLERANCE)), _show(c)


def _above(claim: Mapping[str, Any], data: pd.DataFrame) -> tuple[bool, str]:
    """`system` is above `other` wherever both were measured."""
    a, b = _curve_or_point(data, claim, claim["system"]), _curve_or_point(data, claim, claim["other"])
    both = a.index.intersection(b.index)
    if both.empty:
        raise _NotMeasured("no point that both finished")
    ratio = a[both] / b[both]
    return bool((ratio > 1).all()), f"{claim['system']} over {claim['other']}: {_show(ratio)}"


def _curve_or_point(data: pd.DataFrame, claim: Mapping[str, Any], system: str) -> pd.Series:
    mine = data[data["system"] == system].dropna(subset=[claim["y"]])
    if mine.empty:
        raise _NotMeasured(f"no {claim['y']} of {system}")
    return mine.groupby(claim["x"])[claim["y"]].mean().sort_index()


def _steeper(claim: Mapping[str, Any], data: pd.DataFrame) -> tuple[bool, str]:
    """The curve of `system` changes by a larger factor from its first to its last x than that of `other`."""
    a, b = _curve(data, claim, claim["system"]), _curve(data, claim, claim["other"])
    fa, fb = a.iloc[-1] / a.iloc[0], b.iloc[-1] / b.iloc[0]
    far = max(fa, 1 / fa) > max(fb, 1 / fb)
    return bool(far), f"from first to last, {claim['system']}: x{fa:.3g}, {claim['other']}: x{fb:.3g}"


def _gap_rises(claim: Mapping[str, Any], data: pd.DataFrame) -> tuple[bool, str]:
    """`system` over `other` is larger at the last x than at the first."""
    a, b = _curve(data, claim, claim["system"]), _curve(data, claim, claim["other"])
    ratio = a[a.index.intersection(b.index)] / b
    wider = bool(ratio.iloc[-1] > ratio.iloc[0] * (1 + TOLERANCE))
    return wider, f"{claim['system']} over {claim['other']}: {_show(ratio)}"


def _grows_more(claim: Mapping[str, Any], data: pd.DataFrame) -> tuple[bool, str]:
    """`y` grows by a larger factor than `than`, both of one system."""
    a, b = _curve(data, claim), _curve(data, claim, y=claim["than"])
    fa, fb = a.iloc[-1] / a.iloc[0], b.iloc[-1] / b.iloc[0]
    return bool(fa > fb), f"{claim['y']}: x{fa:.3g}, {claim['than']}: x{fb:.3g}"


def _middle(claim: Mapping[str, Any], data: pd.DataFrame) -> tuple[bool, str]:
    """The best value is neither at the first nor at the last x."""
    c = _curve(data, claim)
    if len(c) < 3:
        raise _NotMeasured("fewer than three points")
    return bool(c.index[c.to_numpy().argmax()] not in (c.index[0], c.index[-1])), _show(c)


def _similar(claim: Mapping[str, Any], data: pd.DataFrame) -> tuple[bool, str]:
    """Several columns of one system have the same order of magnitude (mean over the panel)."""
    mine = data[data["system"] == claim.get("system", "ajoin")]
    present = [y for y in claim["columns"] if y in mine and not mine[y].dropna().empty]
    if len(present) < 2:
        raise _NotMeasured("fewer than two of the columns")
    means = mine[present].mean()
    return bool(means.max() <= float(claim.get("factor", 3)) * means.min()), _show(means)


CHECKS: dict[str, Callable[[Mapping[str, Any], pd.DataFrame], tuple[bool, str]]] = {
    "rises": _rises,
    "falls": _falls,
    "above": _above,
    "steeper": _steeper,
    "gap_rises": _gap_rises,
    "grows_more": _grows_more,
    "middle": _middle,
    "similar": _similar,
}


# -- targets ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TargetResult:
    id: str
    text: str
    wanted: str
    measured: float | None
    met: str


def target(t: Mapping[str, Any], results: pd.DataFrame) -> TargetResult:
    """`value`, or `value` divided by `over`; each names a panel, a system, a column, and which points (`where`)."""
    wanted = f">= {t['at_least']}" if "at_least" in t else f"<= {t['at_most']}"
    value = _pick(t["value"], results)
    if "over" in t and value is not None:
        over = _pick(t["over"], results)
        value = value / over if over else None
    if value is None:
        return TargetResult(t["id"], t["text"], wanted, None, "not measured")
    met = value >= t["at_least"] if "at_least" in t else value <= t["at_most"]
    return TargetResult(t["id"], t["text"], wanted, value, "yes" if met else "no")


def _pick(which: Mapping[str, Any], results: pd.DataFrame) -> float | None:
    data = results[(results["panel"] == which["panel"]) & (results["system"] == which.get("system", "ajoin"))]
    data = data[data["status"] == "ok"]
    for column, value in which.get("where", {}).items():
        data = data[data[column].astype(str) == str(value)]
    column = which["column"]
    if column not in data or data[column].dropna().empty:
        return None
    return float(data[column].max() if which.get("take") == "max" else data[column].mean())
