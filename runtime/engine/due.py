"""Which windows of a fold are due, and which buckets and blocks have something for them: decided from references alone.

Tasks open only what may hold an entry of a due window: of a long window that are its blocks and the slices at its ends
(runtime.execution.blocks). Queries of a fold with equal windows that come equally far need the same, so the work grows
with the number of different windows, not with the number of queries.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np

from optimizer.model import combining
from optimizer.model.plan import RunningQuery
from optimizer.model.windows import PeriodicWindow
from optimizer.model.windows.base import NEVER
from runtime.buckets.refs import Block
from runtime.execution import blocks as ahead
from runtime.execution.blocks import Need, Refs
from runtime.execution.folding import FoldUsers
from runtime.operators.closing import ClosingFold, NewBlock, Progress
from runtime.windows.base import WindowLogic
from runtime.windows.registry import aligned, logic_of


def is_due(fold: ClosingFold, users: FoldUsers, new: Collection[str]) -> bool:
    """Can any window of the fold be due? `new`: buckets of this epoch."""
    first = min((ref.min_lo for ref in fold.refs if ref.file in new), default=None)
    for window, at in {(q.query.query.window, at) for q, at in zip(users.queries, fold.which, strict=True)}:
        progress = fold.progress[at]
        if progress.now is None:
            continue
        if progress.before is None or (first is not None and first <= progress.before):
            return True
        if not aligned(window):
            if progress.now > progress.before:
                return True
        elif logic_of(window).last_closed(progress.now) > logic_of(window).last_closed(progress.before):
            return True
    return False


def narrowed(
    fold: ClosingFold, users: FoldUsers, ready: Sequence[Block], new: Collection[str], epoch: int
) -> ClosingFold:
    """With the buckets and blocks that due windows need, and the blocks to be made. `ready`: blocks
    of the fold that are there."""
    needed: set[str] = set()
    times: dict[Need, None] = {}
    used: dict[str, Block] = {}
    covers: list[tuple[int, tuple[Block, ...]]] = []
    make: dict[tuple[int, int], list[tuple[int, tuple[Block, ...]]]] = {}
    unit = _unit([q.query for q in users.queries])
    alike: dict[object, tuple[Refs, list[Need]]] = {}
    for number, q in enumerate(users.queries):
        window, which = q.query.query.window, fold.which[number]
        present = tuple((at.group, at.version) for at in fold.slots if at.slots[number] >= 0)
        mine = [b for b in ready if q.query.uid in b.uids] if combining.is_long(q.query) else []
        key = (window, which, present, tuple(b.name for b in mine))
        if key not in alike:
            here = Refs([ref for ref in fold.refs if (ref.group, ref.version) in present])
            fresh = min((r.min_lo for r in here.refs if r.file in new), default=NEVER)
            alike[key] = here, list(_needs(q.query, fold.progress[which], mine, fresh))
            _note(here, alike[key][1], needed, used)
            times.update(dict.fromkeys(alike[key][1]))
        refs, needs = alike[key]
        if needs and needs[0].cover:
            covers.append((number, needs[0].cover))
        now = fold.progress[which].now
        if now is not None and combining.is_long(q.query):
            more = []
            for need in ahead.missing(q.query, now, mine, refs, unit):
                at = need.since, need.until
                if at in make or len(make) < ahead.MOST:
                    make.setdefault(at, []).append((number, need.cover))
                    more.append(need)
            _note(refs, more, needed, used)
            times.update(dict.fromkeys(more))
    prefix = f"e{epoch:010d}-{users.spec.name}-g{users.spec.group}"
    return replace(
        fold,
        refs=tuple(ref for ref in fold.refs if ref.file in needed),
        blocks=tuple(used.values()),
        covers=tuple(covers),
        make=tuple(NewBlock(f"{prefix}-{lo}-{hi}", lo, hi, tuple(who)) for (lo, hi), who in make.items()),
        times=ahead.together(times),
    )


def _note(refs: Refs, needs: Sequence[Need], needed: set[str], used: dict[str, Block]) -> None:
    for need in needs:
        needed.update(refs.refs[i].file for i in np.flatnonzero(refs.needed(need)).tolist())
        used.update({b.name: b for b in need.cover})


def _unit(queries: Sequence[RunningQuery]) -> int:
    """The step that blocks are multiples of."""
    windows = [q.query.window for q in queries if combining.is_long(q)]
    return min((w.advance_ms for w in windows if isinstance(w, PeriodicWindow)), default=1)


def _needs(query: RunningQuery, progress: Progress, blocks: Sequence[Block], new: int) -> Iterator[Need]:
    """What the windows that close now need, then what those need that are closed and change. `new`: no new entry begins
    before."""
    if progress.now is None:
        return
    window = query.query.window
    logic = logic_of(window)
    now = logic.last_closed(progress.now)
    last = _end(logic, now)
    if progress.before is None:
        yield Need(-NEVER, last)
        return
    done = logic.last_closed(progress.before)
    if now > done:
        starts = logic.starts_of(np.array([done + 1, now]))
        first_end = _end(logic, done + 1)
        yield Need(int(starts[0]), last, ahead.cover(blocks, int(starts[1]), first_end))
    else:
        yield Need(0, 0)
    if new < _end(logic, done):
        yield Need(window.first_alive(new), _end(logic, done))


def _end(logic: WindowLogic, number: int) -> int:
    return int(logic.ends(logic.starts_of(np.array([number])))[0])
