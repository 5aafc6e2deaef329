"""Damaged or missing bucket files: found, named, and made again from where their tuples came from.

A task that meets a file which is not what was written raises BUCKET_DAMAGED or BUCKET_MISSING; its epoch is not
committed, so no row came of it. The engine then repairs the state of the last committed epoch and runs the planned
epoch once more:

1. Every open bucket file is verified on the driver, where it is kept, so all damage is found and named at once. (A
   cache of a store that is damaged heals by itself, see runtime.store.cache.)
2. A source bucket that is damaged is read again: its `Origin` has the offsets, the number of the read, and what
   decided which tuples were too late or too far ahead, and reads are pure, so the same tuples come and the same ones
   are dropped. They are tagged for the plan that the last epoch ran with, but only for queries that were there in the
   bucket's epoch and still run; floors are today's, and what lies below them is in dead windows only. The source must
   bring exactly as many tuples with the same event times as then, else it does not have them any more. What was counted
   then (tuples, late ones, dead letters) stands in the log and is not counted again.
3. A partial bucket that was folded from a read is folded again from that read, in the same way; one that was folded
   from rows of joins, by running the joins of its epoch again (runtime.engine.refold). Source bucket and partial
   buckets of one read are lost and made again each for itself.
4. Joined buckets refer to items of source buckets by number, and those may have changed. So if one of either is lost,
   all joined buckets are made anew, as for a reordered join: from the open source buckets, delivering nothing.
5. New files have new ids; one `BucketsRepaired` in the log replaces the old ones. A crash before that leaves the old
   state and some debris; a crash after it leaves a whole state.

Before that, queries are suspended whose state cannot be had any more (`beyond_repair`): those with postponed work that
refers to a lost file, and those with entries in partial buckets that cannot be folded again. Everybody else goes on.

The result is the state that the last epoch left, under the plan it ran with: a plan change that waits for the next
epoch meets nothing unusual. If the tuples cannot be had, BUCKET_LOST says which, and the platform stops.

Cost: reading all open state once on the driver, the lost reads, and one rebuild of the joined buckets.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from optimizer.errors import InternalError, Unavailable
from optimizer.model.plan import Plan, id_of
from runtime.api import SuspendQuery
from runtime.buckets.refs import Origin
from runtime.columns.querysets import bitset
from runtime.connectors.base import Read
from runtime.connectors.position import Position
from runtime.control.events import BucketsRepaired, ReplacedBucket
from runtime.control.state import State
from runtime.engine.exchange import Exchange
from runtime.engine.open_buckets import OpenBuckets, source_id
from runtime.engine.rebuild_stage import RebuildStage
from runtime.engine.refold import cannot_be_folded_again, fold_again, lost_carried, lost_units
from runtime.engine.source_stage import run_source_tasks
from runtime.engine.stage_context import StageContext
from runtime.execution.outage import as_outage
from runtime.operators.source import GroupSlots, Reread, SourceReport, SourceShared, SourceTask, run_source

logger = logging.getLogger("ajoin.repair")

DAMAGE = ("BUCKET_DAMAGED", "BUCKET_MISSING")
ATTEMPTS = 5
"""How often one epoch is repaired before its failure counts."""


def repair(context: StageContext, epoch: int, wrong: set[str]) -> BucketsRepaired | None:
    """`context`: the state of the last epoch with the plan it ran with. `epoch`: the one that waits for the repair.
    `wrong`: names of bucket files that are lost. None: no open bucket is among them, so it is enough to try again.
    """
    state, buckets = context.state, OpenBuckets(context.state)
    sources = [ref for ref in buckets.sources.values() if ref.files & wrong]
    units = lost_units(state, wrong)
    carried = lost_carried(state, wrong)
    joins = bool(sources) or any(ref.file in wrong for ref in buckets.joined.values())
    if not joins and not units and not carried:
        return None
    lost = [_Lost(ref.stream, ref.epoch, ref.file, ref.origin) for ref in sources]
    for unit, refs in units.items():
        if unit.stream is not None and unit.origin is not None:
            lost.append(_Lost(unit.stream, unit.epoch, refs[0].file, unit.origin, unit.fold))
    reports = _read_again(context, epoch, buckets, lost)
    replacements = {ref.id: r.bucket for ref, r in zip(sources, reports, strict=False) if r and r.bucket}
    for ref in sources:
        del buckets.sources[ref.id]
    buckets.sources.update({ref.id: ref for ref in replacements.values()})
    partials = [ref for r in reports if r is not None for ref in r.partials]
    partials += fold_again(context, buckets, units)
    stale = tuple(buckets.joined) if joins else ()
    joined = RebuildStage(context, buckets, epoch).all_joined() if joins else ()
    unfolded = (*(ref.file for refs in units.values() for ref in refs), *(ref.file for ref in carried))
    logger.warning(
        "repaired: %d of %d lost source buckets read again (nobody needs the others), %d joined buckets rebuilt, "
        "%d partial buckets folded again in place of %d",
        len(replacements),
        len(sources),
        len(joined),
        len(partials),
        len(unfolded),
    )
    return BucketsRepaired(
        next_bucket=buckets.next_bucket,
        next_source=buckets.next_source,
        sources=tuple(ReplacedBucket(ref.id, replacements.get(ref.id)) for ref in sources),
        stale=stale,
        joined=joined,
        unfolded=unfolded,
        partials=tuple(partials),
    )


def beyond_repair(state: State, wrong: set[str]) -> list[SuspendQuery]:
    """Queries that need something of these lost files that cannot be made again. Places of postponed work are positions
    in exactly these files, so reading the tuples again would not help; which windows are complete is known all the
    same."""
    pins = {n for n, ref in state.pins.items() if ref.files & wrong}
    why = cannot_be_folded_again(state, wrong)
    for p in state.postponed.values():
        if pins & set(p.pins) and p.uid in state.running:
            why[p.uid] = "a bucket that its postponed rows were to be made of is damaged"
    return [SuspendQuery(id_of(uid), reason) for uid, reason in sorted(why.items())]


def damaged_files(exchange: Exchange, names: Iterable[str]) -> set[str]:
    """Those that are not as they were written."""
    wrong: set[str] = set()
    for name in sorted(names):
        exchange.forget(name)  # an open or cached copy may be the damaged one
        try:
            exchange.files.verify(name)
        except InternalError as damage:
            logger.warning("%s", damage.message)
            wrong.add(name)
    return wrong


# -- reads --------------------------------------------------------------------------------------------------------


class _Range(NamedTuple):
    stream: str
    start: Position
    end: Position


class _Lost(NamedTuple):
    """What was made of a read: a source bucket, or the partial buckets of a fold. `file`: one that is lost."""

    stream: str
    epoch: int
    file: str
    origin: Origin
    fold: str = ""


def _read_again(
    context: StageContext, epoch: int, buckets: OpenBuckets, lost: Sequence[_Lost]
) -> list[SourceReport | None]:
    """What was made anew of each; None: no query needs it."""
    tasks: dict[int, SourceTask] = {}
    reads: dict[_Range, Sequence[Read]] = {}
    for i, one in enumerate(lost):
        reread = Reread(one.epoch, one.file, _allowed(context.state, context.plan, one), one.fold)
        if reread.allowed:
            read = _read_of(context, one, reads)
            tasks[i] = SourceTask(one.stream, source_id(buckets.next_source), read, one.origin, reread=reread)
            buckets.next_source += 1
    reports = run_source_tasks(context, epoch, "lost buckets", list(tasks.values()), read_again)
    by_number = dict(zip(tasks, reports, strict=True))
    return [by_number.get(i) for i in range(len(lost))]


def _allowed(state: State, plan: Plan, lost: _Lost) -> tuple[GroupSlots, ...]:
    """Per query group the slots of queries that were there in that epoch and still need it."""
    slots: dict[int, list[int]] = {}
    for uid, placed in plan.by_uid.items():
        record = state.queries.get(uid)
        if record is None or not record.running or record.epoch > lost.epoch:
            continue
        if lost.fold and record.fold != lost.fold:
            continue
        mine = lost.origin.queries is None or uid in lost.origin.queries
        if mine and lost.stream in record.query.query.streams:
            slots.setdefault(placed.group, []).append(placed.slot)
    return tuple(GroupSlots(g, tuple(int(w) for w in bitset(s, plan.words(g)))) for g, s in sorted(slots.items()))


def _read_of(context: StageContext, lost: _Lost, reads: dict[_Range, Sequence[Read]]) -> Read:
    at = _Range(lost.stream, lost.origin.start, lost.origin.end)
    try:
        if at not in reads:
            reads[at] = context.sources[lost.stream].reads(at.start.offset, at.end.offset)
        if lost.origin.read >= len(reads[at]):
            raise InternalError("the source does not know this range any more")
        return reads[at][lost.origin.read]
    except Exception as e:
        raise _lost(lost.stream, lost.file, lost.epoch, at.start, at.end, e) from e


def read_again(shared: SourceShared, task: SourceTask) -> SourceReport:
    """A source task whose failure names what is lost with it."""
    try:
        return run_source(shared, task)
    except Exception as e:
        assert task.reread is not None
        raise _lost(task.stream, task.reread.lost, task.reread.epoch, task.origin.start, task.origin.end, e) from e


def _lost(stream: str, file: str, epoch: int, start: Position, end: Position, why: Exception) -> Exception:
    """BUCKET_LOST, unless it is an outage (a broker is away, the disk is full): then the epoch is tried again later."""
    passing = as_outage(why)
    if isinstance(passing, Unavailable):
        return passing
    said = why.message if isinstance(why, InternalError) else f"{type(why).__name__}: {why}"
    return InternalError(
        f"bucket file {file} is lost: it is damaged or missing, and its tuples (stream {stream!r}, epoch {epoch}, "
        f"offsets {start} to {end}) cannot be read again: {said}. No wrong row was delivered, and nothing goes on "
        "without this file",
        reason="BUCKET_LOST",
        hint="put the file back from a copy of the state directory, or bring the source's data of these offsets back, "
        "and start again; else only an empty state directory is left",
    )
