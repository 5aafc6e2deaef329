"""The weights are found again from times they produced, and never become negative."""

from __future__ import annotations

import json
import random

import pytest

from optimizer.cost.calibration import (
    PROBES,
    Work,
    calibrate,
    correlation,
    fit,
    from_json,
    machine_key,
    to_json,
    with_stage,
)
from optimizer.cost.model import Weights
from optimizer.errors import InvalidRequest

TRUE = Weights(index=2e-8, intersection=1e-8, materialization=7e-8, exchange=9e-8, fixed=3e-5, fold=4e-8, close=2e-8)


def seconds(work: Work) -> float:
    return sum(w * v for w, v in zip(TRUE.values, work.values, strict=True))


def test_exact_times_give_the_weights_back():
    found = calibrate(seconds)
    assert found.weights.values == pytest.approx(TRUE.values, rel=1e-6)
    assert found.correlation == pytest.approx(1.0)


def test_noisy_times_give_nearly_the_weights():
    rng = random.Random(1)
    found = calibrate(lambda work: seconds(work) * rng.uniform(0.9, 1.1))
    assert found.weights.materialization == pytest.approx(TRUE.materialization, rel=0.5)
    assert found.weights.fixed == pytest.approx(TRUE.fixed, rel=0.5)
    assert found.correlation > 0.98


def test_weights_are_never_negative():
    rng = random.Random(2)
    for _ in range(20):
        found = calibrate(lambda work: rng.uniform(1e-4, 1e-2))
        assert min(found.weights.values) >= 0


def test_too_few_runs_are_refused():
    with pytest.raises(InvalidRequest) as e:
        fit([(PROBES[0], 1.0)])
    assert e.value.reason == "CALIBRATION_TOO_SHORT"


def test_the_cache_survives_json_and_another_format_is_measured_again():
    found = with_stage(calibrate(seconds), 0.125)
    assert found.weights.stage == 0.125
    assert from_json(json.loads(json.dumps(to_json(found)))) == found
    assert from_json({**to_json(found), "format": 99}) is None
    assert machine_key({"cpu": "a", "cores": 2}) == machine_key({"cores": 2, "cpu": "a"}) != machine_key({"cpu": "b"})


def test_correlation():
    assert correlation([1, 2, 3], [2, 4, 6]) == pytest.approx(1)
    assert correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert correlation([1, 1, 1], [3, 2, 1]) == 0
