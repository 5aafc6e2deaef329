"""Source 'push': tuples handed over by a caller (replay, tests, an embedding program) instead of fetched.

Each append writes one immutable *segment* into the source's directory, renamed into place, so what was
accepted survives a crash and is read the same way every time. Rows are kept as they came, not decoded: broken
ones become dead letters when they are read, like in every other source. An offset is a number of segments; an
epoch takes all there are.

`trim` deletes segments that no epoch will read again. Before it deletes, it records how many segments there
ever were, so numbers are never used twice, even when the directory is empty. Where the log knows the stream's offset,
that says the same (`begin`); so a damaged record is said and passed over.
"""

from __future__ import annotations

import io
import json
import logging
import numbers
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from optimizer.errors import InternalError, InvalidRequest, NotFound
from optimizer.model.types import StreamSchema
from runtime.connectors.base import Kept, Loaded, Mirror, Offset, Read, Source, file_arrived, seek_number
from runtime.connectors.conform import check_bounds, conform_table
from runtime.connectors.formats import format_of, load_file, unreadable
from runtime.connectors.options import Option
from runtime.connectors.values import clean_text, safe_repr
from runtime.crashpoints import reach
from runtime.files import sync_directory, write_atomically
from runtime.log.framing import frame, read_frame

OPTIONS: tuple[Option, ...] = ()
_BATCH = re.compile(r"([0-9]{10,})\.(jsonl|csv|parquet|arrow)(\.gz)?")
_TRIMMED = "trimmed"
_LOG = logging.getLogger(__name__)


class PushSource(Source):
    """The only writer of its directory. Not for use from several threads at once."""

    unit = "batches"
    may_read_ahead = False

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._segments = batches_in(directory)
        self._trimmed = _read_mark(directory / _TRIMMED)
        self._count = max([self._trimmed, *(n + 1 for n in self._segments)])
        self._mirror: Mirror | None = None

    def begin(self, offset: Offset) -> None:
        """Numbers below `offset` are used up, also when the mark of what was trimmed is lost."""
        self._count = max(int(offset), self._count)

    def mirror(self, to: Mirror, offset: Offset) -> None:
        there = set(to.names())
        for name in there:
            path = self._directory / name
            if not path.exists():
                to.fetch(name, path)
            self._segments[int(name.split(".")[0])] = path
        for path in self._segments.values():
            if path.name not in there:
                to.put_file(path.name, path)
        self._count = max([self._count, *(n + 1 for n in self._segments)])
        self._mirror = to

    def pushable(self, stream: str) -> PushSource:
        return self

    def append_rows(self, rows: Sequence[Any]) -> int:
        """JSON-like rows, one segment. Answers the offset after them."""
        return self._append("jsonl", b"".join(_line(row) for row in rows)) if rows else self._count

    def append_table(self, table: pa.Table) -> int:
        """A table whose columns are matched by name when it is read."""
        buffer = io.BytesIO()
        with pa.ipc.new_file(buffer, table.schema) as writer:
            writer.write_table(table)
        return self._append("arrow", buffer.getvalue())

    def append_file(self, path: Path) -> int:
        """A copy of a Parquet, CSV or JSON lines file, to be read in file order."""
        format = format_of(path.name)
        if format is None:
            raise InvalidRequest(
                f"cannot tell the format of {path.name}",
                hint="the name must end in .parquet, .csv or .jsonl (or .gz)",
            )
        if not path.is_file():
            raise NotFound(f"there is no file {path}")
        suffix = format + (".gz" if path.name.lower().endswith(".gz") else "")
        with open(path, "rb") as source:
            return self._append(suffix, lambda file: shutil.copyfileobj(source, file))

    def _append(self, suffix: str, content: bytes | Callable[[BinaryIO], object]) -> int:
        path = self._directory / f"{self._count:010d}.{suffix}"
        mirror = self._mirror
        mirrored = None if mirror is None else lambda whole: mirror.put_file(path.name, whole)
        write_atomically(path, content, sync=True, point="file.written", before_rename=mirrored)
        self._segments[self._count] = path
        self._count += 1
        reach("push.appended")
        return self._count

    def initial(self) -> Offset:
        return 0

    def latest(self, start: Offset, now_ms: int) -> Offset:
        return max(int(start), self._count)

    def backlog(self, start: Offset, now_ms: int) -> int:
        """An epoch takes all there is."""
        return 0

    def reads(self, start: Offset, end: Offset) -> Sequence[Read]:
        missing = [n for n in range(int(start), int(end)) if n not in self._segments]
        if missing:
            raise InternalError(f"push segment {missing[0]} of {self._directory} is gone, but an epoch still needs it")
        mirror = self._mirror
        if mirror is not None and mirror.for_tasks:
            paths = [self._segments[n] for n in range(int(start), int(end))]
            return [
                PushRead(path.name, n, mirror.kept(path.name), file_arrived(path))
                for n, path in enumerate(paths, int(start))
            ]
        return [PushRead(str(self._segments[n]), n) for n in range(int(start), int(end))]

    def seek(self, where: str, stands: Offset, now_ms: int) -> Offset:
        """Batches are kept until no epoch and no open bucket needs them."""
        earliest = self._count
        while earliest - 1 in self._segments:
            earliest -= 1
        return seek_number(where, earliest, self._count, "batches")

    def trim(self, needed: Iterable[Offset]) -> None:
        before = min(int(offset) for offset in needed)
        gone = [n for n in self._segments if n < before]
        if not gone:
            return
        self._trimmed = max(self._trimmed, min(before, self._count))
        mark = frame(self._trimmed).encode()
        write_atomically(self._directory / _TRIMMED, mark, sync=True, point="file.written")
        reach("push.marked")
        paths = [self._segments.pop(n) for n in gone]
        for path in paths:
            path.unlink(missing_ok=True)
        sync_directory(self._directory)
        if self._mirror is not None:
            self._mirror.discard(path.name for path in paths)


