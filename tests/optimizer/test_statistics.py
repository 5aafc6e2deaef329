"""Smoothing, confidence, forgetting, samples, and that a copy answers like the original."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.optimizer_workloads import small_world
from optimizer.cost.shapes import Shapes
from optimizer.model.plan import Leaf
from optimizer.statistics.model import DEFAULT_KEYS, DEFAULT_RATE, EpochObservation, StatisticsModel, StreamObservation
from optimizer.statistics.samples import ROWS, QuerySetSample, intersections, pack, unpack
from tests.builders import join_query, running
from tests.optimizer.models import report

V = Leaf("V")


def test_defaults_without_statistics():
    model = StatisticsModel()
    assert model.rate("V") == DEFAULT_RATE == 1000
    assert model.distinct_keys(V, ("vID",)) == DEFAULT_KEYS == 100
    assert model.confidence == 0
    bits = model.column(V, "q", "some selection")
    assert bits.bit_count() / model.rows(V) == pytest.approx(0.3, abs=0.08)
    assert model.column(V, "q", "").bit_count() == model.rows(V)  # no selection: everything


def test_equal_selections_are_guessed_equal_whatever_the_alias():
    shapes = Shapes()
    one = shapes.profile(running("a", join_query("V x", "W", on=["x.vID = W.vID"], where=[("x.geo", "=", "US")])))
    two = shapes.profile(running("b", join_query("V y", "W", on=["y.vID = W.vID"], where=[("y.geo", "=", "US")])))
    other = shapes.profile(running("c", join_query("V", "W", on=["V.vID = W.vID"], where=[("V.geo", "=", "DE")])))
    assert one.selections == two.selections != other.selections
    assert one.shape is two.shape is other.shape


def test_rates_are_smoothed_and_confidence_grows():
    model = StatisticsModel(alpha=0.5)
    seen = []
    for at, tuples in enumerate([100, 200, 200, 200], start=1):
        model.observe(report({"V": tuples}, at=float(at)))
        seen.append((model.rate("V"), model.confidence))
    assert [r for r, _ in seen] == [100, 150, 175, 187.5]
    assert [c for _, c in seen] == [0.5, 0.75, 0.875, 0.9375]


def test_what_is_not_reported_any_more_is_forgotten():
    model = StatisticsModel(stale_s=10)
    model.observe(report({"V": 50}, {"V": {"q": "10"}}, {"V.vID": 7}, at=1.0))
    model.observe(report({"W": 50}, at=11.0))
    assert model.rate("V") == 50
    model.observe(report({"W": 50}, at=11.5))
    assert model.rate("V") == DEFAULT_RATE
    assert model.distinct_keys(V, ("vID",)) == DEFAULT_KEYS
    assert model.columns(V)[0] == {}


def test_composite_and_later_occurrences_fall_back():
    model = StatisticsModel()
    model.observe(report({"V": 500}, keys={"V.a": 10, "V.b": 20}))
    assert model.distinct_keys(V, ("a", "b")) == 200
    assert model.distinct_keys(Leaf("V", 1), ("a",)) == 10
    model.observe(report({"V": 100}, keys={"V.a": 50, "V.b": 50}))
    assert model.distinct_keys(V, ("a", "b")) <= model.tuples("V")  # never more keys than tuples


@given(st.integers(1, 200), st.integers(1, 9), st.randoms(use_true_random=False))
def test_popcounts_are_unions_and_intersections(rows, queries, rng):
    bits = np.array([[rng.random() < 0.4 for _ in range(queries)] for _ in range(rows)])
    columns = pack(bits)
    assert (unpack(columns, rows) == bits.T).all()
    chosen = rng.sample(range(queries), rng.randint(1, queries))
    union = 0
    for c in chosen:
        union |= columns[c]
    assert union.bit_count() == bits[:, chosen].any(axis=1).sum()
    common = intersections(columns, rows) * rows
    for i in range(queries):
        for j in range(queries):
            assert round(common[i, j]) == (bits[:, i] & bits[:, j]).sum()


def test_a_sample_slides():
    """Full of ones, then epochs of zeros: the share of ones falls step by step, not at once."""
    model = StatisticsModel(alpha=0.25)
    shares = []
    for at, value in enumerate([1, 0, 0, 0, 0], start=1):
        bits = np.full((ROWS, 1), value, dtype=np.uint8)
        model.observe(EpochObservation(float(at), samples={V: QuerySetSample(("q",), bits)}))
        shares.append(model.column(V, "q", "").bit_count() / model.rows(V))
    assert shares == [1.0, 0.75, 0.5, 0.25, 0.0]


def test_a_new_query_is_guessed_in_old_rows_and_a_deleted_one_forgotten():
    model = StatisticsModel()
    model.observe(EpochObservation(1.0, samples={V: QuerySetSample(("old",), np.ones((400, 1)))}))
    half = np.tile([[1], [0]], (100, 1))
    model.observe(EpochObservation(2.0, samples={V: QuerySetSample(("new",), half)}))
    columns, rows = model.columns(V)
    assert rows == 600 and set(columns) == {"new"}
    assert columns["new"].bit_count() / rows == pytest.approx(0.5, abs=0.06)


def test_empty_and_odd_reports_change_nothing():
    model = StatisticsModel()
    model.observe(report({"V": 10}, {"V": {"q": "11"}}))
    before = model.to_json()["samples"]
    empty = QuerySetSample((), np.zeros((0, 0)))
    streams = {"V": StreamObservation(0, 0.0)}
    model.observe(EpochObservation(2.0, streams, {V: empty}, keys={(V, ("vID",)): float("nan")}))
    assert model.rate("V") == 10
    assert [s[3] for s in model.to_json()["samples"]] == [s[3] for s in before]
    assert model.distinct_keys(V, ("vID",)) == DEFAULT_KEYS


def test_copies_and_json_answer_the_same():
    rng = random.Random(3)
    world = small_world(rng)
    model = world.statistics(rng)
    model.learn_ratios([(("V.vID=W.vID",), 4.0), (("V.vID=W.vID", "W.usrID=C.usrID"), 3.0)])
    again = StatisticsModel.from_json(json.loads(json.dumps(model.to_json())))
    assert again.to_json() == model.to_json() == model.copy().to_json()
    later = world.report(rng, at=5.0)
    model.observe(later)
    again.observe(later)
    assert again.to_json() == model.to_json()
    assert again.ratio(("V.vID=W.vID",)) == pytest.approx(4.0)
    assert again.joint(("V.vID=W.vID", "W.usrID=C.usrID", "C.usrID=R.usrID")) == pytest.approx(3.0)
    assert again.joint(("V.vID=W.vID",)) == again.joint(("W.usrID=C.usrID", "C.usrID=R.usrID")) == 1.0
