"""A random life of the platform: streams, tuples, and all that users and operators do meanwhile.

Tuples are drawn first, then queries that fit them, then the story is told epoch by epoch. Nothing in a life
is refused except lines that carry `expect_error`, which may be. An id is never used twice. Within an epoch the control
lines keep their order but stand anywhere between the tuples, because that must not matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.lives.controls import operations, perhaps_too_late, refused
from tests.lives.draw import chance, pick
from tests.lives.folding import make_folding
from tests.lives.profile import PROFILES, Profile
from tests.lives.queries import Query, make_query
from tests.lives.streams import NAMES, Event, Stream, World, make_event, make_stream, make_world

Line = dict[str, Any]


def make_life(rng: Random, profile: Profile | str = "tiny") -> list[Line]:
    """The lines of a scenario, as in `ajoin replay`. The same random numbers give the same life."""
    if isinstance(profile, str):
        profile = PROFILES[profile]
    epochs = rng.randint(*profile.epochs)
    world = make_world(rng, profile, epochs)
    streams = [make_stream(rng, profile, world, name, epochs) for name in NAMES[: rng.randint(*profile.streams)]]
    births = [0, 0, *(rng.randrange(epochs) if chance(rng, 0.15) else 0 for _ in streams[2:])]
    events = _events(rng, profile, world, streams, births, epochs)
    queries = _queries(rng, profile, world, streams, births, events, epochs)
    return _tell(rng, profile, world, streams, births, events, queries, epochs)


@dataclass(frozen=True, slots=True)
class _Planned:
    """A query and the epochs before which it is created and deleted (`epochs` for "after the last one")."""

    id: str
    query: Query
    created: int
    deleted: int | None


@dataclass(slots=True)
class Running:
    """What the story knows at a point: which queries run, and how many partitions there are."""

    queries: dict[str, Query] = field(default_factory=dict)
    partitions: int = 1


def _events(
    rng: Random,
    profile: Profile,
    world: World,
    streams: Sequence[Stream],
    births: Sequence[int],
    epochs: int,
) -> list[Event]:
    events = []
    for i in range(rng.randint(*profile.events)):
        epoch = i % epochs
        alive = [s for s, birth in zip(streams, births, strict=True) if birth <= epoch]
        events.append(make_event(rng, world, pick(rng, alive), epoch, epochs))
    return events


def _queries(
    rng: Random,
    profile: Profile,
    world: World,
    streams: Sequence[Stream],
    births: Sequence[int],
    events: Sequence[Event],
    epochs: int,
) -> list[_Planned]:
    by_stream = {s.name: [e for e in events if e.stream == s.name] for s in streams}
    left, planned = profile.rows, list[_Planned]()
    for i in range(rng.randint(*profile.queries)):
        created = 0 if not chance(rng, 1 - profile.early) else rng.randrange(epochs)
        deleted = rng.randint(min(created + 1, epochs), epochs) if chance(rng, profile.deleted) else None
        if deleted is not None and chance(rng, 0.1):
            deleted = created
        alive = {s.name: s for s, birth in zip(streams, births, strict=True) if birth <= created}
        allowed = min(profile.rows_per_query, left)
        rest = 1 - created / epochs
        if profile.folded and chance(rng, profile.folded):
            query = make_folding(rng, profile, world, alive, by_stream, allowed, created, rest)
        else:
            query = make_query(rng, profile, world, alive, by_stream, allowed, rest)
        if query is not None:
            left -= query.rows
            planned.append(_Planned(f"q{i + 1}", query, created, deleted))
    return planned


def _tell(
    rng: Random,
    profile: Profile,
    world: World,
    streams: Sequence[Stream],
    births: Sequence[int],
    events: Sequence[Event],
    queries: Sequence[_Planned],
    epochs: int,
) -> list[Line]:
    running = Running()
    known: dict[str, Stream] = {}
    life: list[Line] = []
    for epoch in range(epochs + 1):
        for stream, birth in zip(streams, births, strict=True):
            if birth == epoch:
                known[stream.name] = stream
                life.append(stream.line)
        controls = _changes(rng, queries, epoch, running)
        controls += operations(rng, profile, running.queries, running)
        if chance(rng, profile.refused):
            controls.append(refused(rng, profile, known, running.queries))
        if profile.folded and chance(rng, 0.15):
            past = [e for e in events if e.epoch < epoch]
            line = perhaps_too_late(rng, known, past, f"perhaps{epoch}")
            controls += [line] if line else []
        if epoch == epochs:
            # Whatever still happens after the last tuple, happens without a closing line.
            return life + controls
        tuples = [e.line for e in events if e.epoch == epoch]
        if chance(rng, profile.watermarked):
            tuples.append(_watermark(rng, world, known, epoch, epochs))
        life += _interleaved(rng, controls, tuples)
        life.append({"epoch": True})
        if chance(rng, profile.idle):
            life.append({"epoch": True})
    raise AssertionError("the last round returns")


def _changes(rng: Random, queries: Sequence[_Planned], epoch: int, running: Running) -> list[Line]:
    """Creations and deletions of one epoch in random order, each query's creation before its deletion."""
    lines: list[Line] = []
    for q in queries:
        if q.deleted == epoch and q.created < epoch:
            lines.append({"delete": q.id})
        if q.created == epoch:
            lines.append({"create": q.id, "sql": q.query.sql})
    if chance(rng, 0.5):
        rng.shuffle(lines)
    for q in queries:
        if q.created == q.deleted == epoch:
            at = next(i for i, line in enumerate(lines) if line.get("create") == q.id)
            lines.insert(rng.randint(at + 1, len(lines)), {"delete": q.id})
        elif q.created == epoch:
            running.queries[q.id] = q.query
        elif q.deleted == epoch:
            del running.queries[q.id]
    return lines


def _watermark(rng: Random, world: World, known: Mapping[str, Stream], epoch: int, epochs: int) -> Line:
    """Somewhere around the time the epoch's tuples have reached."""
    part = world.span // epochs
    at = part * epoch + rng.randint(-part, part)
    return {"watermark": pick(rng, sorted(known)), "ts": world.base + at * world.tick}


def _interleaved(rng: Random, controls: list[Line], tuples: list[Line]) -> list[Line]:
    if not chance(rng, 0.4):
        return controls + tuples
    merged, waiting = list[Line](), [list(controls), list(tuples)]
    while any(waiting):
        nonempty = [w for w in waiting if w]
        merged.append(pick(rng, nonempty).pop(0))
    return merged
