"""Explain: who runs what, in which order, with which bit, and who shares it; as text, JSON or Graphviz DOT.

All three formats are drawn from the same views, so they cannot disagree. The JSON shape is an interface
(fields are only ever added):

    plan   {version, partitions, splits: [{partition, ways}], scale_pinned, savings: {...},
            groups: [{group, queries: [id], apart}],
            queries: [{id, uid, group, bit, window, sink_mode, root, pins}],
            nodes: [node],                                              inputs before consumers
            folds: [fold]}
    query  {id, uid, sql, plan_version, group, apart, bit, pins, active_from, window, sink_mode, order,
            selections: {alias: text}, residual: [text], outputs: [name], shares: [{node, text, with: [id], others}],
            cost: {alone, shared} or null, nodes: [node], fold: fold or null}
    node   {name, kind: "source" or "join", text, group, inputs: [name], on: [text], indexes: [[attribute]],
            queries: [id], others, bits: [bit], sinks: [id], selections: {id: text}, observed, estimated,
            stage, goes_on}
    fold   {name, node, text, queries: [id], others, groups: [text], windows: [text], cut, slices_a_minute,
            keeps: [text], combining: {windows: [combined], together: {from, ways: {kind: way}} or null},
            counted: {tuples, entries, groups, pieces, query_sets, by_query} or null}
    combined  {window, queries: [id], way: "blocks" or "all", parts, unit, entries, why}

`order` is nested lists of aliases, as `force` takes it. `window` holds what its kind is made of ({size_ms, advance_ms}
of hopping and tumbling ones, nothing without a window) and `sql`. `sink_mode`: "ROWS", "FACTORIZED" or "FOLD". A fold's
`cut` is "slices", "pieces", "times" or "tuples" (optimizer.model.folds); what is counted is per epoch. `combining` is
about windows that overlap (optimizer.explain.combining): a window has so many `parts` ("slices" or "tuples"), and with
blocks it is combined from so many `entries`. Where so many windows close in one epoch (`from`), each kind of partial is
combined in its `way`: "combine", "subtract" or "stacks". `observed` and
`estimated` are tuples or combinations a second, null where nothing is known; they are keyed by node name:
a digest for a join, `g<group>-<leaf>` for a source. A join runs in `stage` (from 1 on, null for a source), and
`goes_on` is true if one above it runs in the same stage over its result. `apart` is true for a group, and for a query
alone in its group, that nobody else joins because it is heavy. `pins`: what of a query somebody has forced ("order",
"group"). Ids are the running queries' ids; `others` counts those the reader may not see, and where there are any, what
depends on them (`shared`, `observed`, `estimated`, `counted`) is null.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, fields
from typing import Any

from optimizer.errors import InvalidRequest, NotFound
from optimizer.explain.describe import shared_with
from optimizer.explain.dot import plan_dot
from optimizer.explain.folds import Folds, FoldView, fold_views
from optimizer.explain.render import render
from optimizer.explain.savings import Savings, what_sharing_saves
from optimizer.explain.text import plan_text, query_text
from optimizer.explain.views import Figures, NodeView, groups_apart, node_views
from optimizer.model.pins import NO_PINS, Pins
from optimizer.model.plan import JoinNode, Node, Plan, RunningQuery, walk
from optimizer.model.trees import order_of
from optimizer.model.windows import Window

__all__ = ["FORMATS", "Savings", "explain_plan", "explain_query", "what_sharing_saves"]

FORMATS = ("text", "json", "dot")


def explain_plan(
    plan: Plan,
    queries: Mapping[str, RunningQuery],
    format: str = "text",
    *,
    observed: Mapping[str, float] | None = None,
    estimated: Mapping[str, float] | None = None,
    apart: Collection[str] = (),
    folds: Folds | None = None,
    pins: Pins = NO_PINS,
) -> str:
    """The whole plan; `queries` by uid; `apart`: uids of those that are kept apart; `folds`: what is known of them."""
    figures = Figures(observed or {}, estimated or {})
    shared = fold_views(plan, queries, folds)
    heavy = groups_apart(plan, apart)
    match _known(format):
        case "json":
            return json.dumps(_plan_document(plan, queries, figures, heavy, shared, pins), ensure_ascii=False, indent=2)
        case "dot":
            return plan_dot(plan, node_views(plan, queries, figures), heavy, folds=shared)
        case _:
            return plan_text(plan, queries, node_views(plan, queries, figures), heavy, shared, pins)


def explain_query(
    plan: Plan,
    queries: Mapping[str, RunningQuery],
    uid: str,
    format: str = "text",
    *,
    observed: Mapping[str, float] | None = None,
    estimated: Mapping[str, float] | None = None,
    cost: tuple[float, float] | None = None,
    apart: Collection[str] = (),
    folds: Folds | None = None,
    pins: Pins = NO_PINS,
) -> str:
    """One query of the plan; for one that does not run yet, pass the plan that `create_delete` gives.

    `queries` may lack some of the plan's: those are counted, and nothing else is told of them. So it is said that the
    query is kept apart only where nobody else is in its group.
    """
    if uid not in plan.by_uid or uid not in queries:
        raise NotFound(f"plan version {plan.version} does not run {uid}", reason="QUERY_NOT_FOUND")
    figures = Figures(observed or {}, estimated or {})
    views = node_views(plan, queries, figures)
    views = {node: views[node] for node in walk(plan.by_uid[uid].root)}
    heavy = groups_apart(plan, {uid} & set(apart))
    fold = next((f for f in fold_views(plan, queries, folds) if f.holds(plan, queries[uid])), None)
    price = (cost[0], None) if cost and any(view.others for view in views.values()) else cost
    match _known(format):
        case "json":
            return json.dumps(
                _query_document(plan, queries, uid, views, price, heavy, fold, pins), ensure_ascii=False, indent=2
            )
        case "dot":
            return plan_dot(plan, views, heavy, only=queries[uid].id, folds=(fold,) if fold else ())
        case _:
            return query_text(plan, queries, uid, views, price, heavy, fold, pins)


def _plan_document(
    plan: Plan,
    queries: Mapping[str, RunningQuery],
    figures: Figures,
    heavy: Collection[int],
    folds: Collection[FoldView],
    pins: Pins,
) -> dict[str, Any]:
    views = node_views(plan, queries, figures)
    return {
        "version": plan.version,
        "partitions": plan.partitioning.count,
        "splits": [{"partition": p, "ways": w} for p, w in plan.partitioning.splits],
        "scale_pinned": pins.scale,
        "savings": asdict(what_sharing_saves(plan, queries)),
        "groups": [
            {"group": group, "queries": [queries[p.uid].id for p in members], "apart": group in heavy}
            for group, members in plan.groups.items()
        ],
        "queries": [
            {
                "id": queries[p.uid].id,
                "uid": p.uid,
                "group": p.group,
                "bit": p.slot,
                "window": _window_document(queries[p.uid].query.window),
                "sink_mode": queries[p.uid].query.sink_mode,
                "root": p.root.name,
                "pins": list(pins.of(p.uid)),
            }
            for p in plan.placements
        ],
        "nodes": [_node_document(v) for v in views.values()],
        "folds": [f.document for f in folds],
    }


def _query_document(
    plan: Plan,
    queries: Mapping[str, RunningQuery],
    uid: str,
    views: Mapping[Node, NodeView],
    cost: tuple[float, float | None] | None,
    heavy: Collection[int],
    fold: FoldView | None,
    pins: Pins,
) -> dict[str, Any]:
    rq, at = queries[uid], plan.by_uid[uid]
    return {
        "id": rq.id,
        "uid": rq.uid,
        "sql": rq.query.sql,
        "plan_version": plan.version,
        "group": at.group,
        "apart": at.group in heavy,
        "bit": at.slot,
        "pins": list(pins.of(uid)),
        "active_from": rq.active_from,
        "window": _window_document(rq.query.window),
        "sink_mode": rq.query.sink_mode,
        "order": order_of(rq, at.root),
        "selections": {alias: render(e) for alias, e in rq.query.selections},
        "residual": [render(e) for e in rq.query.residual],
        "outputs": [o.name for o in rq.query.outputs],
        "shares": [
            {"node": node.name, "text": str(node), "with": ids, "others": len(others) - len(ids)}
            for node, others in shared_with(plan, uid)
            for ids in [[queries[u].id for u in others if u in queries]]
        ],
        "cost": {"alone": cost[0], "shared": cost[1]} if cost else None,
        "nodes": [_node_document(v) for v in views.values()],
        "fold": fold.document if fold else None,
    }


def _window_document(window: Window) -> dict[str, Any]:
    """Numbers and texts; an expression is in `sql`."""
    parts = {f.name: getattr(window, f.name) for f in fields(window)}
    return {**{name: value for name, value in parts.items() if isinstance(value, int | str)}, "sql": window.sql}


def _node_document(view: NodeView) -> dict[str, Any]:
    return {
        "name": view.name,
        "kind": "join" if isinstance(view.node, JoinNode) else "source",
        "text": str(view.node),
        "group": view.node.group,
        "inputs": list(view.inputs),
        "on": list(view.on),
        "indexes": [[str(a) for a in key] for key in view.indexes],
        "queries": list(view.users),
        "others": view.others,
        "bits": list(view.bits),
        "sinks": list(view.sinks),
        "selections": dict(view.selections),
        "observed": view.observed,
        "estimated": view.estimated,
        "stage": view.stage,
        "goes_on": view.goes_on,
    }


def _known(format: str) -> str:
    if format not in FORMATS:
        raise InvalidRequest(
            f"unknown explain format {format!r}", reason="INVALID_FORMAT", hint=f"use {', '.join(FORMATS)}"
        )
    return format
