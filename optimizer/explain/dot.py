"""Explain as Graphviz DOT: sources below, joins and folds above, sinks on top, one cluster per query group.

An edge carries the query set of what flows along it for its consumer: ids and bits. Names go into
double-quoted DOT strings, where only the quote and the backslash mean something, so any stream or query id
is safe.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from optimizer.explain.describe import and_others
from optimizer.explain.folds import FoldView
from optimizer.explain.text import WIDTH, apart_text, bits, figures_text, index_text, shorten
from optimizer.explain.views import NodeView
from optimizer.model.plan import JoinNode, Node, Plan

FEW = 6


def plan_dot(
    plan: Plan,
    views: Mapping[Node, NodeView],
    heavy: Collection[int] = (),
    only: str | None = None,
    folds: Collection[FoldView] = (),
) -> str:
    """The nodes of `views`; with `only`, that query's sink alone. `heavy`: groups that are kept apart."""
    version = f"plan version {plan.version}"
    title = version if only is None else f"{only} in {version}" if plan.version else only
    lines = [
        "digraph ajoin {",
        "  rankdir=BT;",
        f"  label={quote(title)};",
        '  node [fontname="sans-serif"];',
    ]
    for group in sorted({node.group for node in views}):
        label = quote(f"group {group}{apart_text(group, heavy)}")
        lines += [f"  subgraph {quote(f'cluster_g{group}')} {{", f"    label={label};"]
        lines += [f"    {_node(v)}" for v in views.values() if v.node.group == group]
        lines += [f"    {_fold(f)}" for f in folds if f.node.group == group]
        lines.append("  }")
    for view in views.values():
        mine = [f for f in folds if f.node == view.node]
        lines += [f"  {line}" for line in _edges(view, mine, only)]
    return "\n".join([*lines, "}"]) + "\n"


def quote(text: str) -> str:
    """A DOT string that shows exactly `text`; a line break becomes the escape for a centred one."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _node(view: NodeView) -> str:
    label = [str(view.node)]
    if view.on:
        label.append("on " + " AND ".join(view.on))
    if view.indexes:
        label.append(f"index {index_text(view)}")
    label += _few([f"σ {id}: {shorten(text)}" for id, text in view.selections])
    if figures_text(view):
        label.append(figures_text(view))
    shape = "ellipse" if isinstance(view.node, JoinNode) else "box"
    style = ", style=bold" if len(view.users) + view.others > 1 else ""
    return f"{quote(view.name)} [shape={shape}{style}, label={quote(chr(10).join(label))}];"


def _fold(view: FoldView) -> str:
    by = f"by {', '.join(view.groups)}" if view.groups else "as one group"
    label = [f"fold {by}", f"keeps {shorten(', '.join(view.keeps))}", ", ".join([view.cut, *view.figures])]
    label += [shorten(line, WIDTH) for line in view.combining.lines()]
    style = ", style=bold" if len(view.users) + view.others > 1 else ""
    return f"{quote(view.name)} [shape=folder{style}, label={quote(chr(10).join(label))}];"


def _edges(view: NodeView, folds: Collection[FoldView], only: str | None) -> Iterator[str]:
    for name in view.inputs:
        label = f"{and_others(' '.join(_few(view.users)), view.others)}\n{bits(view.bits)}"
        yield f"{quote(name)} -> {quote(view.name)} [label={quote(label)}];"
    slot = dict(zip(view.users, view.bits, strict=True))
    for fold in folds:
        label = f"{and_others(' '.join(_few(fold.users)), fold.others)}\n{bits(slot[id] for id in fold.users)}"
        yield f"{quote(view.name)} -> {quote(fold.name)} [label={quote(label)}];"
    ends_at = {id: fold.name for fold in folds for id in fold.users}
    for id in view.sinks:
        if only in (None, id):
            sink = quote(f"sink {id}")
            yield f"{sink} [shape=cds, label={quote(id)}];"
            yield f"{quote(ends_at.get(id, view.name))} -> {sink} [label={quote(bits([slot[id]]))}];"


def _few(items: Iterable[str]) -> list[str]:
    every = list(items)
    return every if len(every) <= FEW + 1 else [*every[:FEW], f"… {len(every) - FEW} more"]
