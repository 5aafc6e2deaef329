"""Plan changes under a steady load: how slow does the slowest epoch get, and is a row lost or repeated?

Every epoch reads the same number of tuples (a generator as fast as possible with a fixed batch), so epochs
are comparable. The run is done twice, without and with changes; the rows of every query must be equal, and
the slowest epoch of the second run is compared with its median. `kind`: reorder, regroup, split, scale, or
all in turn.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from experiments.systems.protocol import Answer, Request
from experiments.template import TIME, TemplateQuery, used_streams
from optimizer.model.types import StreamSchema
from runtime.api import Control, ForceGroups, ForceOrder, ScaleTo, SplitPartition
from runtime.connectors.base import ConnectorSpec
from runtime.engine.engine import Engine

WARM = 4


def run(
    opened: Callable[[], AbstractContextManager[Engine]],
    request: Request,
    schema: Callable[[str], StreamSchema],
    create: Callable[[Engine, list[TemplateQuery]], None],
    check: Callable[[Engine, list[Control]], None],
) -> Answer:
    options = request["options"]
    queries = [TemplateQuery.from_json(q) for q in request["queries"]]
    epochs, every = int(options["changes.epochs"]), int(options["changes.every"])
    results = []
    for kind in ("none", options["changes.kind"]):
        with opened() as engine:
            for i, stream in enumerate(used_streams(queries)):
                s = schema(stream)
                settings = {
                    "rate": "max",
                    "seed": str(i + 1),
                    "event_rate": str(request["event_rate"]),
                    "batch": str(options["changes.batch"]),
                    "limit": str(int(options["changes.batch"]) * (WARM + epochs)),
                }
                settings |= {
                    f"column.{c.name}": f"uniform(0,{request['keys'] - 1})" for c in s.columns if c.name != TIME
                }
                engine.create_stream(s, ConnectorSpec("generator", tuple(settings.items())))
            create(engine, queries)
            results.append(_epochs(engine, epochs, every, _changes(kind, queries), check))
    (_, plain, rows), (changes, changed, again) = results
    median = statistics.median(changed)
    values = {
        "changes": changes,
        "epoch_p50": median,
        "epoch_max": max(changed),
        "slowest_over_median": max(changed) / median,
        "steady_slowest_over_median": max(plain) / statistics.median(plain),
        "rows_equal": float(rows == again),
        "rows_total": sum(rows.values()),
    }
    return {"seconds": sum(changed), "values": values}


def _epochs(
    engine: Engine,
    epochs: int,
    every: int,
    changes: Iterator[Control],
    check: Callable[[Engine, list[Control]], None],
) -> tuple[int, list[float], dict[str, int]]:
    seconds: list[float] = []
    made = 0
    for number in range(WARM + epochs):
        began = time.perf_counter()
        if number >= WARM and (number - WARM) % every == every - 1:
            change = next(changes, None)
            if change is not None:
                check(engine, [change])  # deciding and logging the plan is part of the epoch's time
                made += 1
        engine.run_epoch()
        if number >= WARM:
            seconds.append(time.perf_counter() - began)
    return made, seconds, {q.id: q.rows for q in engine.queries()}


def _changes(kind: str, queries: Sequence[TemplateQuery]) -> Iterator[Control]:
    """Endless; each undoes the one before it in turn."""
    kinds: dict[str, Callable[[int], Control]] = {
        "reorder": lambda i: _reorder(queries, i),
        "regroup": lambda i: ForceGroups(tuple((q.id, n % 2 if i % 2 == 0 else 0) for n, q in enumerate(queries))),
        "split": lambda i: SplitPartition(0, 2 if i % 2 == 0 else 1),
        "scale": lambda i: ScaleTo(4 if i % 2 == 0 else 2),
    }
    if kind == "none":
        return iter(())
    chosen = list(kinds) if kind == "all" else [kind]
    # Two rounds each, so that every change is also undone; scaling drops splits, so it comes last.
    return (kinds[name](i) for n in itertools.count() for name in chosen for i in (2 * n, 2 * n + 1))


def _reorder(queries: Sequence[TemplateQuery], i: int) -> Control:
    """The first query with three sources or more, from its left end or from its right end."""
    q: Any = next(q for q in queries if len(q.sources) > 2)
    sources = list(q.sources) if i % 2 else list(reversed(q.sources))
    order: Any = sources[0]
    for s in sources[1:]:
        order = (order, s)
    return ForceOrder(q.id, order)
