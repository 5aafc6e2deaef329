"""How far every sink has come: one small file, log/delivered, for all of them.

    [{"query": "q1#1", "sink": 0, "epoch": 12, "rows": 340}, ...]

An entry says that the sink has everything up to that epoch. It is written after the sink took its rows, so it may be
behind and is never ahead: after a crash an epoch may be handed over again, and none is left out. For the same reason
nothing depends on the file: if it cannot be written, or cannot be read, more is handed over again, and sinks replace
what they have of an epoch.

The file is replaced as a whole. When many sinks move at once they do not wait for each other: one of them writes for
all that came meanwhile.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Container
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from optimizer.errors import Unavailable
from runtime.crashpoints import reach
from runtime.files import write_atomically

logger = logging.getLogger("ajoin.delivery")


class SinkId(NamedTuple):
    """A query may have several sinks; they are numbered as it names them."""

    uid: str
    number: int


class Progress(NamedTuple):
    """The sink has everything up to `epoch`, which are `rows` rows of its query (counted as the query counts them)."""

    epoch: int
    rows: int


def nowhere(data: bytes) -> None:
    """There is no second place for the file."""


class ProgressFile:
    """May be used from any thread. `save` puts the content somewhere else too."""

    def __init__(self, path: Path, save: Callable[[bytes], object] = nowhere) -> None:
        self._path, self._save = path, save
        self._lock = threading.Lock()
        self._known = _read(path)
        self._version = self._written = 0
        self._writing = self._closed = False

    def get(self, sink: SinkId) -> Progress | None:
        return self._known.get(sink)

    def put(self, sink: SinkId, progress: Progress) -> None:
        with self._lock:
            self._known[sink] = progress
            self._version += 1
            if self._writing or self._closed:
                return  # the thread that writes looks again before it stops
            self._writing = True
        try:
            while (text := self._unwritten()) is not None:
                self._write(text)
        except BaseException:
            self._writing = False
            raise

    def keep(self, uids: Container[str]) -> None:
        """Forget the sinks of all other queries; they leave the file when it is written next."""
        with self._lock:
            self._known = {sink: at for sink, at in self._known.items() if sink.uid in uids}

    def close(self) -> None:
        """Nothing is written from now on."""
        self._closed = True

    def _unwritten(self) -> bytes | None:
        with self._lock:
            if self._written == self._version or self._closed:
                self._writing = False
                return None
            self._written = self._version
            entries = [
                {"query": sink.uid, "sink": sink.number, "epoch": at.epoch, "rows": at.rows}
                for sink, at in self._known.items()
            ]
        return json.dumps(entries).encode()

    def _write(self, text: bytes) -> None:
        try:
            write_atomically(self._path, text, point="delivery.written")
            reach("delivery.marked")
        except OSError as failure:
            if not self._closed:
                logger.warning("how far sinks have come is not written down: %s", failure)
            return
        with suppress(Unavailable):
            self._save(text)


def _read(path: Path) -> dict[SinkId, Progress]:
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        return {SinkId(e["query"], e["sink"]): Progress(e["epoch"], e["rows"]) for e in entries}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError) as damage:
        logger.warning("%s cannot be read (%s): sinks get again what is kept", path.name, damage)
        return {}
