"""Lost partial buckets: which of them can be folded again, from what, and whose queries must stop.

Partial buckets are made again by *units*: all open ones of a fold and epoch that come from the same read, or all that
come from rows of joins. A unit is replaced whole, the lost files and the intact ones with them. So nobody has to know
which query was in which of its files: the unit then holds every running query of the fold that was there in its epoch,
once, wherever the plan has moved it since.

    from a read       the read is done again, under the plan that was executed last (runtime.engine.repair)
    from joins        the joins of that epoch are run again, over the source buckets of then (`fold_again`)
    carried           several epochs were put together, and most of their tuples are gone: whoever has entries in it
                      is suspended, and the bucket goes

Rows of a join belong to the epoch in which their last tuple came, and revisions are counted by epochs; so an epoch is
run again by itself, with its own source buckets new and earlier ones old. Retention keeps source buckets while a window
of a query on their streams is alive, hence everything that an alive window needs is there; what lies before a query's
floor is in dead windows and is left out.

Only rows that were postponed are of another epoch than the one they were folded in. Which ones cannot be told from the
tuples: queries that have such rows in the fold are suspended if they lose a part of it.

Cost of an epoch's joins: as that epoch's, and one rebuild of joined buckets where more than two streams are joined.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from runtime.buckets.refs import Origin, PartialRef
from runtime.control.state import State
from runtime.engine.join_stage import JoinStage
from runtime.engine.open_buckets import OpenBuckets
from runtime.engine.rebuild_stage import RebuildStage
from runtime.engine.stage_context import StageContext
from runtime.execution.physical import JoinSpec, Physical


class Unit(NamedTuple):
    """`stream` and `origin`: of the read; None: from joins."""

    fold: str
    epoch: int
    stream: str | None
    origin: Origin | None


Units = Mapping[Unit, list[PartialRef]]
"""With all of their open buckets."""


def lost_units(state: State, wrong: set[str]) -> Units:
    """Those of which a file is among the wrong ones."""
    every: dict[Unit, list[PartialRef]] = {}
    for ref in state.partials.values():
        if not ref.carried:
            every.setdefault(Unit(ref.fold, ref.epoch, ref.stream, ref.origin), []).append(ref)
    return {unit: refs for unit, refs in every.items() if any(ref.file in wrong for ref in refs)}


def lost_carried(state: State, wrong: set[str]) -> list[PartialRef]:
    return [ref for ref in state.partials.values() if ref.carried and ref.file in wrong]


def cannot_be_folded_again(state: State, wrong: set[str]) -> dict[str, str]:
    """Running queries (uid) that lose partials for ever, and why."""
    out: dict[str, str] = {}
    for ref in lost_carried(state, wrong):
        for uid in state.slots[ref.version].get(ref.group, {}).values():
            if uid in state.running and state.queries[uid].fold == ref.fold:
                out[uid] = (
                    f"partial bucket {ref.file}, which its open windows need, is damaged, and its tuples are gone"
                )
    folds = {unit.fold: unit for unit in lost_units(state, wrong) if unit.origin is None}
    resumed = {ref.resumed for ref in state.partials.values() if ref.fold in folds}
    for uid in state.running:
        fold = state.queries[uid].fold
        if fold in folds and (uid in resumed or uid in state.behind):
            out[uid] = (
                f"a partial bucket of epoch {folds[fold].epoch} is damaged, and the query's rows of that time were in "
                "part postponed, so that they cannot be folded again as they were"
            )
    return out


def fold_again(context: StageContext, buckets: OpenBuckets, units: Iterable[Unit]) -> list[PartialRef]:
    """The units that come from joins, anew. `buckets`: what is open, repaired."""
    by_epoch: dict[int, set[str]] = {}
    for unit in units:
        if unit.origin is None:
            by_epoch.setdefault(unit.epoch, set()).add(unit.fold)
    made: list[PartialRef] = []
    for epoch, folds in sorted(by_epoch.items()):
        records = context.state.queries
        uids = {uid for uid, r in records.items() if r.running and r.fold in folds and r.epoch <= epoch}
        then = replace(context, physical=_only_folds(context.physical, folds, uids))
        past = buckets.before(epoch)
        again = f"-again-{past.joined_id()}"  # unlike any name before
        RebuildStage(then, past, epoch).all_joined()
        for ref in buckets.sources.values():
            if ref.epoch == epoch:
                past.add_source(ref)
        for together in then.physical.stages:
            result = JoinStage(then, past, epoch, together, again=again).run("fold again")
            made += [ref for report in result.reports for ref in report.partials]
        for joined in past.joined.values():
            context.exchange.drop(joined.file)
        buckets.next_bucket = past.next_bucket
    return made


def _only_folds(physical: Physical, folds: set[str], uids: set[str]) -> Physical:
    """The joins that lead to these queries and folds, from the last to the first, with nothing else to do."""
    wanted: set[tuple[str, object]] = set()
    stages: list[tuple[JoinSpec, ...]] = []
    for together in reversed(physical.stages):
        kept: list[JoinSpec] = []
        for join in reversed(together):
            sinks = tuple(s for s in join.sinks if s.uid in uids)
            outputs = tuple(o for o in join.outputs if (join.name, o.key) in wanted)
            if sinks or outputs:
                mine = tuple(f for f in join.folds if f.name in folds) if sinks else ()
                kept.append(replace(join, sinks=sinks, outputs=outputs, folds=mine))
                wanted |= {(side.child, side.key) for side in (join.left, join.right) if side.child is not None}
        stages.append(tuple(reversed(kept)))
    return replace(physical, stages=tuple(together for together in reversed(stages) if together))
