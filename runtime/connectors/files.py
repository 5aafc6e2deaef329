"""Source 'files': a directory of Parquet, CSV or JSON lines files; new files are picked up as they appear.

A file is the unit: it is read once, whole, and must not change afterwards. It should appear complete (written
under a hidden or .tmp name and renamed); for writers that cannot do that, `settle_ms` leaves a file alone
until it has not been touched for so long. Names that start with '.' or '_' or end in .tmp or .crc, and empty
files, are left alone.

Exactly once, without offsets that grow: the source keeps a *ledger* in its state directory, an append-only
list of the files in the order in which they were picked up (name order among those present). An offset is a
number of ledger lines. A line is on disk before any offset can include it, and lines never change, so a range
means the same files for ever; files that were in the ledger but in no committed epoch when the platform died
are simply the next ones. A half-written last line is cut off on opening: no offset can include it. The ledger
also holds each file's size: a file that changed since is refused (a dead letter), because reading it again
would bring other tuples than before.

Lines have checksums like those of the log (runtime.log.framing), in a chain that begins with the name of the source's
folder: a changed line, a lost one, or another stream's ledger in this place is SOURCE_DAMAGED, never a wrong file or
a dead letter.
"""

from __future__ import annotations

import fnmatch
import logging
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from optimizer.errors import InternalError
from optimizer.model.types import StreamSchema
from runtime.connectors.base import Loaded, Mirror, Offset, Read, Source, file_arrived, seek_number, source_damaged
from runtime.connectors.formats import FORMATS, format_of, load_file, try_again, unreadable
from runtime.connectors.options import Option, Settings, bad_option
from runtime.files import sync_directory, write_atomically
from runtime.log.framing import checksum_of, frame, read_frames

OPTIONS = (
    Option("path", "a directory on the machine that runs the platform", required=True),
    Option("pattern", "which names to take, e.g. clicks-*.csv (default *)"),
    Option("format", "parquet, csv or jsonl (default: by the name's ending; csv and jsonl may end in .gz)"),
    Option("max_files", "most files per epoch (default 64)"),
    Option("settle_ms", "take a file only if it has not changed for so long (default 0)"),
    Option("delimiter", "between the fields of CSV files (default ,)"),
)

_LOG = logging.getLogger(__name__)
_CHUNK = 1000
LEDGER = "files.ledger"


@dataclass(frozen=True, slots=True)
class FilesConfig:
    directory: Path
    pattern: str
    format: str | None
    max_files: int
    settle_ms: int
    delimiter: str


def parse_config(options: Mapping[str, str], allowed_roots: Sequence[Path] = ()) -> FilesConfig:
    s = Settings("files", options)
    pattern = s.text("pattern", "*")
    if not pattern or "/" in pattern:
        s.refuse("pattern", "a pattern for file names, without directories")
    delimiter = options.get("delimiter", ",").replace("\\t", "\t")
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n':
        s.refuse("delimiter", "one character, such as ; or \\t")
    return FilesConfig(
        directory=s.path("path", allowed_roots),
        pattern=pattern,
        format=s.choice("format", "", FORMATS) if s.given("format") else None,
        max_files=s.integer("max_files", 64, 1, 100_000),
        settle_ms=s.integer("settle_ms", 0, 0, 86_400_000),
        delimiter=delimiter,
    )


def check_directory(config: FilesConfig) -> None:
    """Asked once, when the stream is created: a directory that goes away later must not stop anything."""
    if not config.directory.is_dir():
        raise bad_option(
            f"option path of connector files: there is no directory {config.directory}",
            "create it on the machine that runs the platform, or correct the path",
        )


