"""Sinks: where a query's rows go besides the result log.

    parquet     a directory per query, one file per epoch    exactly once
    console     readable rows on standard output             at least once (a repeated epoch prints again)
    blackhole   counts and forgets                           exactly once

A table holds window_start and window_end (timestamp[ms]; whole numbers for count windows; NULL without a window), of
queries that fold `revision` (int32), then the query's outputs. Every query has one schema for life. A revised row does
not replace the earlier one: it is a row like any other, and readers take the highest revision of a group and window.

An epoch may be written again after a failure or a crash; the Parquet sink then replaces the file of that epoch, so a
reader that lists the directory sees each row once. Files appear by rename and are never changed otherwise, so the
directory can feed a 'files' source.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from runtime.connectors.options import Option, Root, Settings, bad_option
from runtime.connectors.values import clean_text
from runtime.files import safe_name, sync_directory, write_atomically

if TYPE_CHECKING:
    from rich.console import Console

COMPRESSIONS = ("zstd", "snappy", "none")
PARQUET_OPTIONS = (
    Option("path", "a directory on the machine that runs the platform; created when missing", required=True),
    Option("compression", "zstd, snappy or none (default zstd)"),
)
CONSOLE_OPTIONS = (Option("limit", "most rows to print per epoch (default 20)"),)
BLACKHOLE_OPTIONS: tuple[Option, ...] = ()


class ParquetSink:
    """<path>/<query id>/epoch-0000000012.parquet; the id is percent-encoded where a file name needs it."""

    def __init__(self, directory: Path, compression: str = "zstd") -> None:
        self._directory = directory
        self._compression = compression

    def write(self, query_id: str, epoch: int, table: pa.Table) -> None:
        path = self._directory / safe_name(query_id) / f"epoch-{epoch:010d}.parquet"
        if table.num_rows == 0:
            if path.exists():  # an earlier attempt of this epoch had rows; it does not count
                path.unlink()
                sync_directory(path.parent)
            return
        write_atomically(
            path,
            lambda file: pq.write_table(table, file, compression=self._compression),
            sync=True,
            point="file.written",
        )

    def reach(self) -> None:
        """Could files appear there? What is missing is only made with the first row."""
        there = next(p for p in (self._directory, *self._directory.parents) if p.exists())
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            what = "cannot be written to" if there.is_dir() else "is no directory"
            raise bad_option(
                f"option path of connector parquet is {str(self._directory)!r}, and {there} {what}",
                "name a directory that the platform may write to, or that it may make",
            )

    def close(self) -> None:
        """Nothing is held open."""


class ConsoleSink:
    def __init__(self, limit: int = 20, console: Console | None = None) -> None:
        self._limit = limit
        self._console = console

    def write(self, query_id: str, epoch: int, table: pa.Table) -> None:
        if table.num_rows == 0:
            return
        # rich is only needed where rows are printed, not in every process that knows the registry.
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        self._console = self._console or Console()
        shown = table.slice(0, self._limit)
        more = table.num_rows - shown.num_rows
        title = f"query {query_id} · epoch {epoch} · {table.num_rows} rows" + (f" ({more} not shown)" if more else "")
        grid = Table(title=Text(clean_text(title, 200)), title_justify="left")
        for name in shown.column_names:
            grid.add_column(Text(name))
        # Text objects, so that data which looks like markup stays data.
        for row in zip(*(_printable(c) for c in shown.columns), strict=True):
            grid.add_row(*(Text(cell) for cell in row))
        self._console.print(grid)

    def close(self) -> None:
        """The console is not ours to close."""


class BlackholeSink:
    """`rows`: how many each query delivered, every epoch counted once."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self._last: dict[str, tuple[int, int]] = {}

    def write(self, query_id: str, epoch: int, table: pa.Table) -> None:
        last_epoch, last_rows = self._last.get(query_id, (epoch, 0))
        repeated = last_rows if last_epoch == epoch else 0
        self.rows[query_id] = self.rows.get(query_id, 0) - repeated + table.num_rows
        self._last[query_id] = (epoch, table.num_rows)

    def close(self) -> None:
        """Nothing to release; the counts stay readable."""


def _printable(column: pa.ChunkedArray) -> list[str]:
    if pa.types.is_timestamp(column.type):
        return [_moment(v) for v in column.cast(pa.timestamp("ms")).cast(pa.int64()).to_pylist()]
    return [_cell(v) for v in column.to_pylist()]


def _moment(ms: int | None) -> str:
    if ms is None:
        return "NULL"
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    except OverflowError:
        return str(ms)
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{ms % 1000:03d}"


def _cell(value: Any) -> str:
    return "NULL" if value is None else clean_text(str(value), 80)


def open_parquet(options: Mapping[str, str], allowed_roots: Sequence[Root]) -> ParquetSink:
    s = Settings("parquet", options)
    return ParquetSink(s.path("path", allowed_roots), s.choice("compression", "zstd", COMPRESSIONS))


def open_console(options: Mapping[str, str], allowed_roots: Sequence[Root]) -> ConsoleSink:
    return ConsoleSink(Settings("console", options).integer("limit", 20, 1, 10_000))


def open_blackhole(options: Mapping[str, str], allowed_roots: Sequence[Root]) -> BlackholeSink:
    return BlackholeSink()
