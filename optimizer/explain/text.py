"""Explain as plain text: trees with box characters that fit into a terminal or a report.

    plan version 2 · 1 partition · 2 queries · 1 group
    3 joins asked for, 2 run · 6 indexes asked for, 4 built · 5 scans asked for, 3 made

    group 0: q1 (bit 0), q2 (bit 1)
    (C ⋈ (V ⋈ W)) on C.usrID = W.usrID  [q2 · bit 1]  → q2
    ├── C  index usrID  σ q2: length > 5  [q2 · bit 1]
    └── (V ⋈ W) on V.vID = W.vID  index W.usrID  [q1 q2 · bits 0-1]  shared by 2  → q1
        ├── V  index vID  σ q1: lang = 'ENG' · q2: geo = 'US'  [q1 q2 · bits 0-1]  shared by 2
        └── W  index vID  σ q1: geo = 'GER' · q2: duration < 10  [q1 q2 · bits 0-1]  shared by 2

The brackets hold the queries that use a node and their bits, an arrow the queries whose result it is. A node is
drawn once; where it is used again only its name appears, with "see above". A join that "goes on in the same stage"
hands its result to the one above within its tasks. A sentence below the trees of a group says who folds what once, and
the lines below it how windows that overlap are combined. Long lists are cut: JSON has everything. A group
line that ends with "apart: heavy" is one that nobody else joins.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import networkx as nx

from optimizer.explain.describe import and_others, first_few, shared_with
from optimizer.explain.folds import FoldView
from optimizer.explain.render import render
from optimizer.explain.savings import Index, what_sharing_saves
from optimizer.explain.views import NodeView
from optimizer.model.graphs import plan_graph
from optimizer.model.pins import NO_PINS, Pins
from optimizer.model.plan import JoinNode, Node, Plan, RunningQuery
from optimizer.model.query import FACTORIZED, FOLD, ROWS
from optimizer.model.trees import Order, order_of

FEW = 6
WIDTH = 100
DELIVERS = {
    ROWS: "rows",
    FACTORIZED: "lists whose product are the rows (EMIT FACTORIZED)",
    FOLD: "one row per group and window when it closes",
}


def plan_text(
    plan: Plan,
    queries: Mapping[str, RunningQuery],
    views: Mapping[Node, NodeView],
    heavy: Collection[int] = (),
    folds: Collection[FoldView] = (),
    pins: Pins = NO_PINS,
) -> str:
    """`heavy`: groups of queries that are kept apart."""
    head = [
        f"plan version {plan.version}",
        _count(plan.partitioning.count, "partition"),
        *(f"partition {p} split {w} ways" for p, w in plan.partitioning.splits),
        *(["scale pinned"] if pins.scale else []),
        _count(len(plan.placements), "query", "queries"),
        _count(len(plan.groups), "group"),
    ]
    lines = [" · ".join(head)]
    if plan.placements:
        lines.append(str(what_sharing_saves(plan, queries)))
    graph = plan_graph(views)
    for group, members in plan.groups.items():
        lines += [
            "",
            f"group {group}: "
            + first_few([_member(queries[p.uid], p.slot) for p in members], FEW)
            + apart_text(group, heavy)
            + _pinned([f"{queries[p.uid].id} ({of})" for p in members if (of := " and ".join(pins.of(p.uid)))]),
        ]
        lines += _forest([p.root for p in members], graph, views)
        for f in (f for f in folds if f.node.group == group):
            lines += [f.sentence, *(f"    {line}" for line in f.combining.lines())]
    return "\n".join(lines)


def query_text(
    plan: Plan,
    queries: Mapping[str, RunningQuery],
    uid: str,
    views: Mapping[Node, NodeView],
    cost: tuple[float, float | None] | None,
    heavy: Collection[int] = (),
    fold: FoldView | None = None,
    pins: Pins = NO_PINS,
) -> str:
    rq, at = queries[uid], plan.by_uid[uid]
    version = f" · plan version {plan.version}" if plan.version else ""
    since = f" · active from {rq.active_from}" if rq.active_from is not None else ""
    held = apart_text(at.group, heavy) + _pinned(pins.of(uid))
    lines = [
        f"{rq.id}{version} · group {at.group}, bit {at.slot}{held}{since}",
        f"window      {rq.query.window.sql or 'none'}",
        f"delivers    {DELIVERS[rq.query.sink_mode]}",
        f"{'join order' if len(rq.query.sources) > 1 else 'reads':<10}  {_order(order_of(rq, at.root))}",
    ]
    if fold is not None:
        lines += _listed("folds", [fold.sentence])
        lines += _listed("windows", [shorten(", ".join(fold.windows), WIDTH)] if len(fold.windows) > 1 else [])
        lines += _listed("combines", fold.combining.lines(rq.id))
        lines += _listed("keeps", [shorten(", ".join(fold.keeps) or "whether there is anything", WIDTH)])
    renamed = [f"{s.alias} is {rq.leaf_of(s.alias)}" for s in rq.query.sources if s.alias != str(rq.leaf_of(s.alias))]
    lines += _listed("streams", [", ".join(renamed)] if renamed else [])
    lines += _listed("selections", [shorten(render(e), WIDTH) for _, e in rq.query.selections])
    lines += _listed("residual", [shorten(render(e), WIDTH) for e in rq.query.residual])
    lines += _listed(
        "shares",
        [
            f"{node if isinstance(node, JoinNode) else f'the scan of {node}'} with "
            f"{_sharers([u for u in others if u in queries], queries, len(others))}"
            for node, others in shared_with(plan, uid)
        ]
        or ["nothing"],
    )
    if cost is not None:
        lines += _listed("cost", [_cost(*cost)])
    return "\n".join([*lines, "", *_forest([at.root], plan_graph(views), views)])


def apart_text(group: int, heavy: Collection[int]) -> str:
    return " · apart: heavy" if group in heavy else ""


def _pinned(what: Sequence[str]) -> str:
    return f" · pinned: {first_few(what, FEW)}" if what else ""


def _sharers(named: list[str], queries: Mapping[str, RunningQuery], all: int) -> str:
    return and_others(first_few([queries[u].id for u in named], FEW), all - len(named))


def _cost(alone: float, shared: float | None) -> str:
    if shared is None:
        return f"{_number(alone)} alone"
    less = f" ({1 - shared / alone:.0%} less)" if 0 < shared < alone else ""
    return f"{_number(alone)} alone, {_number(shared)} shared{less}"


def _member(rq: RunningQuery, slot: int) -> str:
    short = {ROWS: "", FACTORIZED: ", FACTORIZED", FOLD: ", FOLD"}
    return f"{rq.id} (bit {slot}{short[rq.query.sink_mode]})"


def bits(slots: Iterable[int]) -> str:
    """Sorted bits, with ranges: "bits 0-2,5"."""
    runs: list[list[int]] = []
    for slot in sorted(slots):
        if runs and slot == runs[-1][1] + 1:
            runs[-1][1] = slot
        else:
            runs.append([slot, slot])
    text = ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
    return f"bit {text}" if len(runs) == 1 and runs[0][0] == runs[0][1] else f"bits {text}"


def index_text(view: NodeView) -> str:
    """The keys of the node's indexes; a source need not say whose columns they are."""
    qualified = isinstance(view.node, JoinNode)

    def key(index: Index) -> str:
        parts = [str(a) if qualified else a.column for a in index]
        return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"

    return ", ".join(key(index) for index in view.indexes)


