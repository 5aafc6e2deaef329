"""The read of one file: loaded inside a task, by path or from an object, if it still is what was picked up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from optimizer.model.types import StreamSchema
from runtime.connectors.base import Kept, Loaded, file_arrived
from runtime.connectors.folders import OnDisk
from runtime.connectors.formats import load_file, unreadable


@dataclass(frozen=True, slots=True)
class FileRead:
    """One file, if it still has the size it was picked up with. `trouble`: what is wrong with it, if that is known.
    `arrived_ms`: when it came, of one that tasks do not see on a disk; None: nobody knows."""

    name: str
    size: int
    format: str | None
    delimiter: str
    content: OnDisk | Kept
    trouble: str | None = None
    arrived_ms: int | None = None

    def load(self, schema: StreamSchema) -> Loaded:
        return self.load_some(schema, None)

    def load_some(self, schema: StreamSchema, needed: frozenset[str] | None) -> Loaded:
        if self.format is None:
            return unreadable(schema, self.name, "its name does not tell the format; set the option format or pattern")
        trouble, data, path, arrived_ms = self.trouble, None, Path(self.name), self.arrived_ms
        if trouble is None:
            if isinstance(self.content, OnDisk):
                trouble, path = self.look(), Path(self.content.path)
                arrived_ms = file_arrived(path)
            else:
                data = self.content.get()
                trouble = self._wrong(None if data is None else len(data))
        if trouble is not None:
            return unreadable(schema, self.name, trouble)
        loaded = load_file(path, self.format, schema, self.name, self.delimiter, data, needed)
        loaded.arrived_ms = arrived_ms
        return loaded

    @property
    def place(self) -> str:
        return self.name

    def look(self) -> str | None:
        """Why the file on this disk cannot be read; None: it can."""
        assert isinstance(self.content, OnDisk)
        try:
            return self._wrong(self.content.size())
        except FileNotFoundError:
            return self._wrong(None)
        except OSError as why:
            return why.strerror or str(why)

    def _wrong(self, size: int | None) -> str | None:
        if size is None:
            return "it has disappeared since it was picked up"
        if size != self.size:
            return f"it had {self.size} bytes when it was picked up and now has {size}; files must not change"
        return None
