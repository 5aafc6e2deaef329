"""What to do with a life besides running it: disturb it, and write it down."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

from tests.lives.draw import chance
from tests.lives.folding import make_folding
from tests.lives.profile import TINY
from tests.lives.queries import make_query
from tests.lives.streams import AHEAD, Event, Stream, World

Line = dict[str, Any]
EXTRA = "extra"


def with_extra_query(scenario: Sequence[Line], rng: Random, folding: bool = False) -> list[Line]:
    """The same life with one more query, created somewhere and perhaps deleted later.

    Its id starts with "extra". The rows, bounds and counts of everything else must stay what they were. `folding`: it
    is one of folding.py, else a join.
    """
    declared = [i for i, line in enumerate(scenario) if "stream" in line and not line.get("expect_error")]
    at = rng.randint(declared[0] + 1, len(scenario))
    streams = {s.name: s for s in (_stream(scenario[i]) for i in declared if i < at)}
    taken = {line["create"] for line in scenario if "create" in line}
    id = next(n for n in (EXTRA, *(f"{EXTRA}{i}" for i in range(2, 1000))) if n not in taken)
    events = {n: [Event(0, n, e["row"]) for e in scenario if e.get("event") == n] for n in streams}
    world = _world(streams, events)
    # All events are of epoch 0 here, so what is created before epoch 1 begins after all of them if it must not be late.
    draw = partial(make_folding, created=1) if folding else make_query
    drawn = (draw(rng, TINY, world, streams, events, rows=20_000) for _ in range(50))
    query = next(q for q in drawn if q is not None)
    extended = [*scenario[:at], {"create": id, "sql": query.sql}, *scenario[at:]]
    if chance(rng, 0.6):
        extended.insert(rng.randint(at + 1, len(extended)), {"delete": id})
    return extended


def describe(scenario: Sequence[Line]) -> str:
    """The life as the text of a scenario file: paste it and run `ajoin replay` on it."""
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in scenario)


def _stream(line: Line) -> Stream:
    return Stream(
        line["stream"],
        line["schema"],
        line["time"],
        line.get("watermark_delay_ms", 0),
        line.get("allowed_lateness_ms", 0),
        line.get("max_ahead_ms"),
    )


def _world(streams: Mapping[str, Stream], events: Mapping[str, Sequence[Event]]) -> World:
    """Where in time and in which key domain the life takes place, as its tuples tell."""
    rows = [(e.row, streams[n].time) for n, own in events.items() for e in own]
    times = [r[t] for r, t in rows if type(r.get(t)) is int and r[t] < AHEAD] or [0]
    keys = sorted({r["k"] for r, _ in rows if type(r.get("k")) is int and abs(r["k"]) < 1 << 63}) or [0]
    return World(min(times), 1, max(8, max(times) - min(times)), tuple(keys), 0)
