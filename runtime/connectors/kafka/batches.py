"""Messages a batch at a time: what the brokers send is a batch of records, and stays one until its values are parsed.

kafka-python makes a Python object of every record, which costs more than fetching, decompressing and parsing it.
Here its fetcher is given whole batches instead: a batch appears as one record whose value is a `Batch`, and a kernel
finds the values inside (runtime.kernels.records). What is decided per batch stays with the library: fetching,
checksums, compression, transaction markers, aborted transactions, positions.

That uses an inner class of the library. If it does not look as expected (another version), or a batch is of an old
format, ordinary records come and are packed here; the reader sees no difference.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from runtime.connectors.kafka.connection import Connection, borrow, library, new_consumer
from runtime.kernels.records import object_lines, unpack

I64 = npt.NDArray[np.int64]

_EXPECTED = ["self", "tp", "records", "key_deserializer", "value_deserializer"]
_MAGIC = 2


@dataclass(frozen=True, slots=True)
class Packed(Sequence[bytes | None]):
    """Messages in one piece of memory: `data[starts[i] : starts[i] + lengths[i]]`, length -1 without a value."""

    data: npt.NDArray[np.uint8]
    offsets: I64
    starts: I64
    lengths: I64

    @staticmethod
    def of(values: Sequence[bytes | None], offsets: Iterable[int]) -> Packed:
        lengths = np.array([-1 if v is None else len(v) for v in values], np.int64)
        ends = np.cumsum(np.maximum(lengths, 0))
        data = np.frombuffer(bytearray(b"".join(v or b"" for v in values)), np.uint8)
        return Packed(data, np.array(list(offsets), np.int64), ends - np.maximum(lengths, 0), lengths)

    def between(self, start: int, end: int) -> Packed:
        """Those with offsets in [start, end)."""
        if not len(self) or (self.offsets[0] >= start and self.offsets[-1] < end):
            return self
        keep = (self.offsets >= start) & (self.offsets < end)
        return Packed(self.data, self.offsets[keep], self.starts[keep], self.lengths[keep])

    def object_lines(self) -> bytes | None:
        """One value a line, if every value looks like a JSON object and holds no line break."""
        found = object_lines(self.data, self.starts, self.lengths)
        return found[:-1].tobytes() if len(found) else None

    def __len__(self) -> int:
        return len(self.offsets)

    @overload
    def __getitem__(self, i: int) -> bytes | None: ...
    @overload
    def __getitem__(self, i: slice) -> list[bytes | None]: ...
    def __getitem__(self, i: int | slice) -> bytes | list[bytes | None] | None:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        if self.lengths[i] < 0:
            return None
        return self.data[self.starts[i] : self.starts[i] + self.lengths[i]].tobytes()


def join(parts: Sequence[Packed]) -> Packed:
    if len(parts) == 1:
        return parts[0]
    shift = np.cumsum([0, *(len(p.data) for p in parts)])
    none = np.empty(0, np.int64)
    return Packed(
        np.concatenate([p.data for p in parts] or [np.empty(0, np.uint8)]),
        np.concatenate([p.offsets for p in parts] or [none]),
        np.concatenate([p.starts + at for p, at in zip(parts, shift, strict=False)] or [none]),
        np.concatenate([p.lengths for p in parts] or [none]),
    )


def packed(records: Sequence[Any], start: int, end: int) -> Iterator[Packed]:
    """What a poll gave, cut to offsets [start, end). Batches that lie behind the end are not even unpacked."""
    for whole, group in groupby(records, key=lambda r: isinstance(r.value, Batch)):
        if not whole:
            alone = list(group)
            yield Packed.of([r.value for r in alone], [r.offset for r in alone]).between(start, end)
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

    def unpack(self) -> Packed:
        batch = self._batch
        batch._maybe_uncompress()
        data = np.frombuffer(batch._buffer, np.uint8)
        deltas, starts, lengths, end = unpack(data, batch._pos, batch.records_count)
        if end != len(data):
            raise library().errors.CorruptRecordError(f"the batch at offset {self.first} is damaged")
        return Packed(data, deltas + self.first, starts, lengths)


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
    if own is not None and unpacking is not None and list(inspect.signature(unpacking).parameters) == _EXPECTED:
        fetcher.PartitionRecords = _by_batch(own)  # type: ignore[union-attr]
    return client


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