def batches_in(directory: Path) -> dict[int, Path]:
    """By number. Other names are left alone."""
    return {int(m[1]): p for p in directory.iterdir() if (m := _BATCH.fullmatch(p.name))}


def _read_mark(path: Path) -> int:
    try:
        return int(read_frame(path.name, path.read_bytes()).record)
    except FileNotFoundError:
        return 0
    except (InternalError, TypeError, ValueError):
        _LOG.warning("%s is damaged and not used: the log knows how far the stream was read", path)
        return 0


@dataclass(frozen=True, slots=True)
class PushRead:
    """One segment: a file by its path, or where tasks do not see that, in the place where it is `kept`, by its name;
    then `arrived_ms` says when it came."""

    path: str
    number: int
    kept: Kept | None = None
    arrived_ms: int | None = None

    @property
    def place(self) -> str:
        return f"pushed batch {self.number}"

    def load(self, schema: StreamSchema) -> Loaded:
        loaded = self._load(schema)
        loaded.arrived_ms = file_arrived(Path(self.path)) if self.kept is None else self.arrived_ms
        return loaded

    def _load(self, schema: StreamSchema) -> Loaded:
        path, place = Path(self.path), self.place
        data = None if self.kept is None else self.kept.get()
        if path.suffix == ".arrow":
            try:
                return conform_table(self._table(data), schema, place)
            except (pa.ArrowException, ValueError, KeyError, OSError) as why:
                if isinstance(why, OSError) and why.errno is not None:
                    raise  # the system's; Arrow's own has no number and says that the table is none
                return unreadable(schema, place, str(why))
        return load_file(path, path.name.split(".")[1], schema, place, data=data)

    def _table(self, data: bytes | None) -> pa.Table:
        file = pa.OSFile(self.path) if data is None else pa.BufferReader(data)
        with file as source, pa.ipc.open_file(source) as reader:
            table = reader.read_all()
        check_bounds(table)
        return table


def _line(row: Any) -> bytes:
    try:
        return json.dumps(row, default=_plain_number).encode() + b"\n"
    except (TypeError, ValueError, RecursionError):
        # Not JSON (bytes, a date, a cycle). As text it is no object, so it becomes a dead letter when read.
        return json.dumps(f"not JSON: {clean_text(safe_repr(row), 200)}").encode() + b"\n"


def _plain_number(value: Any) -> Any:
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    raise TypeError(type(value).__name__)
