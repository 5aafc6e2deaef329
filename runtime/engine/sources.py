"""The sources of all streams, by name: opened, asked how far they can be read, closed with their stream.

`opened` is replaced and never changed, because readers on other threads look at it. What a source keeps lies in a
folder of its own below sources/.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path

from optimizer.model.types import StreamSchema
from runtime.connectors.base import ConnectorSpec, Offset, Source
from runtime.connectors.options import Root
from runtime.connectors.position import Position
from runtime.connectors.registry import make_source
from runtime.control.state import State, StreamState
from runtime.store.interface import StateStore


def folder_of(stream: str) -> str:
    """Where a stream's source keeps what it keeps, below sources/: a safe name for any stream."""
    return hashlib.blake2b(stream.encode(), digest_size=8).hexdigest()


class Sources:
    """Owned by the engine's thread."""

    def __init__(self, directory: Path, store: StateStore, allowed_roots: tuple[Root, ...]) -> None:
        self._directory, self._store, self._roots = directory, store, allowed_roots
        self.opened: Mapping[str, Source] = {}

    def open_all(self, streams: Mapping[str, StreamState]) -> None:
        self.opened = {n: self._open(st.schema, st.source, st.position.offset) for n, st in streams.items()}

    def make(self, schema: StreamSchema, spec: ConnectorSpec) -> Source:
        """The source of a stream that is about to be created; `add` it when it is."""
        folder = folder_of(schema.name)
        shutil.rmtree(self._directory / folder, ignore_errors=True)  # of a deletion that was cut short
        self._store.clear_source(folder, now=True)
        return self._open(schema, spec, 0)

    def _open(self, schema: StreamSchema, spec: ConnectorSpec, offset: Offset) -> Source:
        folder = folder_of(schema.name)
        where = self._directory / folder
        where.mkdir(parents=True, exist_ok=True)
        source = make_source(spec, schema, where, allowed_roots=self._roots)
        self._store.attach(source, folder, offset)
        source.begin(offset)
        return source

    def add(self, stream: str, source: Source) -> None:
        self.opened = {**self.opened, stream: source}

    def remove(self, stream: str) -> None:
        self.opened = {name: source for name, source in self.opened.items() if name != stream}
        shutil.rmtree(self._directory / folder_of(stream), ignore_errors=True)
        self._store.clear_source(folder_of(stream), now=False)

    def latest(self, streams: Mapping[str, StreamState], now: int) -> dict[str, Position]:
        """How far an epoch may read each stream."""
        return {n: Position.of(self.opened[n].latest(st.position.offset, now)) for n, st in streams.items()}

    def backlog(self, streams: Mapping[str, StreamState], now: int) -> dict[str, int]:
        """What is there beyond that. Asked right after `latest`."""
        return {n: self.opened[n].backlog(st.position.offset, now) for n, st in streams.items()}

    @property
    def may_read_ahead(self) -> bool:
        return all(source.may_read_ahead for source in self.opened.values())

    def trim(self, state: State) -> None:
        """Tell sources which offsets epochs and repairs may still read; what lies before them can go."""
        for stream, st in state.streams.items():
            starts = (r.origin.start.offset for r in state.sources.values() if r.stream == stream)
            folded = (r.origin.start.offset for r in state.partials.values() if r.origin and r.stream == stream)
            self.opened[stream].trim(chain([st.position.offset], starts, folded))

    def folders(self) -> Iterable[str]:
        return [folder_of(stream) for stream in self.opened]
