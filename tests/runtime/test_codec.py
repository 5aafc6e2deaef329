"""What the state directory remembers comes back equal, and nothing else comes back at all."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.errors import InternalError
from optimizer.model.expressions import Compare, Literal
from optimizer.model.types import ColumnType as T
from runtime.buckets.refs import Skip
from runtime.connectors.base import ConnectorSpec, DeadLetter
from runtime.connectors.position import Position
from runtime.control import events
from runtime.control.state import State
from runtime.log.codec import decode, encode
from runtime.operators.join import InputBucket
from tests.runtime.events import logged_life
from tests.runtime.expressions import conditions
from tests.runtime.functions import any_call


def through_json(value):
    return decode(json.loads(json.dumps(encode(value))))


@pytest.mark.parametrize("seed", range(8))
def test_every_event_of_a_life_comes_back_equal(tmp_path, seed):
    records, logged, state = logged_life(tmp_path, seed, "medium" if seed < 2 else "tiny")
    kinds = {type(event) for event in logged}
    assert {events.StreamCreated, events.BatchApplied, events.EpochPlanned, events.EpochCommitted} <= kinds
    for record, event in zip(records, logged, strict=True):
        assert encode(event) == record
        assert through_json(event) == event
    text = json.dumps(state.to_json())
    assert json.dumps(State.from_json(json.loads(text)).to_json()) == text


@given(st.one_of(conditions(), any_call()))
def test_every_expression_comes_back_equal(condition):
    assert through_json(condition) == condition


def test_events_a_life_rarely_has():
    letter = DeadLetter("line 3", "not JSON", 'text "with" \\ and \u2028')
    spec = ConnectorSpec("files", (("path", "$"), ("$", "$e")))
    for event in (
        events.StreamDeleted(name="V"),
        events.EpochPlanned(
            epoch=3,
            version=2,
            at_ms=99,
            ends=(events.StreamEnd("V", Position.of({"n": 1})),),
            raised=(events.RaisedWatermark("V", events.FOREVER),),
            skipped=(
                events.SkippedTuples("V", 0, Skip(3, 4, "kills")),
                events.SkippedTuples("V", 2, Skip(0, None, "")),
            ),
        ),
        events.TuplesSkipped(epoch=3, skipped=(events.SkippedTuples("V", 0, Skip(3, 4, "kills")),)),
        events.StreamProgress(stream="V", tuples=1, late=2, dead=3, max_time=None),
        events.QueryEnded(uid="q#1", active_until=None),
        letter,
        spec,
        Compare("<", Literal(math.inf, T.DOUBLE), Literal(-math.inf, T.DOUBLE)),
        {"$": "not a class", "$is": (1, 2.5, None, True)},
        {7: "seven", None: ()},
    ):
        assert through_json(event) == event
    found = through_json(Literal(math.nan, T.DOUBLE))
    assert math.isnan(found.value) and found.type is T.DOUBLE
    assert math.copysign(1, through_json(-0.0)) == -1


@pytest.mark.parametrize(
    "spoil",
    [
        lambda r: {**r, "$": "Popen"},
        lambda r: {**r, "$": 7},
        lambda r: {**r, "extra": 1},
        lambda r: {k: v for k, v in r.items() if k != "name"},
        lambda r: {k: v for k, v in r.items() if k != "$"},
    ],
)
def test_unknown_classes_and_fields_are_refused(spoil):
    with pytest.raises(InternalError) as caught:
        decode(spoil(encode(events.StreamDeleted(name="V"))))
    assert caught.value.reason == "LOG_CORRUPT"


@dataclass(frozen=True)
class Stranger:
    x: int


def test_a_number_that_a_row_has_got_since_has_its_default():
    whole = [5, True, 2]
    for known in (2, 3):
        (read,) = decode({"$rows": "InputBucket", "of": [whole[:known]]})
        assert read == InputBucket(*whole[:known])
    for known in (whole[:1], [*whole, 0]):
        with pytest.raises(InternalError) as e:
            decode({"$rows": "InputBucket", "of": [known]})
        assert e.value.reason == "LOG_CORRUPT"


def test_only_registered_classes_can_be_written():
    with pytest.raises(AssertionError, match="Stranger"):
        encode(Stranger(1))


@given(st.recursive(st.one_of(st.none(), st.booleans(), st.integers(), st.text()), st.lists, max_leaves=8))
def test_plain_values_keep_their_value_and_lists_become_tuples(value):
    def as_tuples(v):
        return tuple(as_tuples(x) for x in v) if isinstance(v, list) else v

    assert through_json(value) == as_tuples(value)