def shorten(text: str, width: int = 60) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def figures_text(view: NodeView) -> str:
    known = [("observed", view.observed), ("estimated", view.estimated)]
    return ", ".join(f"{_number(value)}/s {what}" for what, value in known if value is not None)


def _forest(roots: list[Node], graph: nx.DiGraph[Node], views: Mapping[Node, NodeView]) -> Iterator[str]:
    """The trees that no other tree contains, each node drawn once."""
    drawn: set[Node] = set()
    for root in dict.fromkeys(roots):
        if not graph.out_degree(root):
            yield from _tree(root, views, drawn, "", "")


def _tree(node: Node, views: Mapping[Node, NodeView], drawn: set[Node], first: str, rest: str) -> Iterator[str]:
    if node in drawn:
        yield f"{first}{node}  see above"
        return
    drawn.add(node)
    yield first + _line(views[node])
    if isinstance(node, JoinNode):
        yield from _tree(node.left, views, drawn, f"{rest}├── ", f"{rest}│   ")
        yield from _tree(node.right, views, drawn, f"{rest}└── ", f"{rest}    ")


def _line(view: NodeView) -> str:
    on = f" on {' AND '.join(view.on)}" if view.on else ""
    parts = [f"{view.node}{on}"]
    if view.indexes:
        parts.append(f"index {index_text(view)}")
    if view.selections:
        shown = [f"{id}: {shorten(text)}" for id, text in view.selections[:FEW]]
        hidden = len(view.selections) - len(shown)
        parts.append("σ " + " · ".join([*shown, f"{hidden} more"] if hidden else shown))
    if figures_text(view):
        parts.append(figures_text(view))
    parts.append(f"[{and_others(_names(view.users), view.others)} · {bits(view.bits)}]")
    if view.goes_on:
        parts.append("goes on in the same stage")
    if len(view.users) + view.others > 1:
        parts.append(f"shared by {len(view.users) + view.others}")
    if view.sinks:
        parts.append(f"→ {_names(view.sinks)}")
    return "  ".join(parts)


def _names(ids: tuple[str, ...]) -> str:
    shown = " ".join(ids[:FEW])
    return shown if len(ids) <= FEW else f"{shown} +{len(ids) - FEW}"


def _listed(title: str, items: list[str]) -> list[str]:
    return [f"{title if i == 0 else '':<12}{item}" for i, item in enumerate(items)]


def _order(order: Order) -> str:
    return order if isinstance(order, str) else f"({' ⋈ '.join(_order(o) for o in order)})"


def _count(n: int, one: str, many: str = "") -> str:
    return f"{n} {one if n == 1 else many or one + 's'}"


def _number(value: float) -> str:
    if value >= 10 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 0.1 else "< 0.1"
