"""Aggregate functions that users bring: folded in order, whatever the parts; NULLs, filters, refusals."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ajoin.examples import geo_mean as examples
from optimizer.errors import AlreadyExists, FailedPrecondition, InternalError, InvalidRequest
from optimizer.model.aggregates import AggregateFunction
from optimizer.model.types import NUMBERS, ColumnType
from runtime.aggregates import plugins
from runtime.aggregates.components import components_of, lower
from runtime.aggregates.plugins import AggregatePlugin, register
from runtime.aggregates.sliding import Cells, slide
from runtime.aggregates.states import concat, fold, get_state, lift, lift_fold, put_state, scalable, scale
from runtime.buckets.file import pack, parse
from tests.runtime.aggregates import aggregate, column, values_of

POLYNOMIAL = AggregatePlugin(
    AggregateFunction("TEST_POLYNOMIAL", (NUMBERS,), ColumnType.BIGINT, parameters=1),
    (ColumnType.BIGINT, ColumnType.BIGINT),
    lambda x: (x, np.full(len(x), 3, np.int64)),
    lambda l, r: (l[0] * r[1] + r[0], l[1] * r[1]),
    lambda parts, p: parts[0] + p,
)
"""Values as digits of a number in base 3: associative, and every order gives another number (it wraps). No real
plug-in may be like that, but it shows what is combined with what."""

LENGTHS = AggregatePlugin(
    AggregateFunction("TEST_LENGTHS", (frozenset({ColumnType.STRING}),), ColumnType.BIGINT),
    (ColumnType.BIGINT,),
    lambda texts: (np.array([len(t) for t in texts], np.int64),),
    lambda l, r: (l[0] + r[0],),
    lambda parts: parts[0],
)


@pytest.fixture(scope="module", autouse=True)
def registered():
    register(POLYNOMIAL)
    register(LENGTHS)


def digits(values):
    total = 0
    for v in values:
        total = total * 3 + v
    return total


WAYS = ("combine", "subtract", "stacks")


@settings(deadline=None)
@given(st.lists(st.lists(st.none() | st.integers(0, 2), max_size=9), min_size=1, max_size=5), st.data())
def test_parts_are_combined_in_order(parts, data):
    agg = replace(aggregate("TEST_POLYNOMIAL", [ColumnType.BIGINT], parameters=(7,)), type=ColumnType.BIGINT)
    (c,) = components_of(agg)
    states = []
    for values in parts:
        arguments, times = (column(ColumnType.BIGINT, values),), np.zeros(len(values), np.int64)
        cut = data.draw(st.integers(0, len(values)))
        order, offsets = np.arange(len(values), dtype=np.int32), np.array([0, cut, len(values)], np.int64)
        states.append(lift_fold(c, arguments, None, times, order, offsets))
    whole = concat(states)
    arrays: dict[str, object] = {}
    put_state(arrays, "x", whole)
    whole = get_state(parse("f", "p", pack("f", "p", {}, arrays)), "x", c)
    one = fold(c, whole, np.arange(len(whole), dtype=np.int32), np.array([0, len(whole), len(whole)], np.int64))
    known = [v for values in parts for v in values if v is not None]
    assert values_of(lower(agg, {c: one})) == [digits(known) + 7 if known else None, None]


@settings(deadline=None)
@given(st.lists(st.tuples(st.none() | st.floats(-1, 100), st.booleans(), st.integers(0, 4)), max_size=20))
def test_the_example(rows):
    agg = aggregate("GEO_MEAN", [ColumnType.DOUBLE], filtered=True)
    (c,) = components_of(agg)
    assert scalable(c) and "GEO_MEAN" in plugins.functions()
    passed = np.array([p for _, p, _ in rows], bool)
    state = lift(c, (column(ColumnType.DOUBLE, [x for x, _, _ in rows]),), passed, np.zeros(len(rows), np.int64))
    scaled = scale(c, state, np.array([t for _, _, t in rows], np.int64))
    one = fold(c, scaled, np.arange(len(rows), dtype=np.int32), np.array([0, len(rows)], np.int64))
    values = [x for x, p, t in rows if p and x is not None for _ in range(t)]
    (found,) = values_of(lower(agg, {c: one}))
    if not values or min(values) <= 0:
        assert found is None
    else:
        assert math.isclose(found, math.exp(math.fsum(map(math.log, values)) / len(values)), rel_tol=1e-9)


def test_what_the_example_inverts_is_gone():
    left, right = examples.lift(np.array([2.0, 8.0])), examples.lift(np.array([5.0, 1.0]))
    for part, again in zip(left, examples.invert(examples.combine(left, right), right), strict=True):
        assert np.allclose(part, again)


@pytest.mark.parametrize("seed", range(20))
def test_sliding_windows_of_the_example_are_the_same_in_every_way(seed):
    random = np.random.default_rng(seed)
    agg = aggregate("GEO_MEAN", [ColumnType.DOUBLE])
    (c,) = components_of(agg)
    slices, groups = int(random.integers(1, 30)), int(random.integers(1, 4))
    at = np.argwhere(random.random((slices, groups)) < 0.5)
    values = [None if random.random() < 0.3 else float(random.uniform(-0.2, 9)) for _ in at]
    lifted = lift(c, (column(ColumnType.DOUBLE, values),), None, np.zeros(len(at), np.int64))
    cells = Cells(at[:, 0], at[:, 1], (slices, groups))
    first = np.sort(random.integers(0, slices + 1, 12))
    end = np.maximum(np.sort(random.integers(0, slices + 1, 12)), first)
    found = [values_of(lower(agg, {c: slide(c, lifted, cells, first, end, way)[0]})) for way in WAYS]
    for one, *others in zip(*found, strict=True):
        assert all(o == one or (o and one and math.isclose(o, one, rel_tol=1e-9)) for o in others)
    assert plugins.invertible("GEO_MEAN") and not plugins.invertible("TEST_POLYNOMIAL")


def test_texts_arrive_as_texts():
    agg = replace(aggregate("TEST_LENGTHS", [ColumnType.STRING]), type=ColumnType.BIGINT)
    (c,) = components_of(agg)
    texts = column(ColumnType.STRING, ["ab", None, "", "漢字s"])
    whole = lift_fold(
        c, (texts,), None, np.zeros(4, np.int64), np.arange(4, dtype=np.int32), np.array([0, 4], np.int64)
    )
    assert values_of(lower(agg, {c: whole})) == [5]


def test_refusals():
    register(POLYNOMIAL)  # again: nothing happens
    with pytest.raises(AlreadyExists):
        register(replace(POLYNOMIAL, parts=(ColumnType.BIGINT,)))
    with pytest.raises(AlreadyExists):
        register(replace(POLYNOMIAL, function=replace(POLYNOMIAL.function, name="SUM")))
    for wrong in ("lower", "A B", ""):
        with pytest.raises(InvalidRequest):
            register(replace(POLYNOMIAL, function=replace(POLYNOMIAL.function, name=wrong)))
    with pytest.raises(InvalidRequest, match="order of tuples"):
        register(replace(POLYNOMIAL, function=replace(POLYNOMIAL.function, name="TEST_ORDER", ordered=True)))
    with pytest.raises(InvalidRequest):
        register(AggregatePlugin(replace(POLYNOMIAL.function, name="T"), (), POLYNOMIAL.lift, POLYNOMIAL.combine, len))
    with pytest.raises(FailedPrecondition, match="NOBODY_HAS"):
        components_of(aggregate("NOBODY_HAS", [ColumnType.BIGINT]))
    (c,) = components_of(aggregate("TEST_LENGTHS", [ColumnType.STRING]))
    state = lift(c, (column(ColumnType.STRING, ["a"]),), None, np.zeros(1, np.int64))
    assert not scalable(c)
    with pytest.raises(FailedPrecondition):
        scale(c, state, np.ones(1, np.int64))


def test_a_plugin_that_gives_too_few_elements_is_told():
    short = AggregatePlugin(
        AggregateFunction("TEST_SHORT", (NUMBERS,), ColumnType.BIGINT),
        (ColumnType.BIGINT,),
        lambda x: (x[:1],),
        lambda l, r: l,
        lambda parts: parts[0],
    )
    register(short)
    (c,) = components_of(aggregate("TEST_SHORT", [ColumnType.BIGINT]))
    with pytest.raises(InternalError, match="TEST_SHORT"):
        lift(c, (column(ColumnType.BIGINT, [1, 2, 3]),), None, np.zeros(3, np.int64))
