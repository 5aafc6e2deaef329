"""Changes that users ask for: streams, query batches, pushed rows. Only from the owning thread, between two epochs.

Each change is decided (pure), recorded (on disk), and only then acted upon.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from optimizer.beside import Situation
from optimizer.errors import AJoinError
from optimizer.model.plan import Plan
from optimizer.model.types import StreamSchema
from optimizer.policy.moves import Moves
from runtime.api import Control, CreateQuery, Optimization, Optimize, QueryInfo, StreamInfo
from runtime.connectors.base import ConnectorSpec
from runtime.connectors.position import Position
from runtime.connectors.registry import check_sink, check_source
from runtime.control.batch import BatchDecision
from runtime.control.events import SettingChanged
from runtime.control.steering import Steering, check_name
from runtime.crashpoints import reach
from runtime.engine.loop import EpochLoop
from runtime.engine.parts import Parts
from runtime.engine.reads import EngineReads

logger = logging.getLogger("ajoin.engine")


class EngineControl:
    def __init__(self, parts: Parts, reads: EngineReads, epochs: EpochLoop) -> None:
        self._parts, self._reads, self._epochs = parts, reads, epochs

    def create_stream(self, schema: StreamSchema, source: ConnectorSpec) -> StreamInfo:
        parts = self._parts
        check_source(source, schema, allowed_roots=parts.config.allowed_roots)
        now, nowhere = parts.clock(), Position.of(None)
        parts.coordinator.decide_stream(schema, source, nowhere, now)  # refuses a taken name before anything is made
        made = parts.sources.make(schema, source)
        reach("stream.made")
        created = parts.coordinator.decide_stream(schema, source, Position.of(made.initial()), now)
        parts.journal.record(created)
        reach("stream.recorded")
        parts.sources.add(schema.name, made)
        return self._reads.stream(schema.name)

    def delete_stream(self, name: str) -> None:
        self._parts.journal.record(self._parts.coordinator.decide_stream_deletion(name))
        reach("stream.deleted")
        self._parts.sources.remove(name)

    def reset_watermark(self, name: str, to: int) -> StreamInfo:
        """Move a stream's watermark back, if no query has acted on it (runtime.control.rewind)."""
        self._parts.journal.record(self._parts.coordinator.decide_watermark_reset(name, to))
        self._epochs.forget_raised(name)
        return self._reads.stream(name)

    def restart_stream(self, name: str, at: str | None = None) -> StreamInfo:
        """Read a stream from another place on, without its watermark; None: from where it stands."""
        parts, now = self._parts, self._parts.clock()
        stands = parts.coordinator.stream(name).position
        parts.coordinator.decide_restart(name, stands, now)  # refuses a stream in use before its source is asked
        place = stands if at is None else Position.of(parts.sources.opened[name].seek(at, stands.offset, now))
        parts.journal.record(parts.coordinator.decide_restart(name, place, now))
        self._epochs.forget_raised(name)
        return self._reads.stream(name)

    def push(self, stream: str, rows: Sequence[Any]) -> None:
        """Append rows (JSON-like) to a stream whose source is 'push'; the next epoch reads them."""
        self._parts.coordinator.stream(stream)
        self._parts.sources.opened[stream].pushable(stream).append_rows(rows)

    def push_file(self, stream: str, path: Path) -> None:
        self._parts.coordinator.stream(stream)
        self._parts.sources.opened[stream].pushable(stream).append_file(path)

    def apply(self, batch: Sequence[Control | AJoinError]) -> list[QueryInfo | AJoinError | None]:
        """One query batch, at most one changelog. One outcome per item, at its place; a refused one changes nothing.

        QueryInfo for create and delete, None for other controls, or the error; what the caller has refused already
        comes back as it is. When this returns, the changelog is on disk and the next epoch runs with it.
        """
        outcomes = self._decide_and_record(batch).outcomes
        state = self._parts.coordinator.state
        return [self._reads.query_info(state, state.queries[o]) if isinstance(o, str) else o for o in outcomes]

    def _decide_and_record(self, batch: Sequence[Control | AJoinError]) -> BatchDecision:
        """Nothing that a decision says is true before its record is in the log, what the planner remembers included."""
        coordinator = self._parts.coordinator
        coordinator.machines = self._parts.fleet.machines()
        decision = coordinator.decide_batch([self._checked(item) for item in batch], self._parts.clock())
        if decision.event is not None:
            self._parts.journal.record(decision.event)
            reach("apply.recorded")
        self._parts.planner.memory = decision.memory
        if decision.moves is not None:
            self._epochs.preparing.begin(decision.moves)
        rescaling = decision.rescaling
        if rescaling is not None:
            if rescaling.action or rescaling.cores:
                logger.info("scaling %s: %s", rescaling.action or "machines", rescaling.reason)
            if rescaling.cores:
                self._parts.fleet.want(rescaling.cores)
        return decision

    def _checked(self, item: Control | AJoinError) -> Control | AJoinError:
        """The item, or the error if one of its sinks is refused."""
        if isinstance(item, CreateQuery):
            try:
                for sink in item.sinks:
                    check_sink(sink, allowed_roots=self._parts.config.allowed_roots)
            except AJoinError as refused:
                return refused
        return item

    def change_setting(self, name: str, value: float | None) -> Steering:
        """Of the optimizer, from now on and after restarts; None: as the engine's configuration has it again."""
        check_name(name)
        parts = self._parts
        parts.journal.record(SettingChanged(name=name, value=value))
        steering = self._reads.steering()
        parts.planner.configure(steering.optimizer(parts.config.weights))
        return steering

    def situation(self) -> Situation | None:
        """Everything that an optimization beside the epochs needs; its result comes back as an `Adopt`. None: there is
        nothing to optimize now, because plans never are, or a change is being prepared."""
        state = self._parts.coordinator.state
        if self._epochs.preparing.current is not None:
            return None
        return self._parts.planner.situation(state.plan, state.running, state.epochs_behind, state.plan_pins)

    def change_to(self, plan: Plan) -> None:
        """Move the queries to where this plan has them, when what they need there is made, portion by portion."""
        self._epochs.preparing.begin(Moves.between(self._parts.coordinator.state.plan, plan))

    def optimize(self, mode: str, *, dry_run: bool = False) -> Optimization:
        """Optimize on request: whatever is better is applied.

        A dry run shows the same plan and changes nothing, not even what hysteresis remembers.
        """
        if dry_run:
            proposal, changes = self._reads.propose(mode)
        else:
            before = self._reads.plan.version
            decision = self._decide_and_record([Optimize(mode)])
            (outcome,) = decision.outcomes
            if isinstance(outcome, AJoinError):
                raise outcome
            assert decision.proposal is not None, "an accepted Optimize has a proposal"
            proposal, changes = decision.proposal, tuple(c for e in self._reads.plan_events(before) for c in e.changes)
        return Optimization(
            self._reads.plan.version,
            changes,
            proposal.cost_before,
            proposal.cost_after,
            proposal.gain,
            proposal.reasons,
            proposal.mode,
            applied=proposal.applied and not dry_run,
            would_apply=proposal.applied and dry_run,
        )
