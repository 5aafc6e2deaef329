"""From the shared plan to what tasks execute: views, indexes, joins with their outputs, sinks.

A plan says which joins exist and who uses them. This module adds what the plan leaves open:

- per stream: which columns must be kept, where time is cut into slices, and per query group one *view* (query sets and
  indexes) of every occurrence of the stream;
- per join: how its result is handed on. A join whose result feeds another join is *re-indexed* by that join's key. An
  item of a joined bucket has exactly one row of every *exposed* leaf (those that later keys need); the other leaves
  hang on it as closed lists of partners. If all exposed leaves come from one input, that input carries the items and
  the other side stays a list (late materialization); only if both inputs hold exposed leaves are the pairs laid out.

A join is executed once however many consumers it has; consumers with the same key share one output, which exposes the
union of what they need.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from optimizer.model import expressions as ex
from optimizer.model.plan import JoinNode, Leaf, Node, Plan, RunningQuery, SourceNode, join_nodes
from optimizer.model.query import ROWS, Output, Window
from optimizer.model.types import ColumnType, StreamSchema
from runtime.columns.predicate_index import Selection
from runtime.execution.packed import Packed
from runtime.kernels.hashing import exact

IndexKey = tuple[tuple[str, ColumnType], ...]
"""Columns of one source view, in the order in which they are hashed."""

OutputKey = tuple[tuple[Leaf, str, ColumnType], ...]
"""The same for a joined bucket, whose columns come from several leaves."""


@dataclass(frozen=True, slots=True)
class ViewSpec:
    """One query group's look at one occurrence of a stream."""

    leaf: Leaf
    group: int
    words: int
    selections: tuple[Selection, ...]
    windows: tuple[tuple[int, Window, int | None], ...]
    keys: tuple[IndexKey, ...]


