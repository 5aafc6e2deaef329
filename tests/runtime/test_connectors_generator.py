"""The generator: tuple i depends on the seed and on i, and on nothing else."""

from __future__ import annotations

import pickle
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.errors import InvalidRequest
from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.connectors.base import ConnectorSpec, arrow_schema
from runtime.connectors.column_spec import parse
from runtime.connectors.distributions import bits, derive_key
from runtime.connectors.generator import GeneratorSource, parse_config
from runtime.connectors.registry import check_options

SCHEMA = StreamSchema(
    "V",
    (
        Column("ts", ColumnType.TIMESTAMP),
        Column("vID", ColumnType.BIGINT),
        Column("user", ColumnType.INT),
        Column("price", ColumnType.DOUBLE),
        Column("geo", ColumnType.STRING),
        Column("new", ColumnType.BOOLEAN),
        Column("seen", ColumnType.TIMESTAMP),
    ),
    time="ts",
)
COLUMNS = {
    "column.vID": "null(0.1, zipf(1000,1.1))",
    "column.user": "normal(100,20)",
    "column.geo": "weights(DE:3|CH:1)",
    "disorder_ms": "50",
    "late_fraction": "0.1",
    "late_ms": "1000",
}


def source(**options: str) -> GeneratorSource:
    return GeneratorSource(parse_config(options, SCHEMA))


def load(options: dict[str, str], first: int, last: int, partitions: int = 1) -> pa.Table:
    config = parse_config({**options, "partitions": str(partitions)}, SCHEMA)
    reads = GeneratorSource(config).reads({"n": first, "t0": 0}, {"n": last, "t0": 0})
    return pa.concat_tables([r.load(SCHEMA).table for r in reads]).combine_chunks()


def event_ms(table: pa.Table) -> np.ndarray:
    return table["ts"].cast(pa.int64()).to_numpy()


@given(st.integers(0, 2**40), st.lists(st.integers(0, 50), min_size=1, max_size=6), st.integers(1, 7))
@settings(max_examples=40, deadline=None)
def test_any_split_of_a_range_gives_the_same_tuples(first, lengths, partitions):
    edges = np.cumsum([first, *lengths]).tolist()
    if edges[0] == edges[-1]:
        return
    whole = load(COLUMNS, edges[0], edges[-1])
    parts = [load(COLUMNS, a, b, partitions) for a, b in pairwise(edges) if a < b]
    assert pa.concat_tables(parts).combine_chunks().equals(whole)
    assert whole.schema == arrow_schema(SCHEMA)
    assert whole.num_rows == sum(lengths)


def test_the_tuples_of_a_seed_never_change():
    """A recorded sample: whoever changes the arithmetic breaks the recovery of running streams."""
    rows = load({"seed": "7", "column.user": "uniform(1,6)"}, 1_000_000, 1_000_003).drop_columns(["seen", "price"])
    assert [tuple(r.values())[1:] for r in rows.to_pylist()] == RECORDED


RECORDED = [(65341, 4, "e", True), (25051, 5, "f", True), (42274, 1, "a", True)]


def scrambled(key: int, i: int) -> int:
    """SplitMix64 for one number, in plain Python."""
    x = (key + i * 0x9E3779B97F4A7C15) % 2**64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    return x ^ (x >> 31)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**50), st.integers(1, 5))
def test_bits_are_splitmix64(key, first, count):
    assert bits(key, first, first + count).tolist() == [scrambled(key, first + i) for i in range(count)]


def test_seed_stream_and_column_each_matter():
    base = load({}, 0, 100)
    assert not base["vID"].equals(load({"seed": "1"}, 0, 100)["vID"])
    other = StreamSchema("W", SCHEMA.columns, "ts")
    [read] = source().reads({"n": 0, "t0": 0}, {"n": 100, "t0": 0})
    assert not base["vID"].equals(read.load(other).table["vID"])
    same_spec = load({"column.vID": "uniform(0,999)", "column.user": "uniform(0,999)"}, 0, 100)
    assert same_spec["vID"].to_pylist() != same_spec["user"].to_pylist()


