"""Drives the engine through a scenario, one step at a time, in one thread.

The engine is the real one (an `opener` opens it on a state directory; replay and its tests only differ in the
executor they pass). What a step means:

- A control line is applied as a batch of its own, so that a refused statement can be named by its line.
- Event and watermark lines are *collected* and handed to the engine when their epoch ends. A control line
  between two events of one epoch therefore takes effect before that epoch starts, and a restart between them
  loses nothing: what had not been ingested yet is still here, as it would still be in a real source.
- After every epoch (and after every recovery, which may finish one) the rows delivered since the last look
  are written out. The engine names them by epoch, so each is written exactly once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ajoin.platform import catalog
from ajoin.platform.catalog import Limits
from ajoin.replay.output import RESULTS, Rejection, Report, ResultWriter, write_queries, write_report
from ajoin.replay.scenario import Scenario, ScenarioError
from ajoin.replay.steps import (
    CreateSql,
    Declare,
    EndEpoch,
    Feed,
    FeedFile,
    Punctuate,
    Restart,
    Step,
)
from ajoin.sql import admit, at_window
from optimizer.errors import AJoinError, InternalError, NotFound
from optimizer.model.types import Column, StreamSchema
from runtime.api import Control, CreateQuery, QueryInfo
from runtime.connectors.base import ConnectorSpec
from runtime.engine.engine import Engine
from runtime.plugins import vocabulary

PUSH = ConnectorSpec("push")
DEFAULT_LIMITS = Limits()
Opener = Callable[[], Engine]
Progress = Callable[[Report, int], None]
"""Called after every epoch with the report so far and the number of rows delivered."""


def run(
    scenario: Scenario,
    out_dir: Path,
    engine_opener: Opener,
    flush: bool = True,
    limits: Limits = DEFAULT_LIMITS,
    progress: Progress = lambda report, rows: None,
) -> Report:
    """Run the scenario and write the three output files.

    ScenarioError: a step was rejected that was not marked with expect_error; what was delivered until then is
    in results.jsonl. With `flush`, all watermarks go to infinity at the end, so every open window closes.
    """
    out_dir.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    with (out_dir / RESULTS).open("w", encoding="utf-8") as file:
        replay = _Replay(engine_opener, limits, ResultWriter(file), progress)
        try:
            for step in scenario.steps:
                replay.take(step)
            replay.finish(flush)
        finally:
            replay.engine.close()
    report = replay.report
    report.seconds["total"] = round(time.perf_counter() - started, 6)
    write_queries(out_dir, list(replay.queries.values()))
    write_report(out_dir, report)
    return report


class _Replay:
    """The engine, and what has been collected for the epoch that has not ended yet."""

    def __init__(self, opener: Opener, limits: Limits, results: ResultWriter, progress: Progress) -> None:
        self._opener = opener
        self._limits = limits
        self._results = results
        self._progress = progress
        self._pending: list[Step] = []
        self._written_epoch = 0
        self.report = Report()
        self.queries: dict[str, QueryInfo] = {}
        self.engine = opener()

    def take(self, step: Step) -> None:
        match step.action:
            case EndEpoch():
                self._end_epoch()
            case Restart(graceful):
                self._restart(graceful)
            case Feed(stream=stream) | FeedFile(stream=stream) | Punctuate(stream=stream):
                if self._accepted(step, lambda: self._known(stream)):
                    self._pending.append(step)
            case Declare() as declare:
                self._accepted(step, lambda: self._declare(declare))
            case CreateSql() as create:
                self._accepted(step, lambda: self._create(create))
            case control:
                self._accepted(step, lambda: self._apply(control))

    def finish(self, flush: bool) -> None:
        if self._pending:
            self._end_epoch()
        if flush:
            for stream in self.engine.streams():
                self.engine.raise_watermark(stream.schema.name, None)
            self._run_epoch()
        while self.engine.state.behind:
            self._run_epoch()
        self._catch_up()
        self._look_back()

    # -- steps --------------------------------------------------------------------------------------

    def _accepted(self, step: Step, action: Callable[[], Any]) -> bool:
        """Do it. A rejection is recorded when the step expects one, and ends the run otherwise."""
        try:
            action()
        except InternalError:
            raise
        except AJoinError as error:
            if not step.expect_error:
                raise ScenarioError(str(error), line=step.line, reason=error.reason) from error
            self.report.errors.append(Rejection(step.line, error.reason, str(error)))
            return False
        return True

    def _known(self, stream: str) -> None:
        if stream not in self.engine.schemas():
            raise NotFound(f"there is no stream {stream!r}", reason="STREAM_NOT_FOUND")

    def _declare(self, declare: Declare) -> None:
        schema = stream_schema(declare)
        catalog.check_stream(schema, self._limits)
        self.engine.create_stream(schema, PUSH)

    def _create(self, create: CreateSql) -> None:
        catalog.check_name("query id", create.id)
        query = admit(create.sql, self.engine.schemas(), self._limits.query, vocabulary())
        self._apply(CreateQuery(create.id, query))

    def _apply(self, control: Control) -> None:
        (outcome,) = self.engine.apply([control])
        if isinstance(outcome, AJoinError):
            raise at_window(outcome, control.query.sql) if isinstance(control, CreateQuery) else outcome
        if isinstance(outcome, QueryInfo):
            self.queries[outcome.id] = outcome

    def _end_epoch(self) -> None:
        rows: dict[str, list[Mapping[str, Any]]] = {}
        for step in self._pending:
            match step.action:
                case Feed(stream, row):
                    rows.setdefault(stream, []).append(row)
                case FeedFile(stream, path):
                    # The file's tuples come after the rows before it: hand those over first.
                    self.engine.push(stream, rows.pop(stream, []))
                    self._accepted(step, partial(self.engine.push_file, stream, path))
                case Punctuate(stream, ts):
                    self.engine.raise_watermark(stream, ts)
        for stream, batch in rows.items():
            self.engine.push(stream, batch)
        self._pending.clear()
        self.report.epochs += 1
        self._run_epoch()

    def _run_epoch(self) -> None:
        done = self.engine.run_epoch()
        for stage, seconds in done.seconds.items():
            self.report.seconds[stage] = round(self.report.seconds.get(stage, 0.0) + seconds, 6)
        self._catch_up()
        self._progress(self.report, self._results.rows)

    def _restart(self, graceful: bool) -> None:
        self._catch_up()
        if graceful:
            self.engine.close()
        else:
            self.engine.abandon()
        self.engine = self._opener()
        self._catch_up()

    # -- what came out ------------------------------------------------------------------------------

    def _catch_up(self) -> None:
        """Take over the rows and plans that came since the last look."""
        for epoch in range(self._written_epoch + 1, self.engine.epoch + 1):
            for batch in self.engine.delivered(epoch):
                self._results.write(batch, self.queries[batch.query_id].outputs)
        self._written_epoch = self.engine.epoch
        # Every time, because the engine remembers only the latest plans.
        seen = self.report.plans[-1].version if self.report.plans else 0
        self.report.plans += self.engine.plan_events(seen)

    def _look_back(self) -> None:
        """The counts and plans as the engine sees them at the end."""
        for stream in self.engine.streams():
            name = stream.schema.name
            self.report.tuples[name] = stream.tuples
            self.report.late_dropped[name] = stream.late_dropped
            self.report.dead_letter[name] = stream.dead_letter
        self.queries |= {q.id: self.engine.query(q.id) for q in self.queries.values()}


def stream_schema(declare: Declare) -> StreamSchema:
    return StreamSchema(
        declare.name,
        tuple(Column(name, catalog.column_type(kind)) for name, kind in declare.columns),
        declare.time,
        declare.watermark_delay_ms,
        declare.allowed_lateness_ms,
        max_ahead_ms=declare.max_ahead_ms,
        max_jump_ms=declare.max_jump_ms,
    )