class FilesSource(Source):
    """The only writer of its ledger. `_left`: files that were there at the last look and did not fit."""

    unit = "files"

    def __init__(self, config: FilesConfig, state_dir: Path) -> None:
        self._config = config
        self._ledger = Ledger(state_dir / LEDGER)
        self._left = 0

    def mirror(self, to: Mirror, offset: Offset) -> None:
        self._ledger.mirror(to)

    def begin(self, offset: Offset) -> None:
        self._ledger.check(int(offset))

    def initial(self) -> Offset:
        return 0

    def latest(self, start: Offset, now_ms: int) -> Offset:
        self._ledger.check(int(start))
        wanted = int(start) + self._config.max_files
        missing = wanted - len(self._ledger.entries)
        if missing > 0:
            appeared = self._appeared(now_ms)
            self._ledger.append(appeared[:missing])
            self._left = len(appeared[missing:])
        return min(wanted, len(self._ledger.entries))

    def seek(self, where: str, stands: Offset, now_ms: int) -> Offset:
        """Files that are there now count as picked up, in name order."""
        self._ledger.check(int(stands))
        self._ledger.append(self._appeared(now_ms))
        self._left = 0
        return seek_number(where, 0, len(self._ledger.entries), "files")

    def backlog(self, start: Offset, now_ms: int) -> int:
        return max(0, len(self._ledger.entries) - int(start) - self._config.max_files) + self._left

    def reads(self, start: Offset, end: Offset) -> Sequence[Read]:
        c = self._config
        self._ledger.check(int(end))
        return [
            FileRead(str(c.directory / name), name, size, c.format or format_of(name), c.delimiter)
            for name, size in self._ledger.entries[int(start) : int(end)]
        ]

    def _appeared(self, now_ms: int) -> list[tuple[str, int]]:
        """Complete files that are not in the ledger, in name order, with their sizes."""
        try:
            with os.scandir(self._config.directory) as listing:
                new = [e for e in listing if e.name not in self._ledger.names and self._takes(e.name)]
            sized = [(e.name, size) for e in new if (size := self._complete_size(e, now_ms)) > 0]
        except OSError as why:
            _LOG.warning("cannot list %s: %s", self._config.directory, why.strerror or why)
            return []
        return sorted(sized)

    def _takes(self, name: str) -> bool:
        if name.startswith((".", "_")) or name.lower().endswith((".tmp", ".crc")):
            return False
        return fnmatch.fnmatchcase(name, self._config.pattern)

    def _complete_size(self, entry: os.DirEntry[str], now_ms: int) -> int:
        """0 when the file is not to be taken (yet)."""
        try:
            if not entry.is_file():
                return 0
            status = entry.stat()
        except FileNotFoundError:
            return 0
        settled = now_ms - status.st_mtime_ns // 1_000_000 >= self._config.settle_ms or not self._config.settle_ms
        return status.st_size if settled else 0


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
        theirs = b"".join(to.get(name) for name in to.names())
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
            to.put(f"ledger-{at // _CHUNK:08d}", b"".join(lines[at : at + _CHUNK]))

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


@dataclass(frozen=True, slots=True)
class FileRead:
    """One file, if it still has the size it was picked up with.

    For tasks that cannot see it, `carried` looks at it on the driver: `data` is what it holds, or `trouble` what is
    wrong with it, and `arrived_ms` when it came.
    """

    path: str
    name: str
    size: int
    format: str | None
    delimiter: str
    data: bytes | None = None
    trouble: str | None = None
    arrived_ms: int | None = None

    def load(self, schema: StreamSchema) -> Loaded:
        return self.load_some(schema, None)

    def load_some(self, schema: StreamSchema, needed: frozenset[str] | None) -> Loaded:
        if self.format is None:
            return unreadable(schema, self.name, "its name does not tell the format; set the option format or pattern")
        trouble = self._look() if self.data is None and self.trouble is None else self.trouble
        if trouble is not None:
            return unreadable(schema, self.name, trouble)
        loaded = load_file(Path(self.path), self.format, schema, self.name, self.delimiter, self.data, needed)
        loaded.arrived_ms = file_arrived(Path(self.path)) if self.data is None else self.arrived_ms
        return loaded

    @property
    def place(self) -> str:
        return self.name

    def carried(self) -> FileRead:
        trouble = self._look()
        if trouble is not None:
            return replace(self, trouble=trouble)
        try:
            path = Path(self.path)
            return replace(self, data=path.read_bytes(), arrived_ms=file_arrived(path))
        except OSError as why:
            if try_again(why):
                raise
            return replace(self, trouble=why.strerror or str(why))

    def _look(self) -> str | None:
        """Why the file cannot be read; None: it can."""
        try:
            size = os.stat(self.path).st_size
        except FileNotFoundError:
            return "it has disappeared since it was picked up"
        except OSError as why:
            return why.strerror or str(why)
        if size != self.size:
            return f"it had {self.size} bytes when it was picked up and now has {size}; files must not change"
        return None
