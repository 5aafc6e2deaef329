"""The connector interface: where tuples come from, and where a query's rows go besides the result log.

A source lives on the driver and only talks about offsets (JSON values it alone understands). The platform asks how
far it may read (`latest`), writes the range into the epoch log, and then asks for the reads of that range. `reads`
must be a pure function of the range: after a crash the unfinished epoch is read again from its logged offsets and must
bring the same tuples. A read is a small picklable value, a name rather than bytes; `load` runs inside a Spark task.

What only some sources have (tuples handed over by a caller, files of their own that must survive the machine) is part
of the interface, with a default for all others: the engine never asks of which kind a source is. A source of your own
inherits from `Source` and gets these defaults.

A sink runs on the driver after the epoch is committed to the result log, called from one thread of its own; it may be
called again for the same (query, epoch) after a failure or a crash and must then replace what it wrote (that is what
`epoch` is for).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from optimizer.errors import InternalError, InvalidRequest
from optimizer.model.types import StreamSchema

Offset = Any
"""A JSON value: number, string, list or object."""


@dataclass(frozen=True, slots=True)
class ConnectorSpec:
    """What the user configured: a kind ('generator', 'files', 'push', ...) and its options, all as text."""

    kind: str
    options: tuple[tuple[str, str], ...] = ()

    @property
    def settings(self) -> Mapping[str, str]:
        return dict(self.options)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One tuple that could not be used: where it stood, what was wrong, and its text (cut to 200 characters)."""

    place: str
    reason: str
    text: str


@dataclass(slots=True)
class Loaded:
    """Tuples in the stream's column order and Arrow types (see `arrow_schema`), and what could not be decoded.

    Tuples whose event time is NULL stay in: the source operator counts them as dead letters. `arrived_ms`: when the
    first of them could have been read, in wall-clock milliseconds; None: it is not known, and counts as the moment when
    the epoch was planned.
    """

    table: pa.Table
    dead: list[DeadLetter] = field(default_factory=list)
    arrived_ms: int | None = None


class Read(Protocol):
    """A picklable piece of an offset range; pieces of one range can be loaded in parallel, in any process."""

    def load(self, schema: StreamSchema) -> Loaded: ...


def load(read: Read, schema: StreamSchema, needed: frozenset[str]) -> Loaded:
    """What the read brings; the table may lack columns that are not `needed`.

    A read that can leave columns out has a method `load_some`. It may do so only where it is certain that the same
    tuples come: whether a tuple can be decoded must not depend on who asks.
    """
    some = getattr(read, "load_some", None)
    loaded: Loaded = read.load(schema) if some is None else some(schema, needed)
    return loaded


def place_of(read: Read, otherwise: str) -> str:
    """Where a read's tuples lie, in words. One that knows (a file, a piece of a topic) has an attribute `place`."""
    return str(getattr(read, "place", otherwise))


class Source(Protocol):
    @property
    def unit(self) -> str:
        """What `backlog` counts: tuples, files, messages or batches."""
        ...

    def initial(self) -> Offset:
        """Where a new stream starts."""
        ...

    def latest(self, start: Offset, now_ms: int) -> Offset:
        """How far one epoch may read from `start` at processing time `now_ms`; `start` itself when nothing is there."""
        ...

    def backlog(self, start: Offset, now_ms: int) -> int:
        """What is due at `now_ms` and beyond `latest(start, now_ms)`, in `unit`: what one epoch has to leave for later.

        0: an epoch could read all there is. Asked right after `latest`; where looking costs I/O, the answer is what
        `latest` saw.
        """
        ...

    def reads(self, start: Offset, end: Offset) -> Sequence[Read]:
        """The pieces of [start, end), in stream order. Pure: the same range gives the same tuples for ever.

        Tasks load them wherever they run; if they may run elsewhere, a mirror says so (`for_tasks`). May be called on
        another thread while the next range is asked for."""
        ...

    # -- what most sources have no use for --

    @property
    def may_read_ahead(self) -> bool:
        """May the next epoch be read while this one runs? Not if tuples that arrive meanwhile belong to it as well."""
        return True

    def trim(self, needed: Iterable[Offset]) -> None:
        """Reads begin at one of these offsets or later, from now on: what lies before all of them can go."""
        return

    def mirror(self, to: Mirror, offset: Offset) -> None:
        """Keep what lies in this source's directory in a second place as well. Called once, before anything else: what
        only one side has, the other gets. Afterwards everything is written there first. `offset`: where the stream
        stands."""
        return

    def begin(self, offset: Offset) -> None:
        """The stream stands at `offset`, says the log. Called once, before anything but `mirror`: a source that keeps
        something in its directory can see here whether it still has what it once gave out."""
        return

    def seek(self, where: str, stands: Offset, now_ms: int) -> Offset:
        """The offset that an operator means: `earliest`, `latest`, or one in the words of this source. `stands`: where
        the stream is now. BAD_OFFSET (see `bad_offset`) if it cannot be read from there."""
        raise bad_offset(where, "this source can only go on where it stands")

    def pushable(self, stream: str) -> Pushable:
        """Where rows for this stream can be handed over; InvalidRequest if it fetches its tuples itself."""
        raise InvalidRequest(
            f"stream {stream!r} reads from its own source, tuples cannot be pushed to it", reason="NOT_A_PUSH_STREAM"
        )


