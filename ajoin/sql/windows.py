"""Which windows a statement asks for, however they are written, and whether they suit what it does with them.

A WINDOW clause speaks for all sources. A table function speaks for its own source, so then every source needs one, and
all must agree: tuples of different windows never meet. One statement uses one of the two ways.

Where a session, count or punctuated window begins and ends follows from the tuples of one stream, so these aggregate
one stream and do nothing else. Joins and aggregates need a window; rows of one stream do not. Windows of plug-ins are
aligned; those whose arithmetic the join does not know are for one stream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NoReturn

from sqlglot import exp

from ajoin.sql.binder import Binder
from ajoin.sql.literals import window_length
from ajoin.sql.places import At, sql_error
from ajoin.sql.reasons import Reason
from ajoin.sql.scope import Scope, reads_bounds
from ajoin.sql.table_functions import SourceWindow
from ajoin.sql.window_syntax import WINDOW_HINT, WindowClause
from optimizer.errors import AJoinError
from optimizer.model.expressions import Expr, Literal
from optimizer.model.types import INTEGERS, ColumnType
from optimizer.model.vocabulary import WindowKind
from optimizer.model.windows import (
    AlignedWindow,
    CountWindow,
    FixedWindow,
    PeriodicWindow,
    PunctuatedWindow,
    SessionWindow,
    Unwindowed,
    Window,
)
from optimizer.model.windows.base import NEVER, duration

_TIMES = INTEGERS | {ColumnType.TIMESTAMP}


def bound_type(clause: WindowClause | None) -> ColumnType:
    """Of window_start and window_end: positions of tuples in a count window, else points in time."""
    counts = clause is not None and clause.args["kind"] == "COUNT"
    return ColumnType.BIGINT if counts else ColumnType.TIMESTAMP


@dataclass(frozen=True, slots=True)
class WindowReader:
    """`functions` has one entry per source: its table function's window or None. `folds`: does the statement
    aggregate? `groups`: by what. `kinds`: windows that plug-ins brought."""

    scope: Scope
    binder: Binder
    kinds: Mapping[str, WindowKind]
    clause: WindowClause | None
    functions: Sequence[SourceWindow | None]
    folds: bool
    groups: Sequence[Expr]

    def read(self) -> tuple[Window, int | None]:
        """The one window of the statement, and its STATE_TTL in milliseconds."""
        given = [f for f in self.functions if f is not None]
        if self.clause is not None:
            if given:
                message = "a statement with a WINDOW clause has no window functions in FROM"
                self._fail(given[0].at, Reason.CONFLICTING_WINDOWS, message, "keep one of the two")
            window = self._from_clause(self.clause)
            self._check_kind(window, self.clause)
        elif given:
            window = self._agreed(given)
            self._check_kind(window, given[0].at)
            self._check_partition(given[0])
        elif self.folds or len(self.scope.sources) > 1:
            end = len(self.scope.sql.rstrip("; \t\r\n"))
            what = "an aggregate" if self.folds else "a join"
            message = f"the statement has no WINDOW clause, and {what} needs a window"
            self._fail(end, Reason.MISSING_WINDOW, message, WINDOW_HINT)
        else:
            window = Unwindowed()
        return window, self._ttl(window)

    # -- the WINDOW clause

    def _from_clause(self, clause: WindowClause) -> Window:
        args = clause.args
        match args["kind"]:
            case "BETWEEN":
                start, end = self._time(args["low"]), self._time(args["high"])
                if start >= end:
                    self._fail(args["high"], Reason.INVALID_WINDOW, "a window ends after it starts")
                return FixedWindow(start, end)
            case "SESSION":
                return SessionWindow(window_length(self.scope.sql, args["size"]))
            case "COUNT":
                size, advance = (self._tuples(n) for n in (args["size"], args.get("advance") or args["size"]))
                return CountWindow(size, advance)
            case "PUNCTUATED":
                return self._punctuated(args["condition"], args["text"])
            case name if name in self.kinds:
                return self._brought(clause, name)
        size, advance = (window_length(self.scope.sql, n) for n in (args["size"], args.get("advance") or args["size"]))
        return PeriodicWindow(size, advance)

    def _punctuated(self, node: exp.Expr, text: str) -> Window:
        condition = self.binder.condition(node)
        if reads_bounds(condition):
            message = "the condition that cuts windows cannot read their bounds"
            self._fail(node, Reason.WINDOW_BOUND_IN_CONDITION, message)
        return PunctuatedWindow(condition, text)

    def _brought(self, clause: WindowClause, name: str) -> Window:
        """By a plug-in, whose refusals are shown as they are."""
        kind = self.kinds[name]
        arguments = [self._argument(name, node) for node in clause.expressions]
        try:
            window = kind.make(*arguments)
        except AJoinError as refused:
            self._fail(clause, Reason.INVALID_WINDOW, refused.message, refused.hint)
        except Exception as refused:
            said = str(refused) or type(refused).__name__
            self._fail(clause, Reason.INVALID_WINDOW, f"WINDOW {name}: {said}", f"write WINDOW {kind.usage}")
        if len(self.scope.sources) > 1 and not kind.joins(window):
            self._fail(clause, Reason.UNSUPPORTED_WINDOW, f"WINDOW {name} is for one stream; it cannot join streams")
        return window

    def _argument(self, name: str, node: exp.Expr) -> int | float | str | timedelta:
        bound = self.binder.bind(node, ColumnType.STRING)
        value = bound.value if isinstance(bound, Literal) and bound.type is not ColumnType.TIMESTAMP else None
        if value is None or isinstance(value, bool):
            message = f"an argument of WINDOW {name} is a number, a text or a length of time"
            self._fail(node, Reason.INVALID_WINDOW, message)
        try:
            return timedelta(milliseconds=value) if isinstance(node, exp.Interval) else value  # type: ignore[arg-type]
        except OverflowError:
            self._fail(node, Reason.INVALID_WINDOW, "this length of time is too long")

    def _time(self, node: exp.Expr) -> int:
        bound = self.binder.bind(node, ColumnType.TIMESTAMP)
        value = bound.value if isinstance(bound, Literal) and bound.type in _TIMES else None
        if isinstance(node.unnest(), exp.Interval) or not isinstance(value, int):
            message = "a bound of WINDOW BETWEEN is a TIMESTAMP constant or a whole number of milliseconds since 1970"
            self._fail(node, Reason.INVALID_WINDOW, message, "write it like TIMESTAMP '2024-01-31 00:00:00'")
        if not -NEVER < value < NEVER:
            self._fail(node, Reason.INVALID_WINDOW, "this bound lies beyond all event times")
        return value

    def _tuples(self, node: exp.Literal) -> int:
        if not (node.name.isascii() and node.name.isdigit()) or len(node.name) > 18 or int(node.name) < 1:
            message = "the size and advance of a count window are whole numbers of tuples, at least 1"
            self._fail(node, Reason.INVALID_WINDOW, message, "write it like WINDOW COUNT (SIZE 100 ADVANCE BY 10)")
        return int(node.name)

    def _ttl(self, window: Window) -> int | None:
        ttl = self.clause.args.get("ttl") if self.clause is not None else None
        if ttl is None:
            return None
        if not isinstance(window, SessionWindow | CountWindow):
            message = "STATE_TTL belongs to SESSION and COUNT windows; others forget by themselves when they are over"
            self._fail(ttl, Reason.INVALID_WINDOW, message, "leave it out")
        length = window_length(self.scope.sql, ttl)
        if isinstance(window, SessionWindow) and length < window.gap_ms:
            message = f"STATE_TTL is shorter than the gap of {duration(window.gap_ms)}, for which a session is open"
            self._fail(ttl, Reason.INVALID_WINDOW, message, "leave it out: sessions are forgotten when they are over")
        return length

    # -- table functions

    def _agreed(self, given: Sequence[SourceWindow]) -> Window:
        window = given[0].window
        for found, source in zip(self.functions, self.scope.sources, strict=True):
            if found is None:
                message = "this source has no window but another one has"
                hint = "give every source the same TUMBLE or HOP, or use one WINDOW clause"
                self._fail(source.at, Reason.CONFLICTING_WINDOWS, message, hint)
            if found.window != window:
                message = f"all sources need the same window; here are {window.sql} and {found.window.sql}"
                self._fail(source.at, Reason.CONFLICTING_WINDOWS, message)
        return window

    def _check_partition(self, given: SourceWindow) -> None:
        """In Flink, PARTITION BY says for what sessions are found, and GROUP BY only what is folded; here a session
        belongs to its group. Statements for which that differs are refused."""
        if not isinstance(given.window, SessionWindow):
            return
        partition = {self.binder.bind(column, ColumnType.STRING) for column in given.partition}
        if partition != set(self.groups):
            at = given.partition[0] if given.partition else given.at
            message = "sessions are found for each group: PARTITION BY must name exactly the columns of GROUP BY"
            self._fail(at, Reason.INVALID_WINDOW, message, "write SESSION(TABLE s PARTITION BY k, ...) and GROUP BY k")

    # -- what windows are for

    def _check_kind(self, window: Window, at: exp.Expr) -> None:
        if isinstance(window, AlignedWindow):
            return
        kind = at.args["kind"]
        if len(self.scope.sources) > 1:
            message = f"WINDOW {kind} aggregates one stream; it cannot join streams"
            self._fail(at, Reason.UNSUPPORTED_WINDOW, message, WINDOW_HINT)
        if not self.folds:
            message = f"WINDOW {kind} aggregates one stream; there is no aggregate"
            hint = "select COUNT(*) or another aggregate, or use TUMBLING or HOPPING windows"
            self._fail(at, Reason.UNSUPPORTED_WINDOW, message, hint)

    def _fail(self, at: At, reason: Reason, message: str, hint: str = "") -> NoReturn:
        raise sql_error(self.scope.sql, at, reason, message, hint)
