"""Damaged or missing bucket files: found, named, and made again from where their tuples came from.

A task that meets a file which is not what was written raises BUCKET_DAMAGED or BUCKET_MISSING; its epoch is not
committed, so no row came of it. The engine then repairs the state of the last committed epoch and runs the planned
epoch once more:

1. Every open bucket file is verified on the driver, so all damage is found and named at once. The store is asked to
   fetch a damaged file again (from the durable tier, if there is one).
2. A source bucket that is still damaged is read again: its `Origin` has the offsets, the number of the read and the
   time from which tuples were accepted, and reads are pure, so the same tuples come and the same ones are late. They
   are tagged for the plan that the last epoch ran with, but only for queries that were there in the bucket's epoch and
   still run; floors are today's, and what lies below them is in dead windows only. The source must bring exactly
   as many tuples with exactly the event times of then, else it does not have them any more. What was counted then
   (tuples, late ones, dead letters, COUNT(*)) stands in the log and is not counted again.
3. Joined buckets refer to items of source buckets by number, and those may have changed. So all joined buckets are
   made anew, as for a reordered join: from the open source buckets, delivering nothing.
4. New files have new ids; one `BucketsRepaired` in the log replaces the old ones. A crash before that leaves the old
   state and some debris; a crash after it leaves a whole state.

The result is the state that the last epoch left, under the plan it ran with: a plan change that waits for the next
epoch meets nothing unusual. If the tuples cannot be had, BUCKET_LOST says which, and the platform stops.

Cost: reading all open state once on the driver, the lost reads, and one rebuild of the joined buckets.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence

from optimizer.errors import InternalError, Unavailable
from runtime.buckets.refs import SourceRef
from runtime.columns.querysets import bitset
from runtime.connectors.base import Read, carried
from runtime.control.events import BucketsRepaired
from runtime.control.state import State
from runtime.engine.epoch_run import EpochRun
from runtime.execution.outage import as_outage
from runtime.operators.source import GroupSlots, Reread, SourceReport, SourceShared, SourceTask, run_source

logger = logging.getLogger("ajoin.repair")

DAMAGE = ("BUCKET_DAMAGED", "BUCKET_MISSING")
ATTEMPTS = 5
"""How often one epoch is repaired before its failure counts."""


def repair(run: EpochRun) -> BucketsRepaired | None:
    """`run`: over the state of the last epoch, with the plan it ran with. None: the files are as they should be (now),
    so it is enough to try again.
    """
    wrong = _damaged_files(run)
    if not wrong:
        return None
    lost = [ref for ref in run.open.values() if ref.files & wrong]
    found = _read_again(run, lost)
    for ref in lost:
        del run.open[ref.id]
    run.open.update({ref.id: ref for ref in found.values()})
    stale = tuple(run.joined)
    joined = run.rebuild_joined()
    logger.warning(
        "repaired: %d of %d lost source buckets read again (nobody needs the others), %d joined buckets rebuilt",
        len(found),
        len(lost),
        len(joined),
    )
    return BucketsRepaired(
        run.next_bucket, run.next_source, tuple((ref.id, found.get(ref.id)) for ref in lost), stale, joined
    )


def _damaged_files(run: EpochRun) -> set[str]:
    names = {file for ref in run.open.values() for file in ref.files} | {ref.file for ref in run.joined.values()}
    wrong: set[str] = set()
    for name in sorted(names):
        run.store.forget(name)  # a copy that was sent somewhere may be the damaged one
        try:
            run.store.verify(name)
        except InternalError as damage:
            logger.warning("%s", damage.message)
            if not _fetched(run, name):
                wrong.add(name)
    return wrong


def _fetched(run: EpochRun, name: str) -> bool:
    """Did the store bring the file back whole?"""
    if not run.store.refetch(name):
        return False
    run.store.forget(name)
    try:
        run.store.verify(name)
    except InternalError as damage:
        logger.warning("%s, also the copy that was fetched", damage.message)
        return False
    logger.warning("bucket file %s was fetched again", name)
    return True


# -- source buckets -----------------------------------------------------------------------------------------------


def _read_again(run: EpochRun, lost: Sequence[SourceRef]) -> dict[int, SourceRef]:
    """What replaces each lost bucket; nothing for one that no query needs."""
    tasks: list[SourceTask] = []
    owners: list[SourceRef] = []
    ranges: dict[tuple[str, str, str], Sequence[Read]] = {}
    for ref in lost:
        reread = Reread(ref.epoch, ref.file, allowed(run.state, ref))
        if reread.allowed:
            read = _read_of(run, ref, ranges)
            tasks.append(SourceTask(ref.stream, 2 * (run.next_source + len(tasks)), read, ref.origin, reread=reread))
            owners.append(ref)
    if not tasks:
        return {}
    run.next_source += len(tasks)
    stage = run.source_stage()
    shared = SourceShared(
        run.store.for_tasks(()),
        run.physical.version,
        run.planned.epoch,
        run.physical.shipped_sources,
        {t.stream: run.state.streams[t.stream].schema for t in tasks},
        stage.key,
        stage.floors,
    )
    reports = run.executor.run(f"epoch {run.planned.epoch}: lost buckets", read_again, shared, tasks)
    return {ref.id: r.bucket for ref, r in zip(owners, reports, strict=True) if r.bucket is not None}


def allowed(state: State, ref: SourceRef) -> tuple[GroupSlots, ...]:
    """Per query group the slots of queries that were there in the bucket's epoch and still need it."""
    slots: dict[int, list[int]] = {}
    for uid, placed in state.plan.by_uid.items():
        record = state.queries.get(uid)
        if record is None or not record.running or record.epoch > ref.epoch:
            continue
        mine = ref.origin.queries is None or uid in ref.origin.queries
        if mine and ref.stream in record.query.query.streams:
            slots.setdefault(placed.group, []).append(placed.slot)
    return tuple(GroupSlots(g, tuple(int(w) for w in bitset(s, state.plan.words(g)))) for g, s in sorted(slots.items()))


def _read_of(run: EpochRun, ref: SourceRef, ranges: dict[tuple[str, str, str], Sequence[Read]]) -> Read:
    at = (ref.stream, ref.origin.start, ref.origin.end)
    try:
        if at not in ranges:
            ranges[at] = run.sources[ref.stream].reads(json.loads(at[1]), json.loads(at[2]))
        reads = ranges[at]
        if ref.origin.read >= len(reads):
            raise InternalError("the source does not know this range any more")
        read = reads[ref.origin.read]
        return carried(read) if run.store.by_value else read
    except Exception as e:
        raise _lost(ref.stream, ref.file, ref.epoch, at[1], at[2], e) from e


def read_again(shared: SourceShared, task: SourceTask) -> SourceReport:
    """A source task whose failure names what is lost with it."""
    try:
        return run_source(shared, task)
    except Exception as e:
        assert task.reread is not None
        raise _lost(task.stream, task.reread.lost, task.reread.epoch, task.origin.start, task.origin.end, e) from e


def _lost(stream: str, file: str, epoch: int, start: str, end: str, why: Exception) -> Exception:
    """What passes (a broker that is away, a full disk) stays what it is: the epoch is tried again later."""
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
