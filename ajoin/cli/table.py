"""A table that grows: rows are printed as they come, under a header, in columns that line up.

rich's own tables need all rows before the first line is drawn; a tail never has all rows. So column widths
start from the first batch and only ever widen, and the header is drawn again when they did, or after a
screenful of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.markup import escape

SCREENFUL = 40
WIDEST = 40


class GrowingTable:
    def __init__(self, console: Console, columns: Sequence[str]) -> None:
        self._console = console
        self._columns = list(columns)
        self._widths = [len(c) for c in columns]
        self._since_header = -1

    def add(self, rows: Sequence[Sequence[Any]]) -> None:
        cells = [[cell(v) for v in row] for row in rows]
        widths = list(self._widths)
        for row in cells:
            widths = [max(w, min(len(c), WIDEST)) for w, c in zip(widths, row, strict=True)]
        if self._since_header < 0 or widths != self._widths:
            self._widths = widths
            self._header()
        for row, values in zip(cells, rows, strict=True):
            if self._since_header >= SCREENFUL:
                self._header()
            self._line([self._pad(c, w, v) for c, w, v in zip(row, self._widths, values, strict=True)])
            self._since_header += 1

    def _header(self) -> None:
        names = [f"[bold]{escape(c.ljust(w))}[/]" for c, w in zip(self._columns, self._widths, strict=True)]
        self._console.print("  ".join(names), soft_wrap=True)
        self._console.print("[dim]" + "  ".join("─" * w for w in self._widths) + "[/]", soft_wrap=True)
        self._since_header = 0

    def _line(self, cells: list[str]) -> None:
        self._console.print("  ".join(cells).rstrip(), soft_wrap=True)

    @staticmethod
    def _pad(text: str, width: int, value: Any) -> str:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        padded = text.rjust(width) if number else text.ljust(width)
        return f"[dim]{padded}[/]" if value is None else escape(padded)


def cell(value: Any) -> str:
    """A value for people: times as UTC with milliseconds, NULL by its name."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case float():
            return f"{value:.6g}"
        case datetime():
            return value.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")
        case _:
            return " ".join(str(value).split())


def event_time(ms: int | None, none: str = "-") -> str:
    """Event time for people; beyond what a calendar can say, the number itself."""
    if ms is None:
        return none
    try:
        return cell(datetime.fromtimestamp(ms / 1000, UTC))
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"