def test_reads_survive_pickling_and_split_evenly():
    reads = source(partitions="4").reads({"n": 10, "t0": 5}, {"n": 21, "t0": 5})
    assert [(r.first, r.last) for r in reads] == [(10, 12), (12, 15), (15, 18), (18, 21)]
    again = pickle.loads(pickle.dumps(reads[1]))
    assert again.load(SCHEMA).table.equals(reads[1].load(SCHEMA).table)
    assert source().reads({"n": 5, "t0": 1}, {"n": 5, "t0": 1}) == []
    assert len(source(partitions="8").reads({"n": 0, "t0": 1}, {"n": 3, "t0": 1})) == 3


# -- distributions --------------------------------------------------------------------------------

N = 100_000


def draw(spec: str, type: ColumnType = ColumnType.BIGINT) -> pa.Array:
    return parse(spec, type).draw(derive_key("test"), 0, N, type)


def test_uniform_whole_numbers_include_both_ends_and_are_flat():
    values, counts = np.unique(draw("uniform(1,6)").to_numpy(), return_counts=True)
    assert values.tolist() == [1, 2, 3, 4, 5, 6]
    assert abs(counts - N / 6).max() < 5 * (N / 6) ** 0.5


def test_uniform_over_the_full_range_of_bigint():
    values = draw(f"uniform({-(2**63)},{2**63 - 1})").to_numpy().astype(float)
    assert values.min() < -0.99 * 2**63
    assert values.max() > 0.99 * 2**63
    assert abs(values.mean()) < 0.02 * 2**63
    wide = draw(f"uniform(0,{2**40 - 1})").to_numpy()
    assert wide.min() >= 0
    assert 2**40 * 0.99 < wide.max() < 2**40


def test_uniform_doubles_are_half_open():
    values = draw("uniform(-1,3)", ColumnType.DOUBLE).to_numpy()
    assert values.min() >= -1
    assert values.max() < 3
    assert abs(values.mean() - 1) < 0.02


def test_zipf_frequencies_follow_the_law():
    values, counts = np.unique(draw("zipf(100,1.2)").to_numpy(), return_counts=True)
    weights = np.arange(1, 101) ** -1.2
    expected = N * weights / weights.sum()
    assert values.tolist() == list(range(1, 101))
    assert (abs(counts - expected) < 6 * expected**0.5).all()


def test_choice_weights_bool_and_null_shares():
    geo = draw("choice(DE|CH|AT)", ColumnType.STRING).value_counts().to_pylist()
    assert {g["values"] for g in geo} == {"DE", "CH", "AT"}
    assert all(abs(g["counts"] - N / 3) < 1000 for g in geo)
    heavy = draw("weights(x:8|y:2|z:0)", ColumnType.STRING).value_counts().to_pylist()
    assert {g["values"] for g in heavy} == {"x", "y"}
    assert abs(pc.sum(draw("bool(0.25)", ColumnType.BOOLEAN)).as_py() - N / 4) < 1000
    some = draw("null(0.2, const(7))")
    assert abs(some.null_count - N / 5) < 1000
    assert some.drop_null().unique().to_pylist() == [7]
    assert draw("null(1, seq)").null_count == N
    assert draw("null(0, seq)").null_count == 0


def test_normal():
    values = draw("normal(10,2)", ColumnType.DOUBLE).to_numpy()
    assert abs(values.mean() - 10) < 0.05
    assert abs(values.std() - 2) < 0.05
    assert draw("normal(0,1e300)", ColumnType.INT).type == pa.int32()


def test_seq_const_and_text_from_numbers():
    assert draw("seq").to_pylist()[:3] == [0, 1, 2]
    assert draw("seq(100)", ColumnType.STRING).to_pylist()[:2] == ["100", "101"]
    assert parse("seq", ColumnType.INT).draw(1, 2**31 - 1, 2**31 + 1, ColumnType.INT).to_pylist() == [
        2**31 - 1,
        0,
    ]
    assert draw("const( a, b )", ColumnType.STRING).to_pylist()[0] == "a, b"
    assert draw("uniform(5,5)", ColumnType.TIMESTAMP).cast(pa.int64()).to_pylist()[:2] == [5, 5]


