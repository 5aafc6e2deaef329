"""How a record stands in a file: one line of JSON, with its checksum in front. The same for the local log, its
snapshots, and the objects of the durable tier."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from optimizer.errors import InternalError


class Framed(NamedTuple):
    record: Any
    end: int
    """Of its line, counted from the beginning of the file."""


def frame(record: Any) -> str:
    text = json.dumps(record, separators=(",", ":"))
    return f"{zlib.crc32(text.encode()):08x} {text}\n"


def read_frames(name: str, raw: bytes, *, torn: bool = False) -> Iterator[Framed]:
    """All records of a file. `torn`: its last line may be what a crash has left of one, and is then passed over; any
    other line that is not what was written is LOG_CORRUPT."""
    lines, end = raw.split(b"\n"), 0
    for number, line in enumerate(lines[:-1]):
        end += len(line) + 1
        if len(line) < 10 or line[:9] != b"%08x " % zlib.crc32(line[9:]):
            if torn and number == len(lines) - 2 and not lines[-1]:
                return
            raise InternalError(f"{name}, line {number + 1} is damaged", reason="LOG_CORRUPT")
        yield Framed(json.loads(line[9:]), end)


def read_frame(name: str, raw: bytes) -> Any:
    """The one record of a file."""
    records = [framed.record for framed in read_frames(name, raw)]
    if len(records) != 1:
        raise InternalError(f"{name} is damaged", reason="LOG_CORRUPT")
    return records[0]
