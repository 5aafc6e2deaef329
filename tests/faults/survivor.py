"""A client that lives through crashes: it plays a scenario to an engine that may die at any of its crash points.

A step that was cut off is taken again after the restart only if it left no trace: that is what a client does that
asks the platform before it repeats itself. One subscriber per query reads on from its last cursor whenever an engine
is there, so what it has in the end is what a real one would have: a row that is lost or repeated across a restart is
lost or repeated here. After every restart it checks that what the platform had said before still holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from ajoin.replay.output import json_rows
from ajoin.replay.runner import PUSH, stream_schema
from ajoin.replay.scenario import Scenario
from ajoin.replay.steps import CreateSql, Declare, EndEpoch, Feed, Planned, Punctuate, Restart, Step
from ajoin.sql import parse_query
from optimizer.errors import AJoinError
from optimizer.search.forced import force_order
from runtime import crashpoints
from runtime.api import Control, CreateQuery, Cursor, DeleteQuery, ForceOrder, QueryState
from runtime.connectors.base import ConnectorSpec
from runtime.crashpoints import Crashed
from runtime.engine.engine import Engine
from runtime.files import safe_name
from runtime.results.factorized import expand
from tests.oracle import Expected, check, freeze
from tests.oracle.compare import check_report

Death = tuple[str, int]
"""(crash point, which of its hits since the last restart)"""

BATCHES = 3
"""Batches a subscriber takes at a time, so that cursors stand inside of epochs too."""


class Survivor:
    """`deaths`: one per process, in turn; then it lives on. `between`: what happens to the machine while nothing runs
    there, after each death."""

    def __init__(
        self,
        opener: Callable[[], Engine],
        deaths: Iterable[Death] = (),
        sink: Path | None = None,
        between: Callable[[], None] = lambda: None,
    ) -> None:
        self._opener, self._deaths, self._sink, self._between = opener, iter(deaths), sink, between
        self._engine: Engine | None = None
        self._armed = ExitStack()
        self._pending: list[Feed | Punctuate] = []
        self._pushed: Counter[str] = Counter()
        self._epochs = 0
        self._said: dict[str, Any] = {"epoch": 0, "version": 0, "states": {}}
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.cursors: dict[str, Cursor] = {}
        self.died: list[str] = []
        self.refused: set[int] = set()
        self.hits: Counter[str] = Counter()

    # -- the story ------------------------------------------------------------------------------------------------

    def play(self, scenario: Scenario) -> None:
        for step in scenario.steps:
            self.take(step)
        self.finish()

    def take(self, step: Step) -> None:
        match step.action:
            case EndEpoch():
                self._end_epoch()
            case Restart(graceful):
                self._restart(graceful)
            case Feed() | Punctuate() as one:
                self._pending.append(one)
            case Declare() as declare:
                self._refusable(step, lambda e: declare.name in e.schemas(), lambda e: self._declare(e, declare))
            case CreateSql() as create:
                self._refusable(step, lambda e: create.id in _states(e), lambda e: self._create(e, create))
            case DeleteQuery(id) as delete:
                gone = QueryState.DELETED
                self._refusable(step, lambda e: _states(e).get(id) == gone, lambda e: self._apply(e, delete))
            case control:
                assert isinstance(control, Planned), control
                self._refusable(step, lambda e: False, lambda e: self._apply(e, control))  # may simply be repeated

    def delete_stream(self, name: str) -> None:
        self._survive(lambda e: name not in e.schemas(), lambda e: e.delete_stream(name))
        del self._pushed[name]

    def finish(self) -> None:
        """All windows close, and the last process ends in peace."""
        if self._pending:
            self._end_epoch()
        self._epochs += 1
        self._survive(self._epoch_done(), self._flush)
        self._survive(lambda e: False, self._read)
        self._catch_up()
        self._restart(graceful=True)

    def stop(self) -> None:
        if self._engine is not None:
            self._engine.abandon()
            self._engine = None
        self._armed.close()

    @property
    def engine(self) -> Engine:
        assert self._engine is not None
        return self._engine

    # -- what differs -----------------------------------------------------------------------------------------------

    def differences(self, expected: Expected) -> list[str]:
        engine = self.engine
        told = {
            q.id: {"state": q.state, "active_from": q.active_from, "active_until": q.active_until, "rows": q.rows}
            for q in engine.queries()
        }
        counters = {
            counter: {s.schema.name: getattr(s, counter) for s in engine.streams()}
            for counter in ("tuples", "late_dropped", "dead_letter")
        }
        found = check(expected, self.rows, told) + check_report(expected, counters)
        errors = {line for line, _ in expected.errors}
        if errors != self.refused:
            found.append(f"lines refused: expected {sorted(errors)}, got {sorted(self.refused)}")
        if self._sink is not None:
            found += [text for q in engine.queries() if q.sinks for text in self._sink_differences(q.id, q.outputs)]
        return found

    def _sink_differences(self, id: str, outputs: tuple[str, ...]) -> Iterator[str]:
        """A sink is a copy of the result log."""
        assert self._sink is not None
        files = sorted((self._sink / safe_name(id)).glob("*.parquet"))
        has = _bag(row for file in files for row in json_rows(pq.read_table(file), outputs))
        wants = _bag(self.rows.get(id, ()))
        if has != wants:
            yield f"{id}: its sink lacks {(wants - has).total()} rows and has {(has - wants).total()} too many"

    # -- steps ------------------------------------------------------------------------------------------------------

    def _declare(self, engine: Engine, declare: Declare) -> None:
        engine.create_stream(stream_schema(declare), PUSH)

    def _create(self, engine: Engine, create: CreateSql) -> None:
        query = parse_query(create.sql, engine.schemas())
        wanted = self._sink is not None and "FACTORIZED" not in create.sql
        sinks = (ConnectorSpec("parquet", (("path", str(self._sink)),)),) if wanted else ()
        self._apply(engine, CreateQuery(create.id, query, sinks))

    def _apply(self, engine: Engine, control: Control) -> None:
        """Orders are changed as the optimizer does it: prepared first, while epochs go on."""
        state = engine.state
        if isinstance(control, ForceOrder) and (uid := state.names.get(control.id)) in state.running:
            engine.change_to(force_order(state.plan, state.running[uid], control.order))
            return
        (outcome,) = engine.apply([control])
        if isinstance(outcome, AJoinError):
            raise outcome

    def _end_epoch(self) -> None:
        rows: dict[str, list[Mapping[str, Any]]] = {}
        marks = [p for p in self._pending if isinstance(p, Punctuate)]
        for feed in self._pending:
            if isinstance(feed, Feed):
                rows.setdefault(feed.stream, []).append(feed.row)
        self._pending = []
        for stream, batch in rows.items():
            self._pushed[stream] += 1
            at = self._pushed[stream]
            self._survive(
                lambda e, s=stream, n=at: int(e.parts.sources.opened[s].latest(0, 0)) >= n,  # type: ignore[misc]
                lambda e, s=stream, b=batch: e.push(s, b),  # type: ignore[misc]
            )
        self._epochs += 1

        def run(engine: Engine) -> None:
            for mark in marks:
                engine.raise_watermark(mark.stream, mark.ts)
            engine.run_epoch()

        self._survive(self._epoch_done(), run)
        self._survive(lambda e: False, self._read)
        self._catch_up()

    def _catch_up(self) -> None:
        """What the epoch has postponed is done before anything else, so that every delivery is the oracle's."""
        while self.engine.state.behind:
            self._epochs += 1
            self._survive(self._epoch_done(), lambda e: e.run_epoch())
            self._survive(lambda e: False, self._read)

    def _flush(self, engine: Engine) -> None:
        for stream in engine.schemas():
            engine.raise_watermark(stream, None)
        engine.run_epoch()

    def _epoch_done(self) -> Callable[[Engine], bool]:
        number = self._epochs
        return lambda engine: engine.epoch >= number

    def _restart(self, graceful: bool) -> None:
        def end(engine: Engine) -> None:
            if graceful:
                engine.close()
            else:
                engine.abandon()
            self._engine = None

        self._survive(lambda e: False, end)
        self._survive(lambda e: True, lambda e: None)

    def _read(self, engine: Engine) -> None:
        """Every subscriber reads what is new, a few batches at a time."""
        for query in engine.queries():
            while batches := engine.read_results(query.id, self.cursors.get(query.id), BATCHES):
                for batch in batches:
                    self.rows.setdefault(query.id, []).extend(json_rows(expand(batch.rows), query.outputs))
                self.cursors[query.id] = batches[-1].cursor

    # -- life and death -----------------------------------------------------------------------------------------------

    def _refusable(self, step: Step, done: Callable[[Engine], bool], act: Callable[[Engine], Any]) -> None:
        try:
            self._survive((lambda e: False) if step.expect_error else done, act)
        except AJoinError:
            if not step.expect_error:
                raise
            self.refused.add(step.line)

    def _survive(self, done: Callable[[Engine], bool], act: Callable[[Engine], Any]) -> None:
        while True:
            try:
                if self._engine is None:
                    self._open()
                if not done(self.engine):
                    act(self.engine)
                self._note()
                return
            except Crashed as crash:
                self.died.append(str(crash))
                if self._engine is not None:
                    self._engine.abandon()
                self._engine = None
                self._disarm()
                self._between()

    def _open(self) -> None:
        self._disarm()
        self._trap = self._armed.enter_context(crashpoints.arm(*next(self._deaths, (None, 1))))
        self._engine = self._opener()
        self._check()

    def _disarm(self) -> None:
        self._armed.close()
        if hasattr(self, "_trap"):
            self.hits += self._trap.hits
            del self._trap

    def _note(self) -> None:
        """What the platform has told so far: a promise."""
        if self._engine is not None:
            e = self._engine
            self._said = {"epoch": e.epoch, "version": e.plan.version, "states": _states(e)}

    def _check(self) -> None:
        """One step at most was cut off, so one epoch, changelog or query at most can be new."""
        e, said = self.engine, self._said
        assert said["epoch"] <= e.epoch <= said["epoch"] + 1, f"epoch {e.epoch} after {said['epoch']}"
        assert said["version"] <= e.plan.version <= said["version"] + 1, f"plan {e.plan.version} of {said['version']}"
        now = _states(e)
        changed = [id for id in now.keys() | said["states"].keys() if now.get(id) != said["states"].get(id)]
        assert len(changed) <= 1, f"{changed}: {said['states']} became {now}"
        assert said["states"].keys() <= now.keys(), f"{said['states'].keys() - now.keys()} are gone"


def _states(engine: Engine) -> dict[str, QueryState]:
    return {q.id: q.state for q in engine.queries()}


def _bag(rows: Iterable[Mapping[str, Any]]) -> Counter[Any]:
    return Counter((r["revision"], freeze(r["window_start"], r["window_end"], r["row"])) for r in rows)
