"""From the shared plan to what tasks execute: views, indexes, joins with their outputs, sinks.

A plan says which joins exist and who uses them. This module adds what the plan leaves open:

- per stream: which columns must be kept, where time is cut into slices, and per query group one *view* (query sets and
  indexes) of every occurrence of the stream; what is folded and what is delivered at once, for queries of one stream;
- per join: how its result is handed on. A join whose result feeds another join is *re-indexed* by that join's key. An
  item of a joined bucket has exactly one row of every *exposed* leaf (those that later keys need); the other leaves
  hang on it as closed lists of partners. If all exposed leaves come from one input, that input carries the items and
  the other side stays a list (late materialization); only if both inputs hold exposed leaves are the pairs laid out.

A join is executed once however many consumers it has; consumers with the same key share one output, which exposes the
union of what they need. An output whose key has the hash that its items were found by is ordered by it as it stands,
and consumers in the same stage go on with it in the task that has made it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from optimizer.model import expressions as ex
from optimizer.model.plan import Leaf
from optimizer.model.query import Output
from optimizer.model.types import StreamSchema
from optimizer.model.windows import Window
from runtime.buckets.refs import IndexKey, OutputKey
from runtime.columns.predicate_index import Selection
from runtime.execution.folding import FoldSpec, FoldUsers
from runtime.execution.shipped import ShippedOnce


class QueryWindow(NamedTuple):
    """The time a query looks at: its windows, from the one that starts at `active_from` on (None: all)."""

    slot: int
    window: Window
    active_from: int | None


class WindowSlots(NamedTuple):
    """The queries that have the same windows."""

    window: Window
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ViewSpec:
    """What one query group takes from one occurrence of a stream: selections and windows per query, and its indexes.

    `kept`: the slots of queries that need the tuples later, because they join them. Of the others, `folds` make
    partials, and `rows` deliver at once.
    """

    leaf: Leaf
    group: int
    words: int
    selections: tuple[Selection, ...]
    windows: tuple[QueryWindow, ...]
    keys: tuple[IndexKey, ...]
    kept: tuple[int, ...] = ()
    folds: tuple[FoldSpec, ...] = ()
    rows: tuple[SinkSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """`columns` and `shapes`: what is kept of tuples that are joined, and where their time is cut."""

    schema: StreamSchema
    columns: tuple[str, ...]
    shapes: tuple[Window, ...]
    views: tuple[ViewSpec, ...]
    reads: frozenset[str] = frozenset()
    """All columns that tasks look at, besides the event time."""


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """A re-indexed result: by which key, exposing which leaves, wanted by which slots. `same_hash`: its key has the
    hash by which the join has found it."""

    node: str
    key: OutputKey
    exposed: tuple[Leaf, ...]
    users: tuple[int, ...]
    same_hash: bool = False


@dataclass(frozen=True, slots=True)
class SinkSpec:
    """One query at its last join. `checks` filter joined rows: residual predicates, and keys whose hash is no proof.

    `mode` is ROWS, FACTORIZED or FOLD. `needs_rows`: single combinations must be looked at; else closed lists say
    everything. `multiplies`: what is made may be as much as there are combinations, even of closed lists. `groups`:
    what is grouped by. `output_class` is equal for queries of a join that select the same in the
    same mode.
    """

    uid: str
    slot: int
    window: Window
    active_from: int | None
    leaves: tuple[tuple[str, Leaf], ...]
    checks: tuple[ex.Expr, ...]
    outputs: tuple[Output, ...]
    mode: str
    needs_rows: bool
    multiplies: bool
    groups: tuple[ex.Expr, ...] = ()
    output_class: int = 0


@dataclass(frozen=True, slots=True)
class SideSpec:
    """An input of a join: a source view (leaf set, indexed by `key` columns) or the output of another join. `goes_on`:
    the same task makes that output and goes on with it at once (optimizer.model.stages)."""

    leaves: tuple[Leaf, ...]
    group: int
    key: OutputKey
    child: str | None
    goes_on: bool = False

    @property
    def index_key(self) -> IndexKey:
        return tuple((column, type) for _, column, type in self.key)


@dataclass(frozen=True, slots=True)
class JoinSpec:
    name: str
    depth: int
    group: int
    words: int
    left: SideSpec
    right: SideSpec
    shapes: tuple[WindowSlots, ...]
    users: tuple[int, ...]
    outputs: tuple[OutputSpec, ...]
    sinks: tuple[SinkSpec, ...]
    folds: tuple[FoldSpec, ...] = ()


@dataclass(frozen=True)
class Physical:
    """Everything tasks need to know about one plan version. `stages`: the joins that run together, inputs before
    consumers. `uses[(node, key)]`: the queries behind each output."""

    version: int
    sources: Mapping[str, SourceSpec]
    stages: tuple[tuple[JoinSpec, ...], ...]
    uses: Mapping[tuple[str, OutputKey], frozenset[str]] = field(default_factory=dict)
    folds: tuple[FoldUsers, ...] = ()

    @cached_property
    def joins(self) -> tuple[JoinSpec, ...]:
        return tuple(j for stage in self.stages for j in stage)

    @cached_property
    def shipped_joins(self) -> ShippedOnce[Mapping[str, JoinSpec]]:
        return ShippedOnce({j.name: j for j in self.joins})

    @cached_property
    def shipped_folds(self) -> ShippedOnce[tuple[FoldUsers, ...]]:
        return ShippedOnce(self.folds)

    @cached_property
    def shipped_sources(self) -> ShippedOnce[Mapping[str, SourceSpec]]:
        return ShippedOnce(self.sources)


def source_sides(spec: JoinSpec, joins: Mapping[str, JoinSpec]) -> dict[Leaf, SideSpec]:
    """The source view behind every leaf of a join tree."""
    out: dict[Leaf, SideSpec] = {}
    for side in (spec.left, spec.right):
        if side.child is None:
            out[side.leaves[0]] = side
        else:
            out |= source_sides(joins[side.child], joins)
    return out
