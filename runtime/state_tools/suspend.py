"""Suspend queries of a state directory whose platform does not run: `ajoin state suspend`.

The last resort of an operator when a start does not even get as far as `ajoin serve --suspend` would take it, or must
not be tried. It does what that does, and nothing else: the lock keeps platforms out, the log is read as on opening (an
unfinished last line is cut off), the coordinator decides, and its one event is appended and forced to disk. No epoch
runs, no file but the log is touched. If the process dies in between, the event is in the log or it is not.

A directory that is the fast tier of a durable one is refused with STATE_TIERED: the log that counts lies in the tier,
and claiming that could take it away from a platform that runs on another machine. There `ajoin serve --suspend` does
it, as the owner of the tier.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from optimizer.errors import AJoinError, FailedPrecondition
from runtime.api import SuspendQuery
from runtime.control.coordinator import Coordinator
from runtime.control.state import State
from runtime.durable.interface import LocalState
from runtime.durable.mark import tier_of
from runtime.durable.shown import shown
from runtime.engine.journal import Journal
from runtime.log.codec import decode
from runtime.log.lock import StateLock
from runtime.log.log import Log
from runtime.state_tools.files import format_of

ALL = "all"
REASON = "it was suspended while the platform did not run"


@dataclass(frozen=True, slots=True)
class Suspended:
    """`plan_version`: from now on. `planned`: the epoch that the next start runs without these queries, if any."""

    queries: tuple[str, ...]
    plan_version: int
    planned: int | None


def suspend(directory: Path, ids: Sequence[str], now_ms: int) -> Suspended:
    """These queries, or all that run. Nothing changes if one of them does not exist or does not run."""
    format_of(directory)  # first: the lock would make a directory where none is
    if tier := tier_of(directory):
        raise FailedPrecondition(
            f"{directory} is the fast tier of {tier}, where the log lies that counts",
            reason="STATE_TIERED",
            hint=f"start the platform with --durable {shown(tier)} and --suspend",
        )
    with ExitStack() as closing:
        lock = StateLock(directory)
        closing.callback(lock.release)
        log = Log(directory / "log")
        closing.callback(log.close)
        coordinator = _replayed(log)
        wanted = sorted(rq.id for rq in coordinator.state.running.values()) if ALL in ids else list(dict.fromkeys(ids))
        decision = coordinator.decide_batch([SuspendQuery(id, REASON) for id in wanted], now_ms)
        for outcome in decision.outcomes:
            if isinstance(outcome, AJoinError):
                raise outcome
        if decision.event is not None:
            Journal(log, LocalState(directory), coordinator, snapshot_every=1 << 62).record(decision.event)
        s = coordinator.state
        return Suspended(tuple(wanted), s.plan.version, None if s.planned is None else s.planned.epoch)


def _replayed(log: Log) -> Coordinator:
    contents = log.read()
    coordinator = Coordinator(State() if contents.snapshot is None else State.from_json(contents.snapshot))
    for record in contents.records:
        coordinator.handle(decode(record))
    return coordinator
