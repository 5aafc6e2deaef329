"""Windows written as table functions around a source, as Flink and RisingWave do.

    TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' MINUTE))          TUMBLE(s, ts, INTERVAL '1 minute')
    TABLE(HOP(TABLE s, DESCRIPTOR(ts), slide, size))                     HOP(s, ts, slide, size)
    TABLE(SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts), gap))

Both spellings may be mixed, and arguments may have Flink's names (DATA, TIMECOL, SIZE, SLIDE, GAP). Windows are cut on
a stream's event-time column and on no other, so that is the column that must be named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from ajoin.sql.literals import window_length
from ajoin.sql.places import sql_error
from ajoin.sql.reasons import Reason
from ajoin.sql.scope import find_stream, match
from ajoin.sql.window_syntax import Descriptor, TableArgument, TableFunction
from optimizer.model.types import StreamSchema
from optimizer.model.windows import PeriodicWindow, SessionWindow, Window

_LENGTHS = {"TUMBLE": ("SIZE",), "HOP": ("SLIDE", "SIZE"), "SESSION": ("GAP",)}
_USAGE = {
    "TUMBLE": "write TUMBLE(stream, time_column, INTERVAL '10 seconds')",
    "HOP": "write HOP(stream, time_column, INTERVAL 'hop', INTERVAL 'size')",
    "SESSION": "write SESSION(TABLE stream PARTITION BY column, DESCRIPTOR(time_column), INTERVAL 'gap')",
}


@dataclass(frozen=True, slots=True)
class SourceWindow:
    """`partition` are the columns of PARTITION BY, as they were written."""

    window: Window
    partition: tuple[exp.Expr, ...]
    at: TableFunction


def table_window(
    sql: str, call: TableFunction, schemas: Mapping[str, StreamSchema]
) -> tuple[StreamSchema, exp.Identifier, SourceWindow]:
    """The stream inside the function, its name as it was written, and the window around it."""
    kind = call.args["kind"]
    given = _in_order(kind, call.expressions)
    table, time, *spans = [*given, None, None][: max(2, len(given))]
    stream, partition = _stream(table)
    column = time.this if isinstance(time, Descriptor) else time
    lengths = [span for span in spans if isinstance(span, exp.Interval)]
    if (
        stream is None
        or not isinstance(column, exp.Column)
        or column.args.get("table")
        or not len(lengths) == len(spans) == len(_LENGTHS[kind])
    ):
        raise sql_error(sql, call, Reason.INVALID_WINDOW, f"{kind} has the wrong arguments", _USAGE[kind])
    if partition and kind != "SESSION":
        message = f"{kind} has no PARTITION BY: its windows are the same for all tuples"
        raise sql_error(sql, partition[0], Reason.INVALID_WINDOW, message, _USAGE[kind])
    schema = find_stream(sql, stream, schemas)
    if [c.name for c in match(column.this, schema.columns, lambda c: c.name)] != [schema.time]:
        message = f"windows of stream {schema.name} are cut on its event-time column"
        raise sql_error(sql, column, Reason.INVALID_WINDOW, message, f"use {schema.time}")
    advance, size = window_length(sql, lengths[0]), window_length(sql, lengths[-1])
    window: Window = SessionWindow(size) if kind == "SESSION" else PeriodicWindow(size, advance)
    return schema, stream, SourceWindow(window, partition, call)


def _in_order(kind: str, given: list[exp.Expr]) -> list[exp.Expr]:
    """Arguments by position; nothing if they have names, but not exactly those of the function."""
    if not any(isinstance(argument, exp.Kwarg) for argument in given):
        return given
    named = {argument.this.name: argument.expression for argument in given if isinstance(argument, exp.Kwarg)}
    names = ("DATA", "TIMECOL", *_LENGTHS[kind])
    return [named[name] for name in names] if set(named) == set(names) and len(given) == len(names) else []


def _stream(table: exp.Expr | None) -> tuple[exp.Identifier | None, tuple[exp.Expr, ...]]:
    if isinstance(table, TableArgument):
        return table.this, tuple(table.expressions)
    if isinstance(table, exp.Column) and isinstance(table.this, exp.Identifier) and not table.args.get("table"):
        return table.this, ()
    return None, ()
