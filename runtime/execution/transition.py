"""What a plan change costs in state: which views and joined buckets must be made anew before the next epoch.

State is a cache of what the source buckets say. Between the plan of the last epoch and the plan of the next one,

- a query that is *new* needs nothing from the past: its first window starts after everything accepted so far;
- a query that moved to another group needs its bits in that group's views of the open buckets: they are copied there
  from the views that have them, by query, not by slot;
- a query whose join order changed needs indexes it did not use (added to the views) and joined buckets of joins it
  did not use. Those are rebuilt from their inputs, once, without delivering anything: every row they could lead to
  was delivered in an earlier epoch, by the old plan.

A joined bucket refers to items and index positions of its inputs, so whatever is above a rebuilt input is rebuilt too.
Old and new plan never mix within an epoch, hence nothing is lost or repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from optimizer.errors import InternalError
from optimizer.model.plan import Leaf
from runtime.buckets.refs import IndexKey, OutputKey, SourceRef, ViewRef
from runtime.control.state import State
from runtime.execution.physical import Physical, SideSpec, ViewSpec
from runtime.operators.rebuild import BitSource, ViewRebuild

Output = tuple[str, OutputKey]


@dataclass(frozen=True, slots=True)
class Transition:
    views: tuple[ViewRebuild, ...] = ()
    outputs: frozenset[Output] = frozenset()
    stale: tuple[int, ...] = ()


def key_users(physical: Physical, uids: Mapping[str, tuple[str, ...]]) -> dict[tuple[Leaf, int, IndexKey], set[str]]:
    """Which queries use which index of which view; `uids` names the users of every join."""
    out: dict[tuple[Leaf, int, IndexKey], set[str]] = {}
    for j in physical.joins:
        for side in (j.left, j.right):
            if side.child is None:
                out.setdefault((side.leaves[0], side.group, side.index_key), set()).update(uids[j.name])
    return out


def plan_transition(state: State, before: Physical, after: Physical, *, separate: bool = False) -> Transition:
    """Compare the plan of the last epoch with the current one, over the buckets that are open.

    `separate`: nothing is shared, every group has buckets of its own, and only those know its queries.
    """
    if before.version == after.version:
        return Transition()
    views = tuple(_view_rebuilds(state, after, separate))
    touched = {(v.leaf, v.group) for v in views}
    # an output that only new queries use needs no past: nothing to rebuild, and what is left of it is of no use
    had = set(state.executed.by_uid)
    kept = {at for at, uids in after.uses.items() if uids & had}
    outputs = _output_rebuilds(state, before, after, touched) & kept
    stale = tuple(r.id for r in state.joined.values() if (r.node, r.key) not in kept - outputs)
    return Transition(views, frozenset(outputs), stale)


def _view_rebuilds(state: State, after: Physical, separate: bool) -> list[ViewRebuild]:
    users = key_users(after, {n.name: uids for n, uids in state.plan.nodes.items()})
    slots = {group: state.plan.slots(group) for group in state.plan.groups}
    out = []
    for bucket in state.sources.values():
        spec = after.sources.get(bucket.stream)
        for view in spec.views if spec else ():
            members = {slots[view.group][slot]: slot for slot in view.kept}
            rebuild = _view_rebuild(state, bucket, view, members, users, separate)
            if rebuild is not None:
                out.append(rebuild)
    return out


def _view_rebuild(
    state: State,
    bucket: SourceRef,
    view: ViewSpec,
    members: Mapping[str, int],
    users: Mapping[tuple[Leaf, int, IndexKey], set[str]],
    separate: bool,
) -> ViewRebuild | None:
    """`members`: the slot of each query of the view."""
    present = {uid: slot for uid, slot in members.items() if state.queries[uid].epoch <= bucket.epoch}
    ref = bucket.view(view.leaf, view.group)
    keys = tuple(k for k in view.keys if users[(view.leaf, view.group, k)] & present.keys())
    if ref is not None:
        table = state.slots[ref.version].get(view.group, {})
        if all(table.get(slot) == uid for uid, slot in present.items()) and set(keys) <= set(ref.keys):
            return None
    known = {uid: at for uid in sorted(present) if (at := _find(state, bucket, view.leaf, uid)) is not None}
    if not separate and len(known) < len(present):
        missing = ", ".join(sorted(present.keys() - known.keys()))
        raise InternalError(f"bucket {bucket.id} of epoch {bucket.epoch} does not know {missing}", reason="BITS_LOST")
    if not known:
        return None
    keys = tuple(k for k in keys if users[(view.leaf, view.group, k)] & known.keys())
    bits = tuple(BitSource(present[uid], *at) for uid, at in known.items())
    return ViewRebuild(bucket, view.leaf, view.group, view.words, bits, keys)


def _find(state: State, bucket: SourceRef, leaf: Leaf, uid: str) -> tuple[ViewRef, int] | None:
    """Where a query's bit stands in a bucket written under an older plan; None when the bucket does not know it."""
    for ref in bucket.views:
        if ref.leaf == leaf:
            for slot, holder in state.slots[ref.version].get(ref.group, {}).items():
                if holder == uid:
                    return ref, slot
    return None


def _output_rebuilds(state: State, before: Physical, after: Physical, touched: set[tuple[Leaf, int]]) -> set[Output]:
    had = set(state.executed.by_uid)
    exposed: dict[Output, set[Leaf]] = {}
    for r in state.joined.values():
        at = (r.node, r.key)
        exposed[at] = exposed.get(at, set(r.exposed)) & set(r.exposed)
    out: set[Output] = set()
    for j in after.joins:  # inputs before consumers
        below = any(_changed(side, touched, out) for side in (j.left, j.right))
        for o in j.outputs:
            at = (j.name, o.key)
            newcomers = (after.uses[at] & had) - before.uses.get(at, frozenset())
            lacks = at in exposed and not set(o.exposed) <= exposed[at]
            if below or newcomers or lacks:
                out.add(at)
    return out


def _changed(side: SideSpec, touched: set[tuple[Leaf, int]], rebuilt: set[Output]) -> bool:
    if side.child is None:
        return (side.leaves[0], side.group) in touched
    return (side.child, side.key) in rebuilt