def bad_offset(where: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"the stream cannot be read from {where!r} on: {why}", reason="BAD_OFFSET")


def seek_number(where: str, earliest: int, latest: int, what: str) -> int:
    """For sources whose offsets are numbers: `what` they count lies between the two."""
    match where.strip().lower():
        case "earliest":
            return earliest
        case "latest":
            return latest
        case text if text.isdecimal() and len(text) < 20 and earliest <= int(text) <= latest:
            return int(text)
    raise bad_offset(where, f"say earliest, latest, or a number of {what} from {earliest} to {latest}")


def file_arrived(path: Path) -> int | None:
    """When a file came to lie there complete, in milliseconds: it was written or renamed last. None: it is gone."""
    try:
        found = path.stat()
    except OSError:
        return None
    return int(max(found.st_mtime, found.st_ctime) * 1000)


def source_damaged(path: Path, what: str) -> InternalError:
    """What a source keeps in the state directory is not what it wrote there."""
    return InternalError(
        f"{path} is damaged: {what}",
        reason="SOURCE_DAMAGED",
        hint="put the file back from a copy of the state directory and start again; without it nobody knows what was "
        "read already, and only an empty state directory is left",
    )


class Pushable(Protocol):
    """Takes tuples from a caller. They are on disk when the call returns; the answer is the offset after them."""

    def append_rows(self, rows: Sequence[Any]) -> int: ...

    def append_table(self, table: pa.Table) -> int: ...

    def append_file(self, path: Path) -> int: ...


class Kept(Protocol):
    """One file in a second place, by name: a small picklable value."""

    def get(self) -> bytes | None:
        """What it holds; None: there is no such file."""
        ...


class Mirror(Protocol):
    """A second place, which survives the loss of the machine, for what a source keeps in its directory.

    `for_tasks`: tasks run on machines that see this place and not the directory, so what reads need must be here."""

    @property
    def for_tasks(self) -> bool: ...

    def kept(self, name: str) -> Kept:
        """For a task that reads this file here; it fails if the file is gone."""
        ...

    def names(self) -> Sequence[str]: ...

    def put(self, name: str, data: bytes) -> None: ...

    def put_file(self, name: str, path: Path) -> None: ...

    def get(self, name: str) -> bytes: ...

    def fetch(self, name: str, path: Path) -> None: ...

    def discard(self, names: Iterable[str]) -> None: ...


class Sink(Protocol):
    def write(self, query_id: str, epoch: int, table: pa.Table) -> None: ...

    def close(self) -> None: ...


def arrow_schema(schema: StreamSchema) -> pa.Schema:
    """BIGINT int64, INT int32, DOUBLE float64, BOOLEAN bool, STRING string, TIMESTAMP timestamp[ms]."""
    return pa.schema([(c.name, ARROW_TYPES[c.type]) for c in schema.columns])


ARROW_TYPES: dict[str, pa.DataType] = {
    "BIGINT": pa.int64(),
    "INT": pa.int32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BOOLEAN": pa.bool_(),
    "TIMESTAMP": pa.timestamp("ms"),
}
