"""The close stage: rows of queries that fold, for windows that an epoch closes or changes; one task per partition.

It runs after everything else of the epoch, because late rows of a join and postponed work count too. What is due, and
what tasks have to open for it, is found out first (runtime.engine.due); an epoch in which nothing is due opens nothing.

Partial buckets of aligned windows stay until retention drops them. Those of other windows grow in number until
`CARRY_FROM` of a fold are open; then all of them, of all query groups, are replaced by what is still needed.

Long windows are put together from blocks (runtime.execution.blocks). If a block is damaged or missing, the stage runs
again without it, and the state forgets it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from optimizer.errors import InternalError
from optimizer.model.combining import is_long
from runtime.buckets.refs import Block, PartialRef
from runtime.control import marks
from runtime.control.events import QueryOverflows
from runtime.control.postponed import Work
from runtime.control.state import StreamState
from runtime.engine.due import is_due, narrowed
from runtime.engine.repair import DAMAGE
from runtime.engine.stage_context import StageContext
from runtime.execution.folding import FoldUsers, Slices
from runtime.operators.close import CloseReport, CloseShared, CloseTask, run_close
from runtime.operators.closing import ClosingFold, Progress, SlotsAt

logger = logging.getLogger("ajoin.close")

CARRY_FROM = 8


class CloseResult(NamedTuple):
    """`merged`: names of buckets that what was carried replaces. `lost`: names of blocks that are damaged."""

    reports: list[CloseReport]
    merged: tuple[str, ...]
    blocks: tuple[Block, ...] = ()
    lost: tuple[str, ...] = ()

    @property
    def carried(self) -> tuple[PartialRef, ...]:
        return tuple(ref for report in self.reports for ref in report.carried)

    @property
    def left_out(self) -> frozenset[str]:
        return frozenset(uid for report in self.reports for uid in report.left_out)

    @property
    def overflows(self) -> tuple[QueryOverflows, ...]:
        total: dict[str, int] = {}
        for report in self.reports:
            for uid, count in report.overflows.items():
                total[uid] = total.get(uid, 0) + count
        return tuple(QueryOverflows(uid, count) for uid, count in sorted(total.items()))


@dataclass(frozen=True)
class CloseStage:
    """`streams` and `waiting`: as the epoch leaves streams and postponed work; `new`: the partial buckets it made;
    `most`: rows that queries (uid) may make, the others any number."""

    context: StageContext
    epoch: int
    streams: Mapping[str, StreamState]
    waiting: Work
    new: tuple[PartialRef, ...]
    most: Mapping[str, int]

    def run(self) -> CloseResult:
        blocks = dict(self.context.state.blocks)
        while True:
            folds, merged = self._all_folds(list(blocks.values()))
            try:
                reports = self._run(folds) if folds else []
            except InternalError as e:
                lost = self._lost(folds) if e.reason in DAMAGE else []
                if not lost:
                    raise
                for name in lost:
                    logger.warning("block %s is damaged or missing; windows are combined without it", name)
                    del blocks[name]
                continue
            gone = tuple(name for name in self.context.state.blocks if name not in blocks)
            return CloseResult(reports, merged, tuple(self._made(folds, reports)), gone)

    def _all_folds(self, blocks: Sequence[Block]) -> tuple[list[ClosingFold], tuple[str, ...]]:
        """Those that have something to do, and the names of buckets that will be replaced."""
        refs = {**self.context.state.partials, **{ref.file: ref for ref in self.new}}
        by_fold: dict[str, list[PartialRef]] = {}
        for ref in refs.values():
            by_fold.setdefault(ref.fold, []).append(ref)
        new = frozenset(ref.file for ref in self.new)
        folds: list[ClosingFold] = []
        merged: list[str] = []
        for number, users in enumerate(self.context.physical.folds):
            mine = by_fold.get(users.spec.name, [])
            ready = [b for b in blocks if b.fold == users.spec.name]
            carry = len(mine) >= CARRY_FROM and not isinstance(users.spec.cut, Slices)
            if carry:
                merged += [ref.file for ref in mine]
            fold = self._fold(number, users, mine, ready, carry)
            due = carry or is_due(fold, users, new)
            if isinstance(users.spec.cut, Slices) and (due or any(is_long(q.query) for q in users.queries)):
                fold = narrowed(fold, users, ready, new, self.epoch)
            if due or fold.make:
                folds.append(fold)
        return folds, tuple(dict.fromkeys(merged))

    def _fold(
        self, number: int, users: FoldUsers, refs: list[PartialRef], ready: list[Block], carry: bool
    ) -> ClosingFold:
        state = self.context.state
        distinct: dict[Progress, int] = {}
        advances = marks.Advances(state, self.streams, self.waiting, self.epoch)
        come = (advances.of(q.query) for q in users.queries)
        progress = [distinct.setdefault(Progress(c.marks, c.before, c.now, c.horizon), len(distinct)) for c in come]
        written = {(ref.group, ref.version) for ref in (*refs, *(part for b in ready for part in b.parts))}
        slots: list[SlotsAt] = []
        for group, version in sorted(written):
            there = {uid: slot for slot, uid in state.slots[version].get(group, {}).items()}
            mine = tuple(there.get(q.query.uid, -1) for q in users.queries)
            if any(slot >= 0 for slot in mine):
                slots.append(SlotsAt(group, version, mine))
        known = {(at.group, at.version) for at in slots}
        held = tuple(ref for ref in refs if (ref.group, ref.version) in known)
        return ClosingFold(number, tuple(distinct), tuple(progress), tuple(slots), held, carry)

    def _run(self, folds: list[ClosingFold]) -> list[CloseReport]:
        exchange, bounds = self.context.exchange, self.context.plan.partitioning.bounds
        shared = CloseShared(
            exchange.for_tasks(),
            self.epoch,
            self.context.physical.version,
            self.context.physical.shipped_folds,
            tuple(folds),
            exchange.segments(),
            {uid: -(-rows // (len(bounds) - 1)) for uid, rows in self.most.items()},
        )
        tasks = [
            CloseTask(p, bounds[p], bounds[p + 1], f"e{self.epoch:010d}-close-{p}.segment")
            for p in range(len(bounds) - 1)
        ]
        return exchange.run(f"epoch {self.epoch}: close", run_close, shared, tasks)

    def _lost(self, folds: list[ClosingFold]) -> list[str]:
        """Blocks in use whose files are not what was written."""
        exchange = self.context.exchange
        lost: set[str] = set()
        for block in (b for fold in folds for b in fold.blocks):
            for file in block.files:
                exchange.forget(file)  # an open or cached copy may be the damaged one
                try:
                    exchange.files.verify(file)
                except InternalError:
                    lost.add(block.name)
        return sorted(lost)

    def _made(self, folds: list[ClosingFold], reports: list[CloseReport]) -> Iterator[Block]:
        parts: dict[str, list[PartialRef]] = {}
        for report in reports:
            for name, part in report.blocks:
                parts.setdefault(name, []).append(part)
        for fold in folds:
            users = self.context.physical.folds[fold.number]
            for new in fold.make:
                uids = tuple(users.queries[number].query.uid for number, _ in new.queries)
                made = tuple(parts.get(new.name, ()))
                yield Block(new.name, users.spec.name, new.lo, new.hi, self.epoch, uids, made)
