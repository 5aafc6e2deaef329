"""Whole batches of records out of kafka-python's consumer: the one place that uses parts of it that are not public.

Brokers send batches of records. The public way, `KafkaConsumer.poll`, makes a Python object of every record: some
50,000 a second on a core, which is more work than fetching, decompressing and parsing them together. A kernel
(runtime.kernels.records) finds the values inside a batch a thousand times as fast, but no public call hands out the
batch. So the consumer's fetcher is given another class for its `PartitionRecords`, under which a batch appears as one
record whose value is a `Batch`. What is decided per batch stays with the library: fetching, checksums, compression,
transaction markers, aborted transactions, positions.

If the library does not look as expected (another version), it is left alone and says so once in the log; records then
come one by one and are packed here, with the same outcome. tests/kafka/test_batches.py fails in that case, so that the
loss of speed is noticed. Batches of old formats always come record by record.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import groupby
from typing import Any

import numpy as np

from runtime.connectors.kafka.connection import Connection, borrow, library, new_consumer
from runtime.connectors.kafka.packed import PackedMessages
from runtime.kernels.records import unpack

_EXPECTED = ["self", "tp", "records", "key_deserializer", "value_deserializer"]
_MAGIC = 2
_LOG = logging.getLogger(__name__)


def packed(records: Sequence[Any], start: int, end: int) -> Iterator[PackedMessages]:
    """What a poll gave, cut to offsets [start, end). Batches that lie behind the end are not even unpacked."""
    for whole, group in groupby(records, key=lambda r: isinstance(r.value, Batch)):
        if not whole:
            alone = list(group)
            yield PackedMessages.of([r.value for r in alone], [r.offset for r in alone]).between(start, end)
            continue
        for record in group:
            if record.value.first < end:
                yield record.value.unpack().between(start, end)


class Batch:
    """A batch of records as it came; the library has looked at its header only."""

    __slots__ = ("_batch",)

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    @property
    def first(self) -> int:
        return int(self._batch.base_offset)

    def __len__(self) -> int:
        return int(self._batch.size_in_bytes)

    def unpack(self) -> PackedMessages:
        batch = self._batch
        batch._maybe_uncompress()
        data = np.frombuffer(batch._buffer, np.uint8)
        deltas, starts, lengths, end = unpack(data, batch._pos, batch.records_count)
        if end != len(data):
            raise library().errors.CorruptRecordError(f"the batch at offset {self.first} is damaged")
        return PackedMessages(data, deltas + self.first, starts, lengths)


# -- inside the library's fetcher ---------------------------------------------------------------------------------


@contextmanager
def batch_consumer(connection: Connection, timeout_ms: int) -> Iterator[Any]:
    """Like `consumer`, but values are batches where that is possible."""
    with borrow("batches", connection, lambda: by_batch(new_consumer(connection, timeout_ms))) as client:
        yield client


def by_batch(client: Any) -> Any:
    """Let this client give batches, if it is made as expected; else it stays as it is."""
    fetcher = getattr(client, "_fetcher", None)
    own = getattr(type(fetcher), "PartitionRecords", None)
    unpacking = getattr(own, "_unpack_records", None)
    if own is None or unpacking is None or list(inspect.signature(unpacking).parameters) != _EXPECTED:
        _warn_once(library().__version__)
    else:
        fetcher.PartitionRecords = _by_batch(own)  # type: ignore[union-attr]
    return client


@cache
def _warn_once(version: str) -> None:
    _LOG.warning("kafka-python %s hands out no whole batches: messages are read one by one, which is slower", version)


@cache
def _by_batch(own: Any) -> Any:
    class BatchRecords(own):  # type: ignore[misc]
        def _unpack_records(self, tp: Any, records: Any, key_deserializer: Any, value_deserializer: Any) -> Any:
            return super()._unpack_records(tp, _Batches(records), key_deserializer, value_deserializer)

    return BatchRecords


class _Batches:
    """The library's batches, each as one record; those of old formats and transaction markers as they are."""

    def __init__(self, records: Any) -> None:
        self._records = records

    def next_batch(self) -> Any:
        batch = self._records.next_batch()
        if batch is None or batch.magic != _MAGIC or batch.is_control_batch:
            return batch
        return _Whole(batch)


class _Whole:
    """A batch with one record in it: itself. Asked for anything else, it is the batch."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __iter__(self) -> Iterator[_Record]:
        return iter((_Record(self._batch),) if self._batch.records_count else ())


class _Record:
    """What the library asks of a record. Its offset is the batch's last, so the position moves behind the batch."""

    key, headers, checksum = None, (), None

    def __init__(self, batch: Any) -> None:
        self.value = Batch(batch)
        self.offset = batch.last_offset
        self.timestamp, self.timestamp_type = batch.max_timestamp, batch.timestamp_type
        self.size_in_bytes = batch.size_in_bytes

    def validate_crc(self) -> bool:
        return True  # its batch was checked
