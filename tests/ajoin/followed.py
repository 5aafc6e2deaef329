"""A story that clients follow from platform to platform: files bring tuples, subscribers know all addresses.

A batch join over all tuples says what every subscriber must have got, whoever made its rows.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from ajoin.client.client import Client
from ajoin.sql import parse_query
from optimizer.errors import AJoinError
from tests.ajoin.world import WAIT
from tests.faults.test_serve_killed import COLUMNS, tuples
from tests.oracle import freeze
from tests.oracle.join import windowed_join
from tests.runtime.kill_target import SQL, schema
from tests.runtime.rig import plain

NAMES = "ABC"
QUERIES = ("q1", "q2")
TUPLES, BATCH = 360, 12


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


class Follower:
    """A subscriber that knows all addresses and is told nothing of what happens to them."""

    def __init__(self, known: list[str], id: str) -> None:
        self.id, self.rows, self.failed = id, Counter[object](), ""
        self._known = known
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        try:
            with Client(self._known, timeout=WAIT) as client:
                outputs = client.query(self.id).outputs
                for batch in client.subscribe(self.id):
                    for row in plain(batch.table.combine_chunks()):
                        self.rows[freeze(row[0], row[1], dict(zip(outputs, row[2:], strict=True)))] += 1
        except AJoinError as failure:
            self.failed = f"{failure.reason}: {failure}"


class Story:
    """Three streams of files, two queries, a subscriber for each; told to whichever platform serves."""

    def __init__(self, folder: Path, client: Client, known: list[str], count: int = TUPLES) -> None:
        """`count`: tuples per stream, a third of which are there from the beginning."""
        self._inbox, self._client, self._count = folder / "inbox", client, count
        self._inbox.mkdir()
        self._rows = {name: tuples(name, count) for name in NAMES}
        self._fed = 0
        for name in NAMES:
            options = {"path": str(self._inbox), "pattern": f"{name}-*.jsonl"}
            delay = schema(name).watermark_delay_ms
            client.create_stream(
                name, columns=COLUMNS, time="ts", source="files", options=options, watermark_delay_ms=delay
            )
        for id in QUERIES:
            client.create_query(SQL[id], id=id)
        self.feed()
        self._followers = [Follower(known, id) for id in QUERIES]
        until(lambda: all(f.rows or f.failed for f in self._followers), "no rows")

    def feed(self, some: int | None = None) -> None:
        """The next so many tuples of each stream; None: a third of all there are."""
        first, last = self._fed, self._fed + (self._count // 3 if some is None else some)
        assert last <= self._count, "it takes longer than there are tuples"
        for name, rows in self._rows.items():
            for start in range(first, last, BATCH):
                lines = "".join(json.dumps(t.row) + "\n" for t in rows[start : start + BATCH])
                hidden = self._inbox / f".{name}"
                hidden.write_text(lines)
                hidden.rename(self._inbox / f"{name}-{start:06d}.jsonl")
        self._fed = last

    def end(self) -> None:
        """All tuples were read once, and every subscriber has what a batch join has."""
        while self._fed < self._count:
            self.feed(min(self._count // 3, self._count - self._fed))
        self.check()

    def step(self) -> None:
        """A few tuples more, and they are read and committed."""
        self.feed(BATCH)
        self.until_read()

    def steps_until(self, condition: Callable[[], object]) -> None:
        while not condition():
            self.step()

    def until_read(self) -> None:
        until(self.is_read, "not all tuples were read")

    def is_read(self) -> bool:
        return all(s.tuples == self._fed for s in self._client.streams())

    def check(self) -> None:
        """The same, with the tuples that were fed so far."""
        schemas = {name: schema(name) for name in NAMES}
        fed = {name: rows[: self._fed] for name, rows in self._rows.items()}
        self.until_read()
        assert all((s.late_dropped, s.dead_letter) == (0, 0) for s in self._client.streams())
        for f in self._followers:
            info = self._client.query(f.id)
            wanted = windowed_join(parse_query(SQL[f.id], schemas), fed, info.active_from)
            until(lambda f=f, wanted=wanted: f.failed or f.rows.total() >= wanted.total(), f"{f.id} lacks rows")
            assert not f.failed
            assert f.rows == wanted, f"{f.id}: {f.rows - wanted} too many, {wanted - f.rows} missing"
            assert info.rows == wanted.total() > 100
