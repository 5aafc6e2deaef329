"""Verdicts follow from numbers."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from experiments.shapes import judge, target


def results(**curves: list[float]) -> pd.DataFrame:
    return pd.DataFrame(
        {"panel": "p", "system": system, "status": "ok", "n": x, "y": y, "z": 2 * x, "kind": "ab"[x % 2]}
        for system, ys in curves.items()
        for x, y in enumerate(ys, start=1)
    )


def verdict(data: pd.DataFrame, **claim: Any) -> str:
    return judge({"text": "t", "panel": "p", "x": "n", "y": "y", "system": "ajoin"} | claim, data).verdict


def test_rises_and_falls() -> None:
    up, down, flat = results(ajoin=[1, 2, 3]), results(ajoin=[3, 2, 1]), results(ajoin=[1, 2, 1.01])
    assert [verdict(d, check="rises") for d in (up, down, flat)] == ["seen", "not seen", "not seen"]
    assert [verdict(d, check="falls") for d in (up, down, flat)] == ["not seen", "seen", "not seen"]


def test_above_and_steeper() -> None:
    data = results(ajoin=[2, 8], flink=[1, 2])
    assert verdict(data, check="above", other="flink") == "seen"
    assert verdict(data, check="above", system="flink", other="ajoin") == "not seen"
    assert verdict(data, check="steeper", other="flink") == "seen"
    assert verdict(data, check="steeper", system="flink", other="ajoin") == "not seen"
    assert verdict(data, check="grows_more", than="z") == "seen"


def test_middle_similar_order() -> None:
    assert verdict(results(ajoin=[1, 3, 2]), check="middle") == "seen"
    assert verdict(results(ajoin=[3, 1, 2]), check="middle") == "not seen"
    assert verdict(results(ajoin=[2, 2]), check="similar", columns=["y", "z"], factor=3) == "seen"
    assert verdict(results(ajoin=[20, 20]), check="similar", columns=["y", "z"], factor=3) == "not seen"
    assert verdict(results(ajoin=[1, 2]), check="falls", x="kind", order=["a", "b"]) == "seen"


def test_what_was_not_measured_is_neither() -> None:
    data = results(ajoin=[1, 2])
    data.loc[data["n"] == 2, "status"] = "timed out"
    assert verdict(data, check="rises") == "not measured"
    assert verdict(results(ajoin=[1, 2]), check="above", other="spark") == "not measured"
    assert verdict(results(ajoin=[1, 2]), check="rises", y="nothing") == "not measured"


@pytest.mark.parametrize(("wanted", "met"), [(1.9, "yes"), (2.0, "yes"), (2.1, "no")])
def test_target_ratio(wanted: float, met: str) -> None:
    value = {"panel": "p", "system": "ajoin", "column": "y", "where": {"n": 2}}
    t = {"id": "R", "text": "t", "value": value, "over": value | {"system": "flink"}, "at_least": wanted}
    assert target(t, results(ajoin=[0, 4], flink=[0, 2])).met == met
    assert target(t, results(ajoin=[0, 4])).met == "not measured"


def test_points_with_the_same_plan_are_not_compared() -> None:
    data = results(ajoin=[1, 9, 9], astream=[2, 3, 1])
    data["point"], data["plan_differs"] = data["n"], ""
    claim = {"check": "above", "other": "astream"}
    assert verdict(data, **claim) == "not seen"
    data.loc[(data["system"] == "astream") & (data["n"] == 1), "plan_differs"] = "same plan"
    assert verdict(data, **claim) == "seen"
    assert verdict(data, check="gap_rises", other="astream") == "seen"
    data.loc[data["system"] == "astream", "plan_differs"] = "same plan"
    assert verdict(data, **claim) == "not measured"
    assert verdict(data, cannot="one machine") == "cannot be seen on 2 cores"
    flat = {"text": "t", "panel": "p", "x": "n", "y": "y", "check": "rises", "why": "because"}
    assert judge(flat, results(ajoin=[1, 1])).evidence.endswith("; because")
    assert "because" not in judge(flat, results(ajoin=[1, 2])).evidence