def test_nothing_is_correlated_that_should_not_be():
    a = parse("uniform(0,1)", ColumnType.DOUBLE).draw(derive_key("a"), 0, N, ColumnType.DOUBLE).to_numpy()
    b = parse("uniform(0,1)", ColumnType.DOUBLE).draw(derive_key("b"), 0, N, ColumnType.DOUBLE).to_numpy()
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.02
    assert abs(np.corrcoef(a[:-1], a[1:])[0, 1]) < 0.02


@pytest.mark.parametrize(
    ("type", "spec"),
    [
        ("BIGINT", "unifrom(1,2)"),
        ("BIGINT", "uniform(1)"),
        ("BIGINT", "uniform(2,1)"),
        ("BIGINT", "uniform(1,2"),
        ("BIGINT", "uniform(a,b)"),
        ("BIGINT", "uniform(1.5,2)"),
        ("BIGINT", ""),
        ("INT", "uniform(0,3000000000)"),
        ("INT", "const(x)"),
        ("BIGINT", "zipf(0,1)"),
        ("BIGINT", "zipf(99999999999,1)"),
        ("BIGINT", "zipf(10,-1)"),
        ("BIGINT", "bool(0.5)"),
        ("BIGINT", "choice()"),
        ("BIGINT", "choice(1|x)"),
        ("BOOLEAN", "bool(1.5)"),
        ("BOOLEAN", "uniform(0,1)"),
        ("BOOLEAN", "const(yes)"),
        ("STRING", "normal(0,1)"),
        ("STRING", "weights(a|b)"),
        ("STRING", "weights(a:0)"),
        ("STRING", "weights(a:x)"),
        ("DOUBLE", "normal(nan,1)"),
        ("DOUBLE", "null(2, seq)"),
        ("DOUBLE", "null(0.5)"),
        ("DOUBLE", "null(0.5, what)"),
    ],
)
def test_specs_that_make_no_sense(type, spec):
    with pytest.raises(ValueError, match=r"."):
        parse(spec, ColumnType(type))


# -- event time --------------------------------------------------------------------------------


def test_event_time_follows_the_offset():
    options = {"start_ms": "5000", "event_rate": "400"}
    assert event_ms(load(options, 0, 5)).tolist() == [5000, 5002, 5005, 5007, 5010]
    assert event_ms(load({"event_rate": "0.5"}, 0, 3)).tolist() == [0, 2000, 4000]
    assert event_ms(load({"rate": "100"}, 0, 2)).tolist() == [0, 10]
    assert load({}, 0, 5)["seen"].equals(load({}, 0, 5)["ts"])
    far = event_ms(load({"event_rate": "333.3"}, 10**12, 10**12 + 2))
    assert abs(far[0] - 10**15 / 333.3) < 1e6


def test_disorder_stays_within_its_bound_and_uses_it():
    orderly = event_ms(load({}, 0, 20_000))
    back = orderly - event_ms(load({"disorder_ms": "50"}, 0, 20_000))
    assert set(back.tolist()) == set(range(51))


def test_late_tuples_are_the_given_share_and_moved_by_exactly_late_ms():
    options = {"late_fraction": "0.05", "late_ms": "10000"}
    back = event_ms(load({}, 0, N)) - event_ms(load(options, 0, N))
    assert set(back.tolist()) == {0, 10_000}
    assert abs((back > 0).sum() - N * 0.05) < 500


def test_bigint_event_time():
    schema = StreamSchema("B", (Column("t", ColumnType.BIGINT),), "t")
    [read] = GeneratorSource(parse_config({}, schema)).reads({"n": 0, "t0": 0}, {"n": 3, "t0": 0})
    assert read.load(schema).table.to_pydict() == {"t": [0, 1, 2]}


# -- offsets --------------------------------------------------------------------------------


