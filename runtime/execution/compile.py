"""From a plan to what its tasks do: `compile_plan`, once per plan version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from optimizer.model import expressions as ex
from optimizer.model.plan import Attribute, JoinNode, Leaf, Node, Plan, RunningQuery, SourceNode
from optimizer.model.query import FACTORIZED, FOLD, Query
from optimizer.model.stages import Stages, key_of, same_partition, stages_of
from optimizer.model.types import ColumnType, StreamSchema
from optimizer.model.windows import Window
from runtime.aggregates.components import components_of
from runtime.buckets.refs import IndexKey, OutputKey
from runtime.columns.predicate_index import Selection
from runtime.execution.folding import fold_specs, folds_closed, folds_of
from runtime.execution.physical import (
    JoinSpec,
    OutputSpec,
    Physical,
    QueryWindow,
    SideSpec,
    SinkSpec,
    SourceSpec,
    ViewSpec,
    WindowSlots,
)
from runtime.operators.keys import exact


def side_key(node: JoinNode, left: bool) -> OutputKey:
    return tuple((a.leaf, a.column, type) for a, type in key_of(node, left))


def compile_plan(
    plan: Plan,
    queries: Mapping[str, RunningQuery],
    schemas: Mapping[str, StreamSchema],
    *,
    closed_lists: bool = True,
) -> Physical:
    """`closed_lists`: joined lists stay closed until the sink; else they are opened at once.

    The plan of the last epoch may name streams that were deleted since; they are not read.
    """
    exposed, uses = _exposures(plan)
    if not closed_lists:
        leaves = {n.name: frozenset(n.leaves) for n in plan.nodes}
        exposed = {(name, key): leaves[name] for name, key in exposed}
    sources = {
        stream: _source(stream, plan, queries, schemas[stream])
        for stream in sorted({n.leaf.stream for n in plan.sources} & schemas.keys())
    }
    stages = stages_of(plan)
    joins = tuple(
        tuple(_join(node, plan.nodes[node], plan, queries, exposed, uses, stages) for node in together)
        for together in stages.joins
    )
    return Physical(plan.version, sources, joins, uses, folds_of(plan, queries))


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
        selections, windows, kept = [], [], []
        alone = [uid for uid in uids if plan.by_uid[uid].root == source]
        for uid in uids:
            rq, slot = queries[uid], plan.by_uid[uid].slot
            alias = next(s.alias for s in rq.query.sources if rq.leaf_of(s.alias) == source.leaf)
            selections.append(Selection(slot, dict(rq.query.selections).get(alias)))
            windows.append(QueryWindow(slot, rq.query.window, rq.active_from))
            if plan.by_uid[uid].root != source:
                kept.append(slot)
                columns |= rq.query.needed_columns(alias)
                shapes.add(rq.query.window)
        views.append(
            ViewSpec(
                source.leaf,
                source.group,
                plan.words(source.group),
                tuple(sorted(selections, key=lambda s: s.slot)),
                tuple(sorted(windows, key=lambda w: w.slot)),
                tuple(sorted(keys.get(source, ()))),
                tuple(sorted(kept)),
                fold_specs(plan, queries, alone),
                _numbered([_sink(plan, queries[uid]) for uid in alone if not queries[uid].query.folds]),
            )
        )
    needed = tuple(c.name for c in schema.columns if c.name in columns)
    reads = frozenset(columns).union(*(_reads(view) for view in views))
    return SourceSpec(schema, needed, tuple(sorted(shapes, key=_by_length)), tuple(views), reads)


def _reads(view: ViewSpec) -> set[str]:
    """The columns of its conditions, folds, rows and keys."""
    exprs = [s.condition for s in view.selections if s.condition is not None]
    exprs += [o.expr for sink in view.rows for o in sink.outputs]
    read = {c.column for e in exprs for c in ex.columns_of(e)}
    return read | {c.column for fold in view.folds for c in fold.columns} | {c for key in view.keys for c, _ in key}


def _join(
    node: JoinNode,
    users: tuple[str, ...],
    plan: Plan,
    queries: Mapping[str, RunningQuery],
    exposed: Mapping[tuple[str, OutputKey], frozenset[Leaf]],
    uses: Mapping[tuple[str, OutputKey], frozenset[str]],
    stages: Stages,
) -> JoinSpec:
    def slots(uids: frozenset[str] | tuple[str, ...]) -> tuple[int, ...]:
        return tuple(sorted(plan.by_uid[u].slot for u in uids))

    shapes: dict[Window, list[str]] = {}
    for uid in users:
        shapes.setdefault(queries[uid].query.window, []).append(uid)
    outputs = tuple(
        OutputSpec(
            name,
            key,
            tuple(sorted(leaves)),
            slots(uses[(name, key)]),
            same_partition(_attributes(key), stages.partition[node]),
        )
        for (name, key), leaves in sorted(exposed.items())
        if name == node.name
    )
    sinks = _numbered([_sink(plan, queries[uid]) for uid in users if plan.by_uid[uid].root == node])
    return JoinSpec(
        node.name,
        node.depth,
        node.group,
        plan.words(node.group),
        _side(node.left, side_key(node, True), stages.goes_on(node, left=True)),
        _side(node.right, side_key(node, False), stages.goes_on(node, left=False)),
        tuple(WindowSlots(shape, slots(tuple(shapes[shape]))) for shape in sorted(shapes, key=_by_length)),
        slots(users),
        outputs,
        sinks,
        fold_specs(plan, queries, [s.uid for s in sinks]),
    )


def _attributes(key: OutputKey) -> tuple[tuple[Attribute, ColumnType], ...]:
    return tuple((Attribute(leaf, column), type) for leaf, column, type in key)


def _by_length(window: Window) -> tuple[int, str]:
    """A fixed order for windows of any kind."""
    return window.length_ms, window.sql


def _side(node: Node, key: OutputKey, goes_on: bool) -> SideSpec:
    return SideSpec(node.leaves, node.group, key, node.name if isinstance(node, JoinNode) else None, goes_on)


def _numbered(sinks: Sequence[SinkSpec]) -> tuple[SinkSpec, ...]:
    classes: dict[object, int] = {}
    return tuple(
        replace(s, output_class=classes.setdefault((s.leaves, s.outputs, s.mode), len(classes))) for s in sinks
    )


def _sink(plan: Plan, rq: RunningQuery) -> SinkSpec:
    placement = plan.by_uid[rq.uid]
    leaves = tuple((s.alias, rq.leaf_of(s.alias)) for s in rq.query.sources)
    alias_of = {leaf: alias for alias, leaf in leaves}
    checks: list[ex.Expr] = []
    for node in placement.root.joins:
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
    needs_rows = bool(checks) or not _from_lists(rq.query)
    return SinkSpec(
        rq.uid,
        placement.slot,
        rq.query.window,
        rq.active_from,
        leaves,
        tuple(checks),
        rq.query.outputs,
        rq.query.sink_mode,
        needs_rows,
        needs_rows or (rq.query.folds and _spread(placement.root, rq)),
        rq.query.groups,
    )


def _from_lists(query: Query) -> bool:
    """Do closed lists say what is selected, each of its parts one list?"""
    match query.sink_mode:
        case mode if mode == FACTORIZED:
            return all(len(ex.aliases_of(o.expr)) <= 1 for o in query.outputs)
        case mode if mode == FOLD:
            return all(len(ex.aliases_of(g)) <= 1 for g in query.groups) and all(
                folds_closed(c) for a in query.aggregates for c in components_of(a)
            )
        case _:
            return False


def _spread(root: Node, rq: RunningQuery) -> bool:
    """Does the query group by values of several sources, so that a group may be as small as one combination? A key of
    the last join does not count: lists that meet there have one value of it."""
    keys = {(a.leaf, a.column) for k in root.keys for a in (k.left, k.right)} if isinstance(root, JoinNode) else set()
    columns = {(rq.leaf_of(c.alias), c.column) for g in rq.query.groups for c in ex.columns_of(g)}
    return len({leaf for leaf, _ in columns - keys}) > 1
