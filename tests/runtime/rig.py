"""An engine in a test's hands: SQL in, rows out, a clock that is moved by hand, and restarts of both kinds.

`Rig` keeps the executor in this process, and sinks in step with epochs. Bucket contents are shown as people write them
in a figure: an index is a dictionary from key to the tuples under it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from ajoin.testing import LocalEngine
from optimizer.model.plan import Leaf
from runtime.api import Control, EpochReport, QueryInfo
from runtime.buckets.refs import JoinedRef, SourceRef
from runtime.buckets.views import Joined, View, get_column
from runtime.connectors.base import ConnectorSpec
from runtime.delivery.schedule import InStep
from runtime.engine.config import EngineConfig
from runtime.engine.engine import Engine
from runtime.execution.executor import Executor
from runtime.kernels.csr import Csr

PUSH = ConnectorSpec("push", ())


class Rig:
    """An `ajoin.testing.LocalEngine` with tuples in schema order, and a look inside."""

    def __init__(self, directory: Path, executor: Executor | None = None, **config: Any) -> None:
        self.local = LocalEngine(directory, executor=executor, config=EngineConfig(**{"delivery": InStep} | config))
        self.directory, self.config = directory, self.local.config
        self.executor, self.clock = self.local.executor, self.local.clock

    @property
    def engine(self) -> Engine:
        return self.local.engine

    @engine.setter
    def engine(self, opened: Engine) -> None:
        self.local.engine = opened

    def _open(self) -> Engine:
        return Engine.open(self.directory, self.executor, self.config, self.clock)

    def reopen(self, *, kill: bool = True) -> None:
        self.local.restart(kill=kill)

    # -- what users do ----------------------------------------------------------------------------------

    def stream(self, name: str, source: ConnectorSpec = PUSH, **columns: Any) -> None:
        """Columns by name; `delay`, `lateness`, `idle`, `ahead` and `jump` in ms. Event time is a column `ts`."""
        defaults = {"delay": 0, "lateness": 0, "idle": None, "ahead": None, "jump": None}
        timing = {n: columns.pop(n, d) for n, d in defaults.items()}
        self.local.create_stream(
            name,
            columns={**columns, "ts": "TIMESTAMP"},
            source=source.kind,
            options=source.settings,
            watermark_delay_ms=timing["delay"],
            allowed_lateness_ms=timing["lateness"],
            idle_timeout_ms=timing["idle"],
            max_ahead_ms=timing["ahead"],
            max_jump_ms=timing["jump"],
        )

    def create(self, id: str, sql: str) -> QueryInfo:
        return self.local.create_query(sql, id=id)

    def delete(self, id: str) -> QueryInfo:
        return self.local.delete_query(id)

    def control(self, control: Control) -> QueryInfo | None:
        return self.local.apply(control)

    def epoch(
        self,
        rows: Mapping[str, Sequence[Sequence[Any]]] | None = None,
        watermark: int | None = None,
    ) -> EpochReport:
        """One epoch over tuples given as plain sequences in schema order; `watermark` is raised on all."""
        for name, tuples in (rows or {}).items():
            names = [c.name for c in self.engine.schemas()[name].columns]
            self.local.push(name, *(dict(zip(names, t, strict=True)) for t in tuples))
        if watermark is not None:
            self.local.raise_watermark(watermark)
        return self.local.run_epoch()

    # -- what they get ----------------------------------------------------------------------------------

    def rows(self, id: str) -> list[tuple[Any, ...]]:
        """The query's result log, sorted: (window_start, window_end, output, ...)."""
        rows, after = [], None
        while batches := self.engine.read_results(id, after, 1 << 30):
            rows += [r for b in batches for r in plain(b.rows)]
            after = batches[-1].cursor
        return sorted(rows)

    def delivered(self, epoch: int | None = None) -> dict[str, list[tuple[Any, ...]]]:
        """Rows by query of one epoch; by default the last one."""
        found: dict[str, list[tuple[Any, ...]]] = {}
        for batch in self.engine.delivered(self.engine.epoch if epoch is None else epoch):
            found.setdefault(batch.query_id, []).extend(plain(batch.rows))
        return {id: sorted(rows) for id, rows in found.items()}

    # -- what is inside -----------------------------------------------------------------------------------

    def files(self, folder: str) -> list[Path]:
        return sorted(p for p in self.folder(folder).rglob("*") if p.is_file())

    def folder(self, name: str) -> Path:
        """Where buckets or results lie: in the state directory, or in a store that is a path."""
        uri = self.engine.config.store
        return (self.directory if uri is None else Path(uri.partition("://")[2] or uri)) / name

    def sources(self, stream: str) -> list[SourceRef]:
        return [s for s in self.engine.state.sources.values() if s.stream == stream]

    def joined(self, *streams: str) -> list[JoinedRef]:
        """Joined buckets over exactly these streams."""
        leaves = tuple(Leaf(s) for s in sorted(streams))
        nodes = {n.name for n in self.engine.plan.nodes if n.leaves == leaves}
        return [j for j in self.engine.state.joined.values() if j.node in nodes]

    def view(self, ref: SourceRef, group: int = 0) -> View:
        found = ref.view(Leaf(ref.stream), group)
        assert found is not None
        return View(self.engine.parts.exchange.files.open(found.file), found.leaf, group)

    def open_joined(self, ref: JoinedRef) -> Joined:
        return Joined(self.engine.parts.exchange.files.open(ref.file))

    def tuples(self, ref: SourceRef) -> list[dict[str, Any]]:
        """The bucket's rows, with the columns it keeps."""
        file = self.engine.parts.exchange.files.open(ref.file)
        columns = {name: get_column(file, name).to_arrow().to_pylist() for name in file.meta["types"]}
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    def index(self, ref: SourceRef, *key: str) -> dict[Any, list[dict[str, Any]]]:
        """The index by these columns as {key: its tuples}; a composite key is a tuple."""
        view, rows = self.view(ref), self.tuples(ref)
        found = next(k for k in ref.views[0].keys if tuple(c for c, _ in k) == key)
        out: dict[Any, list[dict[str, Any]]] = {}
        for items in entries(view.index(found)):
            under = [rows[view.rows[i]] for i in items]
            value = tuple(under[0][c] for c in key)
            assert (value if len(key) > 1 else value[0]) not in out, "one key, one entry"
            out[value if len(key) > 1 else value[0]] = under
        return out


def entries(index: Csr) -> list[list[int]]:
    """The items of every index entry."""
    return [index.order[a:b].tolist() for a, b in zip(index.offsets[:-1], index.offsets[1:], strict=True)]


def plain(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    """Rows as tuples, timestamps as milliseconds."""
    columns = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in batch.columns]
    return list(zip(*(c.to_pylist() for c in columns), strict=True))
