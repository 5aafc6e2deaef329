"""What tasks fetch from a store that cannot be mapped: the parts they look at, and on each machine only its own."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.buckets.checked import CHUNK, LEAST_CHUNK, PER_ARRAY, chunk_size
from runtime.connectors.base import ConnectorSpec
from runtime.execution.executor import LocalExecutor
from runtime.store import buckets
from runtime.store.buckets import ObjectBuckets
from runtime.store.cache import Cache
from tests.runtime.rig import Rig
from tests.tools.store_double import Double

TUPLES, KEYS = 150_000, 1_000_000
JOIN = "SELECT V.a, W.b FROM V JOIN W ON V.k = W.k WINDOW TUMBLING (SIZE 10 SECONDS)"


class Hosts(LocalExecutor):
    """Tasks run in turn on machines that share nothing but the store; counts what each of them fetches."""

    here = False

    def __init__(self, folder: Path, hosts: int, store: Double, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._store, self.cores = folder, store, hosts
        self._files: dict[int, ObjectBuckets] = {}
        self.fetched = np.zeros(hosts, np.int64)
        self._host = 0
        monkeypatch.setattr(buckets, "_arrived", arrived)
        HERE[:] = [self]

    def arrived(self, uri: str, platform: str, bound: int, keeps: bool) -> ObjectBuckets:
        if self._host not in self._files:
            cache = Cache(self._folder / str(self._host), bound)
            self._files[self._host] = ObjectBuckets(uri, platform, cache, bound, keeps)
        return self._files[self._host]

    def run(self, name: str, stage: Any, shared: Any, tasks: Any) -> list[Any]:
        answers = []
        for number, task in enumerate(tasks):
            self._host, before = number % self.cores, self._store.bytes_read
            function, everything = pickle.loads(pickle.dumps((stage, shared)))
            answers.append(function(everything, task))
            self.fetched[self._host] += self._store.bytes_read - before
        return answers


HERE: list[Hosts] = []


def arrived(uri: str, platform: str, bound: int, keeps: bool) -> ObjectBuckets:
    return HERE[0].arrived(uri, platform, bound, keeps)


def generated(rig: Rig, *streams: str) -> None:
    for seed, name in enumerate(streams):
        columns = tuple(Column(c, ColumnType.BIGINT) for c in ("k", "a", "b", "c"))
        options = {f"column.{c.name}": f"uniform(1,{KEYS})" for c in columns}
        options |= {"rate": str(TUPLES), "seed": str(seed), "batch": str(2 * TUPLES)}
        schema = StreamSchema(name, (*columns, Column("ts", ColumnType.TIMESTAMP)), "ts")
        rig.engine.create_stream(schema, ConnectorSpec("generator", tuple(sorted(options.items()))))


@pytest.mark.parametrize("hosts", [2, 4])
def test_each_machine_fetches_its_part(tmp_path: Path, hosts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = []
    for stored in (True, False):
        store = Double()
        executor = Hosts(tmp_path / "hosts", hosts, store, monkeypatch) if stored else None
        where = {"store": store.open()} if stored else {}
        rig = Rig(tmp_path / str(stored), executor, partitions=hosts, pipelined=False, **where)
        generated(rig, "V", "W")
        rig.create("q", JOIN)
        for _ in range(3):
            rig.clock.now += 1000
            rig.engine.run_epoch()
        rows.append(rig.rows("q"))
        if stored:
            written = sum(len(d) for name, d in store.objects.items() if name.startswith("buckets/"))
            assert written > 6 * TUPLES * 16, "all three epochs are open"
            share = executor.fetched / written  # type: ignore[union-attr]
            assert share.max() < 1.25 / hosts, share
            requests = store.asked["read"] / (3 * hosts)
            assert requests < 60, f"{requests} requests a task"
    assert rows[0] == rows[1] and rows[0]


def test_a_chunk_is_fetched_once_and_only_if_it_is_looked_at(tmp_path: Path) -> None:
    store = Double()
    files = ObjectBuckets(store.open(), "p", Cache(tmp_path / "one", 0), 0)
    many = CHUNK // 8 * 4 * PER_ARRAY
    files.write("t/b1.1.bucket", {}, {"a": np.arange(many), "b": np.arange(many)})
    there = ObjectBuckets(store.uri, "p", Cache(tmp_path / "two", 0), 0)
    before = store.bytes_read
    file = there.open("t/b1.1.bucket")
    header = store.bytes_read - before
    assert header <= 1 << 14
    assert file.arrays.part("a", 10, 20)[10:20].tolist() == list(range(10, 20))
    assert store.bytes_read - before - header == CHUNK
    at = np.array([5, many - 1])
    assert file.arrays.at_rows("b", at)[at].tolist() == [5, many - 1]
    assert store.bytes_read - before - header <= 3 * CHUNK
    assert file.arrays["a"].tolist() == list(range(many))
    again = ObjectBuckets(store.uri, "p", Cache(tmp_path / "two", 0), 0)  # another process of that machine
    seen = store.bytes_read
    assert again.open("t/b1.1.bucket").arrays["a"].tolist() == list(range(many))
    assert store.bytes_read == seen


def test_chunks_are_as_large_as_arrays_need() -> None:
    assert chunk_size(0, 0) == chunk_size(PER_ARRAY * LEAST_CHUNK, 8) == LEAST_CHUNK
    assert chunk_size(PER_ARRAY * LEAST_CHUNK + 1, 8) == 2 * LEAST_CHUNK
    assert chunk_size(1 << 40, 8) == CHUNK
    assert chunk_size(0, 3 * CHUNK) == 4 * CHUNK, "no row is larger than a chunk"


def test_buckets_need_not_be_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of small buckets, too, a machine fetches little more than its part."""
    monkeypatch.setattr(f"{__name__}.TUPLES", 20_000)
    monkeypatch.setattr(f"{__name__}.KEYS", 100_000)
    fetched = {}
    for hosts in (1, 4):
        store = Double()
        executor = Hosts(tmp_path / f"hosts-{hosts}", hosts, store, monkeypatch)
        rig = Rig(tmp_path / str(hosts), executor, partitions=hosts, pipelined=False, store=store.open())
        generated(rig, "V", "W")
        rig.create("q", JOIN)
        for _ in range(3):
            rig.clock.now += 1000
            rig.engine.run_epoch()
        fetched[hosts] = executor.fetched
        written = sum(len(d) for name, d in store.objects.items() if name.startswith("buckets/"))
        assert fetched[hosts].sum() < 1.2 * written
    assert fetched[4].max() * 4 < 1.35 * fetched[1].sum()


def test_machines_let_go_of_what_was_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.TUPLES", 1000)
    store = Double()
    executor = Hosts(tmp_path / "hosts", 2, store, monkeypatch)
    rig = Rig(tmp_path / "state", executor, partitions=2, pipelined=False, store=store.open())
    generated(rig, "V", "W")
    rig.create("q", "SELECT V.a, W.b FROM V JOIN W ON V.k = W.k WINDOW HOPPING (SIZE 2 SECONDS, ADVANCE BY 1 SECOND)")
    for _ in range(12):
        rig.clock.now += 1000
        rig.engine.run_epoch()
    state = rig.engine.state
    assert state.epoch >= 12 and len(state.sources) <= 8
    for host in (0, 1):
        copies = {f.name for f in (tmp_path / "hosts" / str(host)).iterdir()}
        assert copies and len(copies) <= len(state.sources) + 4, "of open buckets, and of those dropped last"
