"""Calls of aggregate functions: which function is meant, whether its arguments suit it, and where it may stand.

The functions are given as a table from names to AggregateFunction: the built-in ones, and those that users registered.
SQL has several names for some. An aggregate is a value of a group, so it stands in SELECT and
HAVING; in WHERE, ON and GROUP BY there is no group yet, and inside another aggregate there is only a tuple.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn

from sqlglot import exp

from ajoin.sql.binder import Binder
from ajoin.sql.places import At, sql_error
from ajoin.sql.reasons import Reason
from ajoin.sql.scope import reads_bounds, similar
from optimizer.model.aggregates import OTHER_NAMES, AggregateFunction
from optimizer.model.expressions import Aggregate, Expr, Literal, Value
from optimizer.model.types import INTEGERS, ColumnType

_WRAPPERS = (exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)


@dataclass(slots=True)
class Aggregates:
    """What a Binder asks about nodes that may be aggregates. `joined`: are there several sources? `inside`: the clause
    being bound, if no aggregate can stand there."""

    sql: str
    functions: Mapping[str, AggregateFunction]
    joined: bool
    inside: str = ""

    @contextmanager
    def refused_in(self, place: str) -> Iterator[None]:
        before, self.inside = self.inside, place
        try:
            yield
        finally:
            self.inside = before

    def first_in(self, *nodes: exp.Expr | None) -> exp.Expr | None:
        """The first call of an aggregate in these trees, if there is one."""
        return next((call for node in nodes if node is not None for call in self.all_in(node)), None)

    def all_in(self, node: exp.Expr) -> Iterator[exp.Expr]:
        """All calls of aggregates, with their FILTER if they have one."""
        for call in node.find_all(exp.Anonymous, exp.Window):
            if isinstance(call, exp.Window) or self._function(call):
                while isinstance(call.parent, _WRAPPERS):
                    call = call.parent
                yield call

    def __call__(self, binder: Binder, node: exp.Expr) -> Expr | None:
        if isinstance(node, exp.Window):
            message = "OVER is not supported: a statement has one window for all its aggregates"
            self._fail(node.this, Reason.UNSUPPORTED_AGGREGATION, message, "write GROUP BY and a WINDOW clause")
        call, where, order = node, None, None
        while isinstance(call, _WRAPPERS):
            if isinstance(call, exp.RespectNulls):
                self._fail(call.this, Reason.UNSUPPORTED_AGGREGATION, "RESPECT NULLS: NULL is always left out")
            where = call.expression.this if isinstance(call, exp.Filter) else where
            order = call.expression if isinstance(call, exp.WithinGroup) else order
            call = call.this
        function = self._function(call)
        if function is None:
            if call is not node:
                name = call.name if isinstance(call, exp.Anonymous) else call.key
                hint = similar(name, [*self.functions, *OTHER_NAMES])
                self._fail(call, Reason.UNSUPPORTED_AGGREGATION, f"{name.upper()} is no aggregate", hint)
            return None
        if self.inside:
            self._misplaced(call)
        return self._bind(binder, call, function, where, order)

    # -- binding

    def _bind(
        self,
        binder: Binder,
        call: exp.Expr,
        function: AggregateFunction,
        where: exp.Expr | None,
        order: exp.Expr | None,
    ) -> Aggregate:
        function, given = self._given(call, function, order)
        if function.ordered and self.joined:
            message = f"{call.name.upper()} goes by the order of tuples, and joined rows have none"
            self._fail(
                call, Reason.UNSUPPORTED_AGGREGATION, message, "use ARG_MIN(value, time) or ARG_MAX(value, time)"
            )
        with self.refused_in(f"the arguments of {call.name.upper()}"):
            condition = binder.condition(where) if where is not None else None
            if function.name == "COUNT" and len(given) == 1 and _is_star(given[0]):
                arguments: tuple[Expr, ...] = ()
                given = []
            else:
                self._check_number(call, function, given)
                pairs = zip(given, function.arguments, strict=False)
                arguments = tuple(self._argument(binder, call, node, types) for node, types in pairs)
        if condition is not None and where is not None:
            self._check_bounds(where, condition)
        if function.name == "COUNT" and any(isinstance(a, Literal) and a.value is not None for a in arguments):
            arguments = ()  # COUNT(1) counts what COUNT(*) counts
        parameters = tuple(self._parameter(binder, call, p) for p in given[len(function.arguments) :])
        if function.name == "QUANTILE":
            parameters = (self._fraction(given[-1], parameters[0]),)
        gives = function.gives or arguments[0].type
        if function.name == "SUM" and gives in INTEGERS:
            gives = ColumnType.BIGINT
        return Aggregate(function.name, arguments, gives, parameters, condition)

    def _given(
        self, call: exp.Expr, function: AggregateFunction, order: exp.Expr | None
    ) -> tuple[AggregateFunction, list[exp.Expr]]:
        """The function and its arguments, after DISTINCT and WITHIN GROUP have had their say."""
        given: list[exp.Expr] = list(call.expressions)
        name = call.name.upper()
        if order is not None:
            keys = order.expressions
            if name != "PERCENTILE_CONT" or len(given) != 1 or len(keys) != 1 or keys[0].args.get("desc"):
                message = "WITHIN GROUP belongs to PERCENTILE_CONT(p) and has one ascending column"
                hint = "write PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY x), or QUANTILE(x, 0.9)"
                self._fail(call, Reason.UNSUPPORTED_AGGREGATION, message, hint)
            given.insert(0, keys[0].this)
        distinct = next((a for a in given if isinstance(a, exp.Distinct)), None)
        if distinct is None:
            return function, given
        counting = self.functions.get("COUNT_DISTINCT")
        if function.name != "COUNT" or counting is None or len(given) != 1 or distinct.args.get("on"):
            message = f"DISTINCT is supported in COUNT(DISTINCT x) only, not in {name}"
            self._fail(call, Reason.UNSUPPORTED_AGGREGATION, message)
        return counting, list(distinct.expressions)

    def _argument(self, binder: Binder, call: exp.Expr, node: exp.Expr, types: frozenset[ColumnType]) -> Expr:
        if isinstance(node, exp.Star):
            self._fail(node, Reason.SQL_SYNTAX, f"{call.name.upper()} takes no *; only COUNT does")
        wanted = ColumnType.STRING if ColumnType.STRING in types else next(t for t in ColumnType if t in types)
        argument = binder.bind(node, wanted)
        if argument.type not in types:
            takes = " or ".join(t.value for t in ColumnType if t in types)
            message = f"{call.name.upper()} takes {takes}, this is {argument.type}"
            self._fail(node, Reason.TYPE_MISMATCH, message)
        self._check_bounds(node, argument)
        return argument

    def _parameter(self, binder: Binder, call: exp.Expr, node: exp.Expr) -> Value:
        constant = binder.bind(node, ColumnType.DOUBLE)
        if not isinstance(constant, Literal):
            message = f"this argument of {call.name.upper()} must be a constant"
            self._fail(node, Reason.UNSUPPORTED_EXPRESSION, message)
        return constant.value

    def _fraction(self, node: exp.Expr, value: Value) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            message = "the second argument of QUANTILE is a number from 0 to 1"
            self._fail(node, Reason.INVALID_LITERAL, message, "the median is QUANTILE(x, 0.5)")
        return float(value)

    # -- refusals

    def _check_number(self, call: exp.Expr, function: AggregateFunction, given: list[exp.Expr]) -> None:
        needed = len(function.arguments) + function.parameters
        if len(given) != needed:
            takes = f"{needed} argument" if needed == 1 else f"{needed} arguments"
            message = f"{call.name.upper()} takes {takes}, here are {len(given)}"
            self._fail(call, Reason.ARGUMENT_COUNT, message)

    def _check_bounds(self, node: exp.Expr, bound: Expr) -> None:
        if reads_bounds(bound):
            message = "window_start and window_end cannot be aggregated: tuples are folded once for all their windows"
            hint = "compute with the result: MAX(time) - window_start"
            self._fail(node, Reason.WINDOW_BOUND_IN_CONDITION, message, hint)

    def _misplaced(self, call: exp.Expr) -> NoReturn:
        message = f"the aggregate {call.name.upper()} cannot stand in {self.inside}"
        hint = "conditions on aggregates belong into HAVING" if self.inside in ("WHERE", "ON") else ""
        self._fail(call, Reason.MISPLACED_AGGREGATE, message, hint)

    def _function(self, call: exp.Expr) -> AggregateFunction | None:
        name = call.name.upper() if isinstance(call, exp.Anonymous) else ""
        return self.functions.get(name) or self.functions.get(OTHER_NAMES.get(name, ""))

    def _fail(self, at: At, reason: Reason, message: str, hint: str = "") -> NoReturn:
        raise sql_error(self.sql, at, reason, message, hint)


def called(node: exp.Expr) -> str:
    """The name by which an aggregate is called in the text."""
    while isinstance(node, (*_WRAPPERS, exp.Paren)):
        node = node.this
    return node.name


def _is_star(node: exp.Expr) -> bool:
    return isinstance(node, exp.Star) and not any(node.args.values())
