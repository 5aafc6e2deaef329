"""The platform's kernels in plain loops on two processes, without Spark, engine, logs or files of any kind between
them.

This bounds what the platform could do: the same index build, intersection and expansion, nothing else. Windows are
independent, so each process takes every second chunk and never has to exchange anything; that is more than any engine
that repartitions can hope for. One two-way query; a chunk must hold whole windows.
"""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from experiments.systems.protocol import Answer, Request, serve
from experiments.template import TIME, Selection, TemplateQuery, columns
from runtime.kernels import csr
from runtime.kernels.expand import count_pairs, pairs
from runtime.kernels.hashing import hash_integers
from runtime.kernels.intersect import Shapes, intersect
from runtime.kernels.slices import slice_starts
from runtime.kernels.warm import warm_up

PROCESSES = 2
CHUNK = 1 << 18

_COMPARE = {"=": np.equal, "<": np.less, ">": np.greater, "<=": np.less_equal, ">=": np.greater_equal}


@cache
def _pool() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(PROCESSES, mp_context=get_context("fork"), initializer=warm_up)


def run(request: Request) -> Answer:
    (q,) = [TemplateQuery.from_json(q) for q in request["queries"]]
    if request["chunk_seconds"] % q.window_seconds:
        raise ValueError("a chunk must hold whole windows")
    data = Path(request["data"])
    files = sorted(f.name for f in (data / q.sources[0]).iterdir())
    began = time.perf_counter()
    rows = sum(_pool().map(_loop, [q] * PROCESSES, [data] * PROCESSES, [files[i::PROCESSES] for i in range(PROCESSES)]))
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "rows": {q.id: rows}}


def _loop(q: TemplateQuery, data: Path, files: list[str]) -> int:
    return sum(_join(q, [pq.read_table(data / s / file) for s in q.sources]) for file in files)


def _join(q: TemplateQuery, tables: list[Any]) -> int:
    size = np.array([q.window_seconds * 1000], np.int64)
    one = np.ones(1, np.uint64)
    (l_columns, l, l_sets), (r_columns, r, r_sets) = (
        _index(table, q.links[0][i], q.selections[i], size) for i, table in enumerate(tables)
    )
    shapes = Shapes(size, size, one.reshape(1, 1))
    le, re, sets = intersect(l.entries(0, len(l.hashes)), r.entries(0, len(r.hashes)), one, shapes)
    l_items, r_items = csr.Items(l.order, l.offsets, l_sets), csr.Items(r.order, r.offsets, r_sets)
    n = int(l.offsets[-1])
    counts = count_pairs(le, l.offsets, 0, n, re, r.offsets)
    total = np.cumsum(counts)
    made, at = 0, 0
    while at < len(counts):
        before = int(total[at - 1]) if at else 0
        end = max(at + 1, int(np.searchsorted(total, before + CHUNK, "right")))
        part = slice(at, end)
        capacity = int(total[end - 1]) - before
        _, left, right, _, _ = pairs(le[part], l_items, 0, n, re[part], r_items, sets[part], capacity)
        rows = [c[left] for c in l_columns] + [c[right] for c in r_columns]
        made += len(rows[0])
        at = end
    return made


def _index(table: Any, attribute: int, selection: Selection | None, size: Any) -> tuple[list[Any], csr.Csr, Any]:
    if selection is not None:
        test = _COMPARE[selection.operator]
        given = table[f"a{selection.attribute}"].to_numpy()
        passes = test(given, selection.value)
        table = table.filter(passes if selection.upper is None else passes & (given < selection.upper))
    values = [table[c].to_numpy() for c in columns()]
    slices = slice_starts(table[TIME].to_numpy(), size, size)
    sets = np.ones((len(slices), 1), np.uint64)
    return values, csr.build(np.arange(len(slices)), hash_integers(values[attribute]), slices, slices, sets), sets


def warm(_: Request) -> Answer:
    list(_pool().map(abs, range(PROCESSES)))
    return {}


if __name__ == "__main__":
    serve({"warm": warm, "run": run})
