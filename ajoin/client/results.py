"""What a subscriber holds: batches of rows, progress markers, and a collected result.

A `Batch` has rows and the cursor after them; store the cursor together with the rows and a reconnect with it
misses nothing and repeats nothing. A `Progress` says that every window up to its watermark is complete and
was delivered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from optimizer.errors import InvalidRequest
from runtime.api import Incomplete, QueryState
from runtime.results import factorized

if TYPE_CHECKING:
    import pandas
    import polars

START = "start"
NOW = "now"


@dataclass(frozen=True, slots=True, order=True)
class Cursor:
    """A place in a query's result log; `offset` counts rows seen of the batch after (epoch, sequence)."""

    epoch: int
    sequence: int
    offset: int = 0

    def __str__(self) -> str:
        return f"{self.epoch}:{self.sequence}" + (f":{self.offset}" if self.offset else "")

    @staticmethod
    def parse(text: str) -> Cursor:
        """The text form, 'epoch:sequence' or 'epoch:sequence:offset'."""
        parts = text.split(":")
        if len(parts) not in (2, 3) or not all(p.isascii() and p.isdecimal() for p in parts):
            raise InvalidRequest(
                f"{text!r} is no cursor",
                reason="BAD_CURSOR",
                hint="a cursor looks like 12:0, epoch and sequence",
            )
        return Cursor(*map(int, parts))


@dataclass(frozen=True, slots=True)
class Batch:
    table: pa.Table
    cursor: Cursor

    def __len__(self) -> int:
        return int(self.table.num_rows)


@dataclass(frozen=True, slots=True)
class Progress:
    """`watermark`: every window that ends there or before was delivered; None: no bound yet. `incomplete`: where rows
    were left out because the query's budget was used up; None: nowhere."""

    watermark: int | None
    epoch: int
    cursor: Cursor
    state: QueryState
    incomplete: Incomplete | None = None


class Results:
    """Rows collected from a query.

    `cursor` is the place to go on from; `watermark` says how far they are complete, but for the windows in which the
    query has left rows out, if it has (`incomplete`).
    """

    def __init__(
        self,
        schema: pa.Schema,
        batches: Sequence[Batch] = (),
        cursor: Cursor | None = None,
        watermark: int | None = None,
        incomplete: Incomplete | None = None,
    ) -> None:
        self._schema = schema
        self.batches = tuple(batches)
        self.cursor = cursor
        self.watermark = watermark
        self.incomplete = incomplete

    def __len__(self) -> int:
        return sum(map(len, self.batches))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Rows as dictionaries, in delivery order."""
        for batch in self.batches:
            yield from batch.table.to_pylist()

    def to_arrow(self, *, expand: bool = False) -> pa.Table:
        """One table; without any row it has the same columns.

        `expand`: factorized results (EMIT FACTORIZED) as the ordinary rows they stand for.
        """
        tables = [b.table for b in self.batches] or [self._schema.empty_table()]
        return pa.concat_tables(map(factorized.expand, tables) if expand else tables)

    def to_pandas(self, *, expand: bool = False) -> pandas.DataFrame:
        return self.to_arrow(expand=expand).to_pandas()

    def to_polars(self, *, expand: bool = False) -> polars.DataFrame:
        """Needs the package polars (`pip install 'ajoin[polars]'`)."""
        import polars

        frame = polars.from_arrow(self.to_arrow(expand=expand))
        assert isinstance(frame, polars.DataFrame)
        return frame

    def __repr__(self) -> str:
        gap = f", incomplete={self.incomplete}" if self.incomplete else ""
        return f"Results({len(self)} rows, cursor={self.cursor}, watermark={self.watermark}{gap})"


class Collector:
    """Gathers a subscription until a condition holds; the same for both kinds of client.

    Stops at `limit` rows (no row beyond it is taken, and the cursor stands after the last one taken), when
    the watermark reaches `until`, when the query is deleted, or, with neither, at the first progress marker:
    everything there is.
    """

    def __init__(self, schema: pa.Schema, start: Cursor | None, limit: int | None, until: int | None) -> None:
        self._schema = schema
        self._limit = limit
        self._until = until
        self._batches: list[Batch] = []
        self._rows = 0
        self._cursor = start
        self._watermark: int | None = None
        self._incomplete: Incomplete | None = None

    def take(self, item: Batch | Progress) -> bool:
        """True when enough was gathered."""
        if isinstance(item, Progress):
            self._cursor, self._watermark, self._incomplete = item.cursor, item.watermark, item.incomplete
            if self._limit is None and self._until is None:
                return True
            return self._until is not None and item.watermark is not None and item.watermark >= self._until
        if self._limit is not None and self._rows + len(item) > self._limit:
            item = self._cut(item, self._limit - self._rows)
        self._batches.append(item)
        self._rows += len(item)
        self._cursor = item.cursor
        return self._limit is not None and self._rows >= self._limit

    def _cut(self, batch: Batch, rows: int) -> Batch:
        """The cursor before a batch plus a number of its rows is the place inside it."""
        before = self._cursor or Cursor(0, 0)
        return Batch(batch.table.slice(0, rows), Cursor(before.epoch, before.sequence, before.offset + rows))

    @property
    def results(self) -> Results:
        return Results(self._schema, self._batches, self._cursor, self._watermark, self._incomplete)