@dataclass(frozen=True, slots=True)
class SourceSpec:
    schema: StreamSchema
    columns: tuple[str, ...]
    shapes: tuple[Window, ...]
    views: tuple[ViewSpec, ...]


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """A re-indexed result: by which key, exposing which leaves, wanted by which slots."""

    node: str
    key: OutputKey
    exposed: tuple[Leaf, ...]
    users: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SinkSpec:
    """One query at its last join. `checks` filter joined rows: residual predicates, and keys whose hash is no proof.

    `mode` is ROWS, FACTORIZED or COUNT. `needs_rows`: single combinations must be looked at; else closed lists say
    everything. `alike` is equal for queries of a join that select the same in the same mode.
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
    alike: int = 0


@dataclass(frozen=True, slots=True)
class SideSpec:
    """An input of a join: a source view (leaf set, indexed by `key` columns) or the output of another join."""

    leaves: tuple[Leaf, ...]
    group: int
    key: OutputKey
    child: str | None

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
    shapes: tuple[tuple[Window, tuple[int, ...]], ...]
    users: tuple[int, ...]
    outputs: tuple[OutputSpec, ...]
    sinks: tuple[SinkSpec, ...]


@dataclass(frozen=True)
class Physical:
    """Everything tasks need to know about one plan version. `uses[(node, key)]`: the queries behind each output."""

    version: int
    sources: Mapping[str, SourceSpec]
    levels: tuple[tuple[JoinSpec, ...], ...]
    uses: Mapping[tuple[str, OutputKey], frozenset[str]] = field(default_factory=dict)

    @cached_property
    def joins(self) -> tuple[JoinSpec, ...]:
        return tuple(j for level in self.levels for j in level)

    @cached_property
    def packed_joins(self) -> Packed[Mapping[str, JoinSpec]]:
        return Packed({j.name: j for j in self.joins})

    @cached_property
    def packed_sources(self) -> Packed[Mapping[str, SourceSpec]]:
        return Packed(self.sources)


def source_sides(spec: JoinSpec, joins: Mapping[str, JoinSpec]) -> dict[Leaf, SideSpec]:
    """The source view behind every leaf of a join tree."""
    out: dict[Leaf, SideSpec] = {}
    for side in (spec.left, spec.right):
        if side.child is None:
            out[side.leaves[0]] = side
        else:
            out |= source_sides(joins[side.child], joins)
    return out


def side_key(node: JoinNode, left: bool) -> OutputKey:
    parts = [(k.left if left else k.right, k.type) for k in node.keys]
    return tuple((a.leaf, a.column, type) for a, type in parts)


def compile_plan(
    plan: Plan,
    queries: Mapping[str, RunningQuery],
    schemas: Mapping[str, StreamSchema],
    *,
    eager: bool = False,
) -> Physical:
    """`eager`: joined lists are opened at once instead of staying closed (only to be measured against).

    The plan of the last epoch may name streams that were deleted since; nobody reads them.
    """
    exposed, uses = _exposures(plan)
    if eager:
        leaves = {n.name: frozenset(n.leaves) for n in plan.nodes}
        exposed = {(name, key): leaves[name] for name, key in exposed}
    sources = {
        stream: _source(stream, plan, queries, schemas[stream])
        for stream in sorted({n.leaf.stream for n in plan.sources} & schemas.keys())
    }
    joins = [_join(node, users, plan, queries, exposed, uses) for node, users in plan.nodes.items()]
    depths = sorted({j.depth for j in joins})
    levels = tuple(tuple(j for j in joins if j.depth == d) for d in depths)
    return Physical(plan.version, sources, levels, uses)


def _exposures(
    plan: Plan,
) -> tuple[dict[tuple[str, OutputKey], frozenset[Leaf]], dict[tuple[str, OutputKey], frozenset[str]]]:
    """Per (join, key of a consumer): which leaves its items must expose, and for which queries.

    Consumers come before producers (deepest last in `plan.nodes`), so one pass suffices.
    """
    exposed: dict[tuple[str, OutputKey], frozenset[Leaf]] = {}
    uses: dict[tuple[str, OutputKey], frozenset[str]] = {}
    for node in reversed(list(plan.nodes)):
        wanted = {leaf for (name, _), leaves in exposed.items() if name == node.name for leaf in leaves}
        for child, left in ((node.left, True), (node.right, False)):
            if isinstance(child, SourceNode):
                continue
            key = side_key(node, left)
            at = (child.name, key)
            need = {leaf for leaf, _, _ in key} | (wanted & set(child.leaves))
            exposed[at] = exposed.get(at, frozenset()) | need
            uses[at] = uses.get(at, frozenset()) | frozenset(plan.nodes[node])
    return exposed, uses


def _source(stream: str, plan: Plan, queries: Mapping[str, RunningQuery], schema: StreamSchema) -> SourceSpec:
    keys: dict[SourceNode, set[IndexKey]] = {}
    for node in plan.nodes:
        for child, left in ((node.left, True), (node.right, False)):
            if isinstance(child, SourceNode) and child.leaf.stream == stream:
                key = tuple((column, type) for _, column, type in side_key(node, left))
                keys.setdefault(child, set()).add(key)
    views, columns, shapes = [], set[str](), set[Window]()
    for source, uids in plan.sources.items():
        if source.leaf.stream != stream:
            continue
        selections, windows = [], []
        for uid in uids:
            rq, slot = queries[uid], plan.by_uid[uid].slot
            alias = next(s.alias for s in rq.query.sources if rq.leaf_of(s.alias) == source.leaf)
            selections.append(Selection(slot, dict(rq.query.selections).get(alias)))
            windows.append((slot, rq.query.window, rq.active_from))
            columns |= rq.query.needed_columns(alias)
            shapes.add(rq.query.window)
        views.append(
            ViewSpec(
                source.leaf,
                source.group,
                plan.words(source.group),
                tuple(sorted(selections, key=lambda s: s.slot)),
                tuple(sorted(windows, key=lambda w: w[0])),
                tuple(sorted(keys[source])),
            )
        )
    kept = tuple(c.name for c in schema.columns if c.name in columns)
    return SourceSpec(schema, kept, tuple(sorted(shapes)), tuple(views))


def _join(
    node: JoinNode,
    users: tuple[str, ...],
    plan: Plan,
    queries: Mapping[str, RunningQuery],
    exposed: Mapping[tuple[str, OutputKey], frozenset[Leaf]],
    uses: Mapping[tuple[str, OutputKey], frozenset[str]],
) -> JoinSpec:
    def slots(uids: frozenset[str] | tuple[str, ...]) -> tuple[int, ...]:
        return tuple(sorted(plan.by_uid[u].slot for u in uids))

    shapes: dict[Window, list[str]] = {}
    for uid in users:
        shapes.setdefault(queries[uid].query.window, []).append(uid)
    outputs = tuple(
        OutputSpec(name, key, tuple(sorted(leaves)), slots(uses[(name, key)]))
        for (name, key), leaves in sorted(exposed.items())
        if name == node.name
    )
    sinks = _numbered([_sink(plan, queries[uid]) for uid in users if plan.by_uid[uid].root == node])
    return JoinSpec(
        node.name,
        node.depth,
        node.group,
        plan.words(node.group),
        _side(node.left, side_key(node, True)),
        _side(node.right, side_key(node, False)),
        tuple((shape, slots(tuple(uids))) for shape, uids in sorted(shapes.items())),
        slots(users),
        outputs,
        sinks,
    )


def _side(node: Node, key: OutputKey) -> SideSpec:
    return SideSpec(node.leaves, node.group, key, node.name if isinstance(node, JoinNode) else None)


def _numbered(sinks: Sequence[SinkSpec]) -> tuple[SinkSpec, ...]:
    numbers: dict[object, int] = {}
    return tuple(replace(s, alike=numbers.setdefault((s.leaves, s.outputs, s.mode), len(numbers))) for s in sinks)


def _sink(plan: Plan, rq: RunningQuery) -> SinkSpec:
    placement = plan.by_uid[rq.uid]
    leaves = tuple((s.alias, rq.leaf_of(s.alias)) for s in rq.query.sources)
    alias_of = {leaf: alias for alias, leaf in leaves}
    checks: list[ex.Expr] = []
    for node in join_nodes(placement.root):
        if not exact(tuple(k.type for k in node.keys)):
            for k in node.keys:
                equal = next(
                    p
                    for p in rq.query.equi
                    if {(p.left.alias, p.left.column), (p.right.alias, p.right.column)}
                    == {(alias_of[k.left.leaf], k.left.column), (alias_of[k.right.leaf], k.right.column)}
                )
                checks.append(ex.Compare("=", equal.left, equal.right))
    checks += rq.query.residual
    mixed = any(len(ex.aliases_of(o.expr)) > 1 for o in rq.query.outputs)
    return SinkSpec(
        rq.uid,
        placement.slot,
        rq.query.window,
        rq.active_from,
        leaves,
        tuple(checks),
        rq.query.outputs,
        rq.query.sink_mode,
        rq.query.sink_mode == ROWS or bool(checks) or mixed,
    )
