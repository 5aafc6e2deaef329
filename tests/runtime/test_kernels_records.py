"""Kafka's records read by a kernel, against the library that reads them one by one; and bytes that are no records."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.errors import KafkaError
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from runtime.connectors.kafka.packed import PackedMessages, join_messages
from runtime.connectors.kafka.whole_batches import Batch, _Batches, packed
from runtime.kernels.records import object_lines, unpack

some_bytes = st.none() | st.binary(max_size=40) | st.integers(0, 300).map(lambda n: b"x" * n)
headers = st.lists(st.tuples(st.text(max_size=5), some_bytes), max_size=3)
records = st.lists(st.tuples(st.integers(0, 1 << 41), some_bytes, some_bytes, headers), min_size=1, max_size=30)


def built(rows: list[tuple[Any, ...]], compression: int = 0) -> bytearray:
    builder = DefaultRecordBatchBuilder(2, compression, False, -1, -1, -1, 1 << 20)
    for i, (timestamp, key, value, more) in enumerate(rows):
        assert builder.append(i, timestamp=timestamp, key=key, value=value, headers=more) is not None
    return builder.build()


@given(records, st.sampled_from([0, 1]))
def test_values_and_offsets_are_those_the_library_finds(rows, compression):
    raw = built(rows, compression)
    found = Batch(DefaultRecordBatch(raw)).unpack()
    expected = list(DefaultRecordBatch(raw))
    assert list(found) == [r.value for r in expected] == [v for _, _, v, _ in rows]
    assert found.offsets.tolist() == [r.offset for r in expected]


@settings(max_examples=200)
@given(records, st.data())
def test_damaged_bytes_are_refused_or_read_like_the_library_does(rows, data):
    """Never read past the end, never go on for ever, never take what the library would refuse."""
    raw = built(rows)
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(61, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = Batch(DefaultRecordBatch(raw)).unpack()
    except KafkaError:
        return
    try:
        expected = list(DefaultRecordBatch(raw))
    except (KafkaError, UnicodeDecodeError):
        return  # a header's name, which nobody reads here
    assert list(found) == [r.value for r in expected] and found.offsets.tolist() == [r.offset for r in expected]


@given(st.binary(max_size=200), st.integers(0, 50))
def test_any_bytes_are_survived(raw, count):
    deltas, starts, lengths, end = unpack(np.frombuffer(bytearray(raw), np.uint8), 0, count)
    assert -1 <= end <= len(raw) and len(deltas) == len(starts) == len(lengths) == count
    if end >= 0:
        assert ((starts >= 0) & (starts + np.maximum(lengths, 0) <= end)).all()


values = st.lists(
    st.none() | st.binary(max_size=10) | st.sampled_from([b"{}", b'{"a":1}', b"{\n}", b"{", b"}"]), max_size=8
)


@given(values)
def test_lines_are_made_only_of_what_looks_like_objects(given_values):
    whole = PackedMessages.of(given_values, range(len(given_values)))
    good = all(v and v[:1] == b"{" and v[-1:] == b"}" and len(v) > 1 and b"\n" not in v for v in given_values)
    expected = b"\n".join(v or b"" for v in given_values) if good and given_values else None
    assert whole.object_lines() == expected
    assert list(whole) == given_values
    assert len(object_lines(whole.data, whole.starts, whole.lengths)) == (len(expected) + 1 if expected else 0)


@given(st.lists(values, max_size=4), st.integers(-1, 30), st.integers(-1, 30))
def test_parts_are_joined_and_cut_by_offset(parts, start, end):
    at, pieces = 0, []
    for part in parts:
        pieces.append(PackedMessages.of(part, range(at, at + len(part))))
        at += len(part)
    flat = [v for part in parts for v in part]
    whole = join_messages(pieces)
    assert list(whole) == flat and whole.offsets.tolist() == list(range(len(flat)))
    assert list(whole.between(start, end)) == [v for i, v in enumerate(flat) if start <= i < end]


class Polled:
    def __init__(self, value: Any, offset: int) -> None:
        self.value, self.offset = value, offset


def test_ordinary_records_and_batches_keep_their_order():
    """Old formats come record by record, and may stand between batches."""
    batch = DefaultRecordBatch(built([(0, None, b"a", []), (0, None, b"b", [])]))
    polled = [Polled(b"x", -2), Polled(None, -1), Polled(Batch(batch), 1), Polled(b"y", 2)]
    assert list(join_messages(list(packed(polled, -1, 2)))) == [None, b"a", b"b"]
    assert list(join_messages(list(packed(polled, 1, 99)))) == [b"b", b"y"]


def test_transaction_markers_and_old_formats_are_left_to_the_library():
    class Records:
        def __init__(self, *batches: Any) -> None:
            self._batches = [*batches, None]

        def next_batch(self) -> Any:
            return self._batches.pop(0)

    class Marker:
        magic, is_control_batch = 2, True

    class Old:
        magic, is_control_batch = 1, False

    marker, old = Marker(), Old()
    batches = _Batches(Records(marker, old, DefaultRecordBatch(built([(5, b"k", b"v", [])]))))
    assert batches.next_batch() is marker and batches.next_batch() is old
    whole = batches.next_batch()
    assert whole.magic == 2 and whole.next_offset == 1 and not whole.is_transactional
    (record,) = whole
    assert record.offset == 0 and list(record.value.unpack()) == [b"v"]
    assert batches.next_batch() is None
