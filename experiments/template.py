"""The query template of Figure 14: a chain of streams, a selection on each, a window of 1, 2 or 3 seconds.

A `TemplateQuery` is a plain value that every system turns into its own language, so all of them answer the same
question. This module uses the standard library only: Flink's worker imports it from an environment in which nothing
else of the project is installed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

ATTRIBUTES = 6
TIME = "ts"
OPERATORS = ("=", ">", "<", ">=", "<=")


@dataclass(frozen=True, slots=True)
class Selection:
    """[SA] [= > < >= <=] [FV]; with an `upper` bound, a range that ends before it."""

    attribute: int
    operator: str
    value: int
    upper: int | None = None

    def sql(self, prefix: str = "") -> str:
        text = f"{prefix}a{self.attribute} {self.operator} {self.value}"
        return text if self.upper is None else f"{text} AND {prefix}a{self.attribute} < {self.upper}"


@dataclass(frozen=True, slots=True)
class TemplateQuery:
    """Link i joins source i with source i + 1: `sources[i].a<l> = sources[i + 1].a<r>`."""

    id: str
    sources: tuple[str, ...]
    links: tuple[tuple[int, int], ...]
    selections: tuple[Selection | None, ...]
    window_seconds: int

    @property
    def join_attributes(self) -> frozenset[tuple[str, int]]:
        """(source, attribute) pairs that the joins partition by."""
        left = {(s, l) for s, (l, _) in zip(self.sources, self.links, strict=False)}
        right = {(s, r) for s, (_, r) in zip(self.sources[1:], self.links, strict=True)}
        return frozenset(left | right)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> TemplateQuery:
        return TemplateQuery(
            value["id"],
            tuple(value["sources"]),
            tuple((l, r) for l, r in value["links"]),
            tuple(Selection(**s) if s else None for s in value["selections"]),
            value["window_seconds"],
        )


def columns() -> list[str]:
    return [f"a{i}" for i in range(ATTRIBUTES)]


def ajoin_sql(q: TemplateQuery, *, times: bool = False) -> str:
    """For this platform. `times` adds the event time of every source, to measure latency."""
    wanted = [*columns(), TIME] if times else columns()
    items = ", ".join(f"{s}.{c} AS {s}_{c}" for s in q.sources for c in wanted)
    conditions = _links(q, lambda s, a: f"{s}.a{a}") + [
        p.sql(f"{s}.") for s, p in zip(q.sources, q.selections, strict=True) if p
    ]
    window = f"WINDOW TUMBLING (SIZE {q.window_seconds} SECONDS)"
    return f"SELECT {items} FROM {', '.join(q.sources)} WHERE {' AND '.join(conditions)} {window}"


def flink_rows(q: TemplateQuery) -> str:
    """The same rows as a cascade of Flink window joins; window bounds travel along because the next join needs them."""
    side = _flink_source(q, 0)
    for i, (l, r) in enumerate(q.links):
        left, right = q.sources[i], q.sources[i + 1]
        mine = ", ".join(f"L.{s}_{c}" for s in q.sources[: i + 1] for c in columns())
        more = ", ".join(f"R.{right}_{c}" for c in columns())
        side = (
            f"(SELECT {mine}, {more}, L.window_start, L.window_end FROM {side} L JOIN {_flink_source(q, i + 1)} R "
            f"ON L.window_start = R.window_start AND L.window_end = R.window_end "
            f"AND L.{left}_a{l} = R.{right}_a{r})"
        )
    return side


def flink_insert(q: TemplateQuery) -> str:
    items = ", ".join(f"{s}_{c}" for s in q.sources for c in columns())
    return f"INSERT INTO rows_{len(q.sources)} SELECT {items} FROM {flink_rows(q)}"


def flink_count(q: TemplateQuery) -> str:
    return f"SELECT '{q.id}' AS id, COUNT(*) AS n FROM {flink_rows(q)} GROUP BY window_start, window_end"


def _flink_source(q: TemplateQuery, i: int) -> str:
    s, p = q.sources[i], q.selections[i]
    items = ", ".join(f"{c} AS {s}_{c}" for c in columns())
    where = f" WHERE {p.sql()}" if p else ""
    window = f"TUMBLE(TABLE {s}, DESCRIPTOR(rt), INTERVAL '{q.window_seconds}' SECOND)"
    return f"(SELECT {items}, window_start, window_end FROM TABLE({window}){where})"


def _links(q: TemplateQuery, name: Any) -> list[str]:
    return [f"{name(q.sources[i], l)} = {name(q.sources[i + 1], r)}" for i, (l, r) in enumerate(q.links)]


def used_streams(queries: Iterable[TemplateQuery]) -> list[str]:
    return sorted({s for q in queries for s in q.sources})