def test_rate_is_kept_from_the_first_plan_on():
    s = source(rate="1000")
    first = s.latest(s.initial(), 50_000)
    assert first == {"n": 1, "t0": 50_000}  # tuple 0 is due at once
    assert s.latest(first, 50_000) is first
    assert s.latest(first, 50_100) == {"n": 101, "t0": 50_000}
    assert s.latest(first, 40_000) is first  # a clock that went back
    assert source(rate="0.5").latest({"n": 1, "t0": 0}, 3999) == {"n": 2, "t0": 0}


def test_catching_up_is_bounded_by_batch():
    s = source(rate="1000", batch="300")
    offset = {"n": 1, "t0": 0}
    seen = []
    for _ in range(5):
        offset = s.latest(offset, 1000)
        seen.append(offset["n"])
    assert seen == [301, 601, 901, 1001, 1001]


@pytest.mark.parametrize("rate", ["max", "0"])
def test_as_fast_as_possible_until_the_limit(rate):
    s = source(rate=rate, batch="40", limit="100")
    offset, ends = s.initial(), []
    while (after := s.latest(offset, 7)) is not offset:
        offset = after
        ends.append(offset["n"])
    assert ends == [40, 80, 100]


def test_start_now_is_the_time_of_the_first_plan_even_after_a_restart():
    s = source(rate="max", start_ms="now", batch="5")
    first = s.latest(s.initial(), 123_000)
    second = source(rate="max", start_ms="now", batch="5").latest(first, 999_000)
    [read] = s.reads(first, second)
    assert event_ms(read.load(SCHEMA).table)[0] == 123_005


def test_another_place_means_the_same_tuples():
    s = source(rate="10", start_ms="now")
    stands = {"n": 1, "t0": 5000}
    assert s.seek("earliest", stands, 7000) == {"n": 0, "t0": 5000}
    assert s.seek("latest", stands, 7000) == {"n": 21, "t0": 5000}, "what is due is left out"
    assert s.seek("20", stands, 7000) == {"n": 20, "t0": 5000}
    assert source(rate="max").seek("latest", stands, 7000) == stands
    with pytest.raises(InvalidRequest, match="from 0 to 21"):
        s.seek("22", stands, 7000)


@given(st.lists(st.integers(0, 3000), max_size=8), st.integers(1, 5000), st.integers(1, 500))
@settings(max_examples=50, deadline=None)
def test_offsets_only_move_forward_and_never_beyond_what_is_due(pauses, rate, batch):
    s = source(rate=str(rate), batch=str(batch))
    offset, now = s.initial(), 10_000
    for pause in pauses:
        now += pause
        after = s.latest(offset, now)
        assert offset["n"] <= after["n"] <= offset["n"] + batch
        assert after["n"] <= (now - (after["t0"] or now)) * rate / 1000 + 1
        offset = after


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rate": "fast"}, "rate"),
        ({"rate": "-1"}, "rate"),
        ({"rate": "nan"}, "rate"),
        ({"event_rate": "0"}, "event_rate"),
        ({"seed": "x"}, "seed"),
        ({"start_ms": "yesterday"}, "start_ms"),
        ({"disorder_ms": "-1"}, "disorder_ms"),
        ({"late_fraction": "0.1"}, "late_ms"),
        ({"late_fraction": "2", "late_ms": "1"}, "late_fraction"),
        ({"limit": "-1"}, "limit"),
        ({"partitions": "0"}, "partitions"),
        ({"batch": "0"}, "batch"),
        ({"column.vid": "seq"}, "did you mean vID"),
        ({"column.ts": "seq"}, "event time"),
        ({"column.vID": "zipff(3,1)"}, "zipff"),
        ({"column.": "seq"}, "no option"),
    ],
)
def test_bad_options_say_which_and_why(options, said):
    with pytest.raises(InvalidRequest) as caught:
        check_options(ConnectorSpec("generator", tuple(options.items())), SCHEMA)
    assert caught.value.reason == "BAD_CONNECTOR_OPTION"
    assert said in str(caught.value)
