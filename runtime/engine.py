"""The engine: the thin shell around the coordinator. (Interface first; the body follows.)"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from optimizer.errors import AJoinError
from optimizer.plan import Plan
from optimizer.types import StreamSchema
from runtime.api import Control, Cursor, PlanEvent, PlatformStatus, QueryInfo, ResultBatch, StreamInfo
from runtime.connectors.base import ConnectorSpec


class Engine:
    """Owned by one thread, which calls everything that changes state. The read-only part may be called from any thread."""

    # -- changes: only from the owning thread, only between two epochs --
    @classmethod
    def open(cls, state_dir: Path, executor: Any, config: Any, clock: Callable[[], int]) -> Engine: ...
    def create_stream(self, schema: StreamSchema, source: ConnectorSpec) -> StreamInfo: ...
    def delete_stream(self, name: str) -> None: ...
    def apply(self, batch: Sequence[Control]) -> list[QueryInfo | None | AJoinError]:
        """One query batch, at most one changelog. Each control gets its own outcome; a refused one changes nothing.

        QueryInfo for create/delete, None for the others, or the error. When this returns, the changelog is on disk
        and the next epoch runs with it.
        """
    def push(self, stream: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append rows (JSON-like) to a stream whose source is 'push'; they are read by the next epoch."""
    def push_file(self, stream: str, path: Path) -> None: ...
    def raise_watermark(self, stream: str, ts: int | None) -> None:
        """Explicit watermark, effective when the next epoch ends; None: infinity."""
    def run_epoch(self) -> Any:
        """One micro-batch over all streams; returns the EpochReport (epoch, tuples, rows, seconds per stage)."""
    def close(self) -> None: ...

    # -- read-only: from any thread --
    plan: Plan
    epoch: int  # the last committed epoch, 0 before the first
    def streams(self) -> list[StreamInfo]: ...
    def stream(self, name: str) -> StreamInfo: ...
    def queries(self) -> list[QueryInfo]: ...
    def query(self, id: str) -> QueryInfo: ...
    def schemas(self) -> Mapping[str, StreamSchema]: ...
    def plan_events(self, after_version: int = 0) -> list[PlanEvent]: ...
    def read_results(self, id: str, after: Cursor | None = None, limit: int = 64) -> list[ResultBatch]:
        """The next batches of the query's result log after the cursor (None: from the start of retention)."""
    def delivered(self, epoch: int) -> Iterator[ResultBatch]:
        """Everything one epoch delivered, for all queries, in delivery order."""
    def explain(self, *, id: str | None = None, candidate: Any = None, format: str = "text") -> str: ...
    def status(self) -> PlatformStatus: ...
