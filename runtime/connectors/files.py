"""Source 'files': a folder of Parquet, CSV or JSON lines files; new files are picked up as they appear.

A file is the unit: it is read once, whole, and must not change afterwards. It should appear complete (written
under a hidden or .tmp name and renamed); for writers that cannot do that, `settle_ms` leaves a file alone
until it has not been touched for so long. Names that start with '.' or '_' or end in .tmp or .crc, and empty
files, are left alone.

Exactly once, without offsets that grow: the source keeps a *ledger* (runtime.connectors.ledger), a list of the files in
the order in which they were picked up (name order among those present). An offset is a number of ledger lines. Files
that were in the ledger but in no committed epoch when the platform died are simply the next ones. The ledger also holds
each file's size: a file that changed since is refused (a dead letter), because reading it again would bring other
tuples than before.

The driver lists; tasks read. Where the folder lies decides how they get at a file (runtime.connectors.folders); if only
the driver's machine sees it and tasks run on others, a copy goes through the store (runtime.connectors.copies). A read
is a name in all cases, never the bytes.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runtime.connectors.base import Mirror, Offset, Read, Source, seek_number
from runtime.connectors.copies import Copies
from runtime.connectors.file_read import FileRead
from runtime.connectors.folders import Directory, Folder, Listing, Looks, ObjectFolder
from runtime.connectors.formats import FORMATS, format_of
from runtime.connectors.ledger import LEDGER, Ledger
from runtime.connectors.options import Option, Root, Settings

OPTIONS = (
    Option("path", "a directory on the machine of the platform, or a URI like s3://bucket/folder", required=True),
    Option("shared", "true: the machines that run tasks see the directory, too, and read it themselves"),
    Option("pattern", "which names to take, e.g. clicks-*.csv (default *)"),
    Option("format", "parquet, csv or jsonl (default: by the name's ending; csv and jsonl may end in .gz)"),
    Option("max_files", "most files per epoch (default 64)"),
    Option("settle_ms", "take a file only if it has not changed for so long (default 0)"),
    Option("delimiter", "between the fields of CSV files (default ,)"),
)


@dataclass(frozen=True, slots=True)
class FilesConfig:
    folder: Folder
    pattern: str
    format: str | None
    max_files: int
    delimiter: str


def parse_config(options: Mapping[str, str], allowed_roots: Sequence[Root] = ()) -> FilesConfig:
    s = Settings("files", options)
    pattern = s.text("pattern", "*")
    if not pattern or "/" in pattern:
        s.refuse("pattern", "a pattern for file names, without directories")
    delimiter = options.get("delimiter", ",").replace("\\t", "\t")
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n':
        s.refuse("delimiter", "one character, such as ; or \\t")
    return FilesConfig(
        folder=_folder(s, allowed_roots),
        pattern=pattern,
        format=s.choice("format", "", FORMATS) if s.given("format") else None,
        max_files=s.integer("max_files", 64, 1, 100_000),
        delimiter=delimiter,
    )


def _folder(s: Settings, allowed_roots: Sequence[Root]) -> Folder:
    settle_ms = s.integer("settle_ms", 0, 0, 86_400_000)
    shared = s.choice("shared", "false", ("true", "false")) == "true"
    if "://" not in s.text("path", ""):
        return Directory(s.path("path", allowed_roots), settle_ms, shared)
    for name in ("settle_ms", "shared"):
        if s.given(name):
            s.refuse(name, "nothing: objects of a store appear whole, and all machines see them")
    return ObjectFolder(s.uri("path", allowed_roots))


class FilesSource(Source):
    """The only writer of its ledger. `_left`: files that were there at the last look and did not fit."""

    unit = "files"

    def __init__(self, config: FilesConfig, state_dir: Path) -> None:
        self._config = config
        self._ledger = Ledger(state_dir / LEDGER)
        self._looks = Looks(config.folder)
        self._copies: Copies | None = None
        self._left = 0

    def mirror(self, to: Mirror, offset: Offset) -> None:
        self._ledger.mirror(to)
        self._copies = Copies(to, makes=to.for_tasks and not self._config.folder.everywhere)

    def begin(self, offset: Offset) -> None:
        self._ledger.check(int(offset))

    def trim(self, needed: Iterable[Offset]) -> None:
        if self._copies is not None:
            self._copies.trim(min(int(offset) for offset in needed))

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
        reads = [
            FileRead(name, size, c.format or format_of(name), c.delimiter, c.folder.content(name))
            for name, size in self._ledger.entries[int(start) : int(end)]
        ]
        return reads if self._copies is None else self._copies.of(int(start), reads)

    def _appeared(self, now_ms: int) -> Listing:
        """Complete files that are not in the ledger, in name order, with their sizes."""
        return sorted(file for file in self._looks.list(self._takes, now_ms) if file[0] not in self._ledger.names)

    def _takes(self, name: str) -> bool:
        if name in self._ledger.names or name.startswith((".", "_")) or name.lower().endswith((".tmp", ".crc")):
            return False
        return fnmatch.fnmatchcase(name, self._config.pattern)
