"""The ledger of a files source: which files were picked up, in which order, and with how many bytes.

An append-only list in the source's directory. An offset is a number of its lines; a line is on disk before any offset
can include it, and lines never change, so a range means the same files for ever. A half-written last line is cut off on
opening: no offset can include it.

Lines have checksums like those of the log (runtime.log.framing), in a chain that begins with the name of the source's
folder: a changed line, a lost one, or another stream's ledger in this place is SOURCE_DAMAGED, never a wrong file or
a dead letter.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from pathlib import Path

from optimizer.errors import InternalError
from runtime.connectors.base import Mirror, source_damaged
from runtime.files import sync_directory, write_atomically
from runtime.log.framing import checksum_of, frame, read_frames

_CHUNK = 1000
_OBJECTS = "ledger-"
LEDGER = "files.ledger"


def check_ledger(path: Path, length: int) -> None:
    """SOURCE_DAMAGED if this ledger is, or lists fewer files. Changes nothing."""
    Ledger(path, repair=False).check(length)


class Ledger:
    """Lines [name, size], each written and synced before `append` returns. A mirror has them in objects of `_CHUNK`."""

    def __init__(self, path: Path, *, repair: bool = True) -> None:
        """`repair`: cut off a half-written last line."""
        self._path = path
        self._mirror: Mirror | None = None
        self._damage: InternalError | None = None
        raw = path.read_bytes() if path.exists() else b""
        try:
            whole = self._read(raw)
        except InternalError as damage:  # a mirror may know better
            self._damage = damage
        else:
            if repair and whole < len(raw):
                os.truncate(path, whole)

    def check(self, length: int) -> None:
        """SOURCE_DAMAGED if it is, or if it does not hold as many files as were once given out."""
        if self._damage is not None:
            raise self._damage
        if length > len(self.entries):
            raise source_damaged(self._path, f"it lists {len(self.entries)} files, and {length} were read already")

    def _read(self, raw: bytes) -> int:
        """Take these lines for all there are; answers how many bytes are whole."""
        self.entries: list[tuple[str, int]] = []
        self.names: set[str] = set()
        self._lines: list[bytes] = []
        self._checksum, start = zlib.crc32(self._path.parent.name.encode()), 0
        try:
            for (name, size), end, checksum in read_frames("it", raw, after=self._checksum, torn=True):
                self._remember(name, size, raw[start:end], checksum)
                start = end
        except InternalError as damage:
            raise source_damaged(self._path, damage.message) from damage
        return start

    def mirror(self, to: Mirror) -> None:
        theirs = b"".join(to.get(name) for name in to.names() if name.startswith(_OBJECTS))
        if not theirs:
            self.check(0)
            self._put(to, 0, self._lines)
        elif self._damage is not None or theirs != b"".join(self._lines):
            self._read(theirs)
            write_atomically(self._path, theirs, sync=True, point="file.written")
            self._damage = None
        self._mirror = to

    def _put(self, to: Mirror, known: int, lines: Sequence[bytes]) -> None:
        for at in range(known // _CHUNK * _CHUNK, len(lines), _CHUNK):
            to.put(f"{_OBJECTS}{at // _CHUNK:08d}", b"".join(lines[at : at + _CHUNK]))

    def append(self, files: Sequence[tuple[str, int]]) -> None:
        if not files:
            return
        framed: list[tuple[str, int, bytes, int]] = []
        checksum = self._checksum
        for name, size in files:
            line = frame([name, size], checksum)
            checksum = checksum_of(line)
            framed.append((name, size, line.encode(), checksum))
        lines = [line for _, _, line, _ in framed]
        if self._mirror is not None:
            self._put(self._mirror, len(self.entries), [*self._lines, *lines])
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with open(self._path, "ab") as file:
            file.write(b"".join(lines))
            file.flush()
            os.fsync(file.fileno())
        if not self.entries:
            sync_directory(self._path.parent)  # the ledger itself is new
        for one in framed:
            self._remember(*one)

    def _remember(self, name: str, size: int, line: bytes, checksum: int) -> None:
        self.entries.append((name, size))
        self.names.add(name)
        self._lines.append(line)
        self._checksum = checksum
