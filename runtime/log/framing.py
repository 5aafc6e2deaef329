"""How a record stands in a file: one line of JSON, with a checksum in front. The same for the local log, its snapshots,
the objects of a store, and what sources write down.

The checksum of a line covers the line and the checksum of the line before it (`after`). So lines form a chain: one
that is missing, doubled, out of order or from another file is noticed like a flipped bit, and the last checksum stands
for everything before it. It costs nothing more than a checksum per line.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from optimizer.errors import InternalError


class Framed(NamedTuple):
    """`end`: of its line, counted from the beginning of the file. `checksum`: what the next line comes after."""

    record: Any
    end: int
    checksum: int


def frame(record: Any, after: int = 0) -> str:
    text = json.dumps(record, separators=(",", ":"))
    return f"{zlib.crc32(text.encode(), after):08x} {text}\n"


def checksum_of(line: str) -> int:
    """Of a line that `frame` made."""
    return int(line[:8], 16)


def read_frames(name: str, raw: bytes, *, after: int = 0, torn: bool = False) -> Iterator[Framed]:
    """All records of a file. `torn`: its last line may be what a crash has left of one, and is then skipped; any
    other line that is not what was written here is LOG_CORRUPT. A last line that is whole JSON was not torn: it was
    acknowledged and then changed, or it belongs somewhere else."""
    lines, end = raw.split(b"\n"), 0
    for number, line in enumerate(lines[:-1]):
        end += len(line) + 1
        checksum = zlib.crc32(line[9:], after)
        if len(line) < 10 or line[:9] != b"%08x " % checksum:
            if torn and number == len(lines) - 2 and not lines[-1] and not _is_json(line[9:]):
                return
            raise InternalError(
                f"{name}, line {number + 1} is damaged, or belongs to another file", reason="LOG_CORRUPT"
            )
        after = checksum
        yield Framed(json.loads(line[9:]), end, checksum)


def read_frame(name: str, raw: bytes, after: int = 0) -> Framed:
    """The one record of a file."""
    records = list(read_frames(name, raw, after=after))
    if len(records) != 1:
        raise InternalError(f"{name} is damaged", reason="LOG_CORRUPT")
    return records[0]


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
