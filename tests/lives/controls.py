"""What operators do to a running platform, and what users get wrong; none of it may change a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Protocol

from tests.lives.draw import chance, pick, subset
from tests.lives.profile import Profile
from tests.lives.queries import Query, forced_order
from tests.lives.streams import POISON, Event, Stream

Line = dict[str, Any]


class Partitioned(Protocol):
    partitions: int


def operations(rng: Random, profile: Profile, running: Mapping[str, Query], platform: Partitioned) -> list[Line]:
    """Forced orders and groups, releasing them, scaling, re-optimisation and restarts before one epoch."""
    lines: list[Line] = []
    if profile.one_group and running:
        lines.append({"force": {"groups": dict.fromkeys(running, 0)}})
    joins = [id for id, query in running.items() if len(query.sources) > 1]
    if joins and chance(rng, profile.forced):
        lines += [{"force": {"query": id, "order": forced_order(rng, running[id])}} for id in subset(rng, joins, 0.5)]
    if running and not profile.one_group and chance(rng, profile.forced):
        groups = {id: rng.randrange(3) for id in subset(rng, list(running), 0.6)}
        lines += [{"force": {"groups": groups}}] if groups else []
    if chance(rng, profile.scaled):
        platform.partitions = rng.randint(1, 5)
        lines.append({"scale": {"partitions": platform.partitions}})
    if chance(rng, profile.scaled):
        split = {"partition": rng.randrange(platform.partitions), "ways": rng.randint(1, 3)}
        lines.append({"scale": {"split": split}})
    if chance(rng, profile.optimized):
        lines.append({"optimize": pick(rng, ("incremental", "full"))})
    if len(lines) > 1 and chance(rng, 0.5):
        _shuffle_keeping_splits_valid(rng, lines)
    if chance(rng, profile.restarted):
        lines.insert(rng.randint(0, len(lines)), {"restart": pick(rng, ("graceful", "kill"))})
    optimized = next((i for i, line in enumerate(lines) if "optimize" in line), None)
    if optimized is not None and len(running) % 3:  # else it works around what was forced
        lines.insert(optimized, {"unpin": "all"})
    return lines


def refused(rng: Random, profile: Profile, streams: Mapping[str, Stream], running: Mapping[str, Query]) -> Line:
    """A line that must be refused, and must leave no trace."""
    name = pick(rng, sorted(streams))
    window = "WINDOW TUMBLING (SIZE 10 MILLISECONDS)"
    mistakes: list[Line] = [
        {"delete": "nobody"},
        {"create": "wrong", "sql": f"SELECT * FROM {name} a JOIN {name} b ON a.k = b.nope {window}"},
        {"create": "wrong", "sql": f"SELECT * FROM {name} a, {name} b {window}"},
        {"create": "wrong", "sql": f"SELECT FROM {name} {window}"},
        {"create": "wrong", "sql": f"SELECT * FROM Nowhere a JOIN {name} b ON a.k = b.k {window}"},
        streams[name].line,
    ]
    if profile.folded:
        both = f"FROM {name} a JOIN {name} b ON a.k = b.k"
        wrong = (
            f"SELECT COUNT(*) AS n FROM {name}",
            f"SELECT * FROM {name} WINDOW SESSION (5 MILLISECONDS)",
            f"SELECT k, COUNT(*) AS n FROM {name} {window}",
            f"SELECT k FROM {name} WHERE SUM(k) > 1 GROUP BY k {window}",
            f"SELECT COUNT(*) AS n {both} WINDOW COUNT (SIZE 2)",
            f"SELECT FIRST(a.k) AS x {both} {window}",
        )
        mistakes += [{"create": "wrong", "sql": sql} for sql in wrong]
    if running:
        id = pick(rng, sorted(running))
        mistakes.append({"create": id, "sql": running[id].sql})
    return {**pick(rng, mistakes), "expect_error": True}


def perhaps_too_late(rng: Random, streams: Mapping[str, Stream], past: Sequence[Event], id: str) -> Line | None:
    """A query whose only window begins about when it is created; whether it may, depends on what was accepted."""
    name = pick(rng, sorted(streams))
    times = [e.row.get(streams[name].time) for e in past if e.stream == name]
    seen = sorted(t for t in times if type(t) is int and t < POISON)
    if not seen:
        return None
    start = pick(rng, seen[-3:]) + rng.randint(0, 1)
    sql = f"SELECT COUNT(*) AS n FROM {name} WINDOW BETWEEN {start} AND {start + rng.randint(5, 50)}"
    return {"create": id, "sql": sql, "expect_error": True}


def _shuffle_keeping_splits_valid(rng: Random, lines: list[Line]) -> None:
    """Any order, except that a split stays behind a change of the number of partitions."""
    scaling = [line for line in lines if "scale" in line]
    rng.shuffle(lines)
    places = [i for i, line in enumerate(lines) if "scale" in line]
    for place, line in zip(places, scaling, strict=True):
        lines[place] = line
