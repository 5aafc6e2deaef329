"""The platform inside a test, for people who write queries or connectors.

    from ajoin.testing import LocalEngine

    with LocalEngine() as engine:
        engine.create_stream("V", columns={"vID": "BIGINT", "ts": "TIMESTAMP"})
        engine.create_stream("W", columns={"vID": "BIGINT", "usrID": "BIGINT", "ts": "TIMESTAMP"})
        engine.create_query("SELECT usrID FROM V JOIN W USING (vID) WINDOW TUMBLING (SIZE 1 SECOND)", id="q")
        engine.push("V", {"vID": 7, "ts": 100})
        engine.push("W", {"vID": 7, "usrID": 1, "ts": 900})
        engine.run_epoch()
        assert engine.rows("q") == [{"window_start": 0, "window_end": 1000, "usrID": 1}]

It is the real engine: SQL, plans, files, log and recovery are those of `ajoin serve`. What is missing is whatever makes
a test slow or different from run to run. Tasks run in this process, one after the other, so there is no JVM. There is
no server. Nothing happens by itself: an epoch runs when the test says so, and time is a `Clock` that stands still until
it is moved. The state is a temporary directory, or one that the test names. `plugins` are modules to load first, as
with `ajoin serve --plugin`; they stay loaded in this process.

Calls have the names and arguments of `ajoin.Client`, and raise what it raises.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from ajoin.platform.catalog import column_type
from ajoin.sql import at_window, parse_query
from optimizer.errors import AJoinError
from optimizer.model.types import Column, StreamSchema
from runtime.api import NO_BUDGET, Budget, Control, CreateQuery, Cursor, DeleteQuery, EpochReport, QueryInfo, StreamInfo
from runtime.connectors.base import ConnectorSpec
from runtime.delivery.schedule import InStep
from runtime.engine.config import EngineConfig
from runtime.engine.engine import Engine
from runtime.execution.executor import Executor, LocalExecutor
from runtime.plugins import load, vocabulary
from runtime.results.factorized import expand


class Clock:
    """Processing time in milliseconds; stands still until moved."""

    def __init__(self, now: int = 0) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def advance(self, ms: int) -> None:
        self.now += ms


class LocalEngine:
    """`engine` is the engine itself, for everything that has no name here; `restart` replaces it."""

    def __init__(
        self,
        directory: Path | None = None,
        *,
        config: EngineConfig | None = None,
        executor: Executor | None = None,
        clock: Clock | None = None,
        plugins: Sequence[str] = (),
    ) -> None:
        load(plugins)
        self._temporary = tempfile.TemporaryDirectory(prefix="ajoin-") if directory is None else None
        self.directory = directory or Path(self._temporary.name if self._temporary else "")
        self.config, self.executor = config or EngineConfig(delivery=InStep), executor or LocalExecutor()
        self.clock = clock or Clock()
        self.engine = self._open()

    def _open(self) -> Engine:
        return Engine.open(self.directory, self.executor, self.config, self.clock)

    def restart(self, *, kill: bool = False) -> None:
        """Close the engine and open it again on its directory; `kill`: as if the process had died."""
        if kill:
            self.engine.abandon()
        else:
            self.engine.close()
        self.engine = self._open()

    def close(self) -> None:
        self.engine.close()
        if self._temporary is not None:
            self._temporary.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- what users do ----------------------------------------------------------------------------------------------

    def create_stream(
        self,
        name: str,
        *,
        columns: Mapping[str, str],
        time: str = "ts",
        source: str = "push",
        options: Mapping[str, str] | None = None,
        watermark_delay_ms: int = 0,
        allowed_lateness_ms: int = 0,
        idle_timeout_ms: int | None = None,
        max_ahead_ms: int | None = None,
        max_jump_ms: int | None = None,
    ) -> StreamInfo:
        typed = tuple(Column(column, column_type(kind)) for column, kind in columns.items())
        schema = StreamSchema(
            name,
            typed,
            time,
            watermark_delay_ms,
            allowed_lateness_ms,
            idle_timeout_ms,
            max_ahead_ms=max_ahead_ms,
            max_jump_ms=max_jump_ms,
        )
        return self.engine.create_stream(schema, ConnectorSpec(source, tuple((options or {}).items())))

    def reset_watermark(self, name: str, to: int) -> StreamInfo:
        return self.engine.reset_watermark(name, to)

    def restart_stream(self, name: str, at: str | None = None) -> StreamInfo:
        return self.engine.restart_stream(name, at)

    def create_query(
        self, sql: str, *, id: str, sinks: Sequence[ConnectorSpec] = (), budget: Budget = NO_BUDGET
    ) -> QueryInfo:
        query = parse_query(sql, self.engine.schemas(), vocabulary=vocabulary())
        self.apply(CreateQuery(id, query, tuple(sinks), budget))
        return self.engine.query(id)

    def delete_query(self, id: str) -> QueryInfo:
        self.apply(DeleteQuery(id))
        return self.engine.query(id)

    def apply(self, control: Control) -> QueryInfo | None:
        """Any other request: a forced order or grouping, scaling, optimizing (runtime.api)."""
        (outcome,) = self.engine.apply([control])
        if isinstance(outcome, AJoinError):
            raise at_window(outcome, control.query.sql) if isinstance(control, CreateQuery) else outcome
        return outcome

    def push(self, stream: str, *rows: Mapping[str, Any]) -> None:
        """For the next epoch; times are milliseconds since 1970."""
        self.engine.push(stream, rows)

    def raise_watermark(self, ts: int | None, *streams: str) -> None:
        """After the next epoch nothing before `ts` (None: nothing at all) is expected on these, or on all, streams."""
        for name in streams or tuple(self.engine.schemas()):
            self.engine.raise_watermark(name, ts)

    def run_epoch(self) -> EpochReport:
        return self.engine.run_epoch()

    # -- what they get ----------------------------------------------------------------------------------------------

    def rows(self, id: str) -> list[dict[str, Any]]:
        """All rows delivered so far, in order; times are milliseconds since 1970; EMIT FACTORIZED is expanded."""
        rows: list[dict[str, Any]] = []
        after: Cursor | None = None
        while batches := self.engine.read_results(id, after, 1 << 30):
            for batch in batches:
                rows += _milliseconds(expand(batch.rows)).to_pylist()
            after = batches[-1].cursor
        return rows


def _milliseconds(table: pa.Table) -> pa.Table:
    columns = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in table.columns]
    return pa.table(columns, names=table.column_names)
