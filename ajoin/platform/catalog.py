"""What is checked before the engine sees a request: names, stream declarations, connectors and limits.

Everything here is a pure function that returns nothing or raises InvalidRequest with a stable reason, so the
service, replay and the CLI refuse the same things with the same words. Sinks are looked at in sink_checks.py.

A name is 1 to 128 characters of any script. Control characters would break logs and terminals; '/' and the
two directory names are kept out because names become part of paths.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from ajoin.sql import QueryLimits
from optimizer.errors import InvalidRequest, ResourceExhausted
from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.api import NO_BUDGET, Budget
from runtime.connectors import registry
from runtime.connectors.base import ConnectorSpec
from runtime.connectors.options import Root

LONGEST_NAME = 128
TIME_TYPES = (ColumnType.TIMESTAMP, ColumnType.BIGINT)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one platform accepts at most. `ahead_ms`: how far beyond the clock event times of streams may lie that say
    nothing else; None: any. `budget`: of a query whose creator has no tenant."""

    query: QueryLimits = field(default_factory=QueryLimits)
    columns: int = 2_000
    queries: int = 4_096
    streams: int = 1_000
    batch: int = 10_000
    ahead_ms: int | None = None
    queries_bytes: int = 64 << 20
    """SQL of all queries that are not deleted: what the driver and every snapshot have to hold."""
    mailbox_requests: int = 20_000
    mailbox_bytes: int = 32 << 20
    budget: Budget = NO_BUDGET


def check_name(kind: str, name: str) -> None:
    """`kind` says what the name is for: 'stream', 'query id' or 'column'."""

    def refuse(why: str) -> InvalidRequest:
        return InvalidRequest(
            f"{kind} {_shown(name)} {why}",
            reason="INVALID_NAME",
            hint=f"use 1 to {LONGEST_NAME} characters of any script, no control characters and no '/'",
        )

    if not name.strip():
        raise refuse("is empty")
    if len(name) > LONGEST_NAME:
        raise refuse(f"has {len(name)} characters")
    if any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") for c in name):
        raise refuse("contains a control character")
    if "/" in name:
        raise refuse("contains a '/'")
    if name in (".", ".."):
        raise refuse("is a directory name")


def column_type(text: str) -> ColumnType:
    """A type by its name, in any case."""
    try:
        return ColumnType(text.upper())
    except ValueError:
        raise InvalidRequest(
            f"unknown column type {_shown(text)}",
            reason="UNKNOWN_COLUMN_TYPE",
            hint="types are: " + ", ".join(ColumnType),
        ) from None


def check_stream(schema: StreamSchema, limits: Limits) -> None:
    check_name("stream", schema.name)
    _check_columns(schema, limits)
    _check_time(schema)
    for label, value in (
        ("watermark_delay_ms", schema.watermark_delay_ms),
        ("allowed_lateness_ms", schema.allowed_lateness_ms),
        ("idle_timeout_ms", schema.idle_timeout_ms or 0),
        ("max_ahead_ms", schema.max_ahead_ms or 0),
        ("max_jump_ms", schema.max_jump_ms or 0),
    ):
        if value < 0:
            raise InvalidRequest(
                f"{label} of stream {schema.name!r} is {value}",
                reason="NEGATIVE_DELAY",
                hint="give 0 or more milliseconds",
            )


def check_source(spec: ConnectorSpec, schema: StreamSchema, allowed_roots: Sequence[Root] = ()) -> None:
    registry.check_source(spec, schema, allowed_roots=allowed_roots)


def check_room(kind: str, present: int, coming: int, most: int) -> None:
    if present + coming > most:
        raise ResourceExhausted(
            f"{present:,} {kind} exist and {coming:,} more were asked for; at most {most:,} are allowed",
            reason=f"TOO_MANY_{kind.upper()}",
            hint=f"delete some {kind}, or raise the setting max_{kind}",
        )


def check_text(present: int, sql: str, most: int) -> int:
    """Bytes of SQL with this one, if there is room for it. Says nothing about what others have."""
    whole = present + len(sql.encode())
    if whole > most:
        raise ResourceExhausted(
            "the queries of this platform together have too much SQL text for one more like this",
            reason="TOO_MUCH_SQL",
            hint="delete some queries, or raise the setting max_queries_bytes",
        )
    return whole


def _check_columns(schema: StreamSchema, limits: Limits) -> None:
    if not schema.columns:
        raise InvalidRequest(
            f"stream {schema.name!r} has no columns",
            reason="NO_COLUMNS",
            hint="declare at least its event-time column",
        )
    if len(schema.columns) > limits.columns:
        raise InvalidRequest(
            f"stream {schema.name!r} has {len(schema.columns):,} columns; {limits.columns:,} are allowed",
            reason="TOO_MANY_COLUMNS",
            hint="declare only the columns that queries use",
        )
    for column in schema.columns:
        check_name("column", column.name)
    repeated = [name for name, n in Counter(c.name for c in schema.columns).items() if n > 1]
    if repeated:
        raise InvalidRequest(
            f"stream {schema.name!r} declares column {repeated[0]!r} more than once",
            reason="DUPLICATE_COLUMN",
            hint="column names are unique within a stream",
        )


def _check_time(schema: StreamSchema) -> None:
    column: Column | None = schema.column(schema.time)
    candidates = [c.name for c in schema.columns if c.type in TIME_TYPES]
    hint = (
        "name one of: " + ", ".join(candidates[:10])
        if candidates
        else "declare a TIMESTAMP column (or BIGINT milliseconds)"
    )
    if column is None:
        what = f"names {_shown(schema.time)}, which is no column" if schema.time else "names no event-time column"
        raise InvalidRequest(f"stream {schema.name!r} {what}", reason="TIME_COLUMN_MISSING", hint=hint)
    if column.type not in TIME_TYPES:
        raise InvalidRequest(
            f"the event-time column {column.name!r} of stream {schema.name!r} has type {column.type}",
            reason="TIME_COLUMN_TYPE",
            hint=hint,
        )


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:39] + "…")
