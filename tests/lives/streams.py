"""Random streams and their tuples: small key domains, NULLs, disorder, late and broken rows.

Times run from `base` over `span` ticks of `tick` milliseconds, so that window edges are hit exactly all the
time. Columns are named by their role, the same in all streams (`k` BIGINT, `j` INT, `d` DOUBLE, `s` STRING,
`b` BOOLEAN, `u` TIMESTAMP), and draw from one small domain per role, so that columns of different types
still meet. Some streams have a bound on how far ahead a tuple may be, and tuples beyond it; both are so large that it
does not matter where the clock stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.lives.draw import chance, pick, weighted
from tests.lives.profile import Profile

ROLES = {"k": "BIGINT", "j": "INT", "d": "DOUBLE", "s": "STRING", "b": "BOOLEAN", "u": "TIMESTAMP"}
NAMES = ("V", "W", "C", "R")
TEXTS = ("a", "b", "ab", "", "a%", "é", "B_", "ba'", "aab")
BASES = ((0, 6), (-40, 2), (1_700_000_000_000, 3), (-5_000_000_000, 1), (1 << 53, 0.5))


AHEAD, POISON = 1 << 58, 1 << 59
"""A bound, and event times beyond it."""


@dataclass(frozen=True, slots=True)
class World:
    """What all streams of a life have in common. `keys` holds the integers that keys are made of."""

    base: int
    tick: int
    span: int
    keys: tuple[int, ...]
    jitter: int


@dataclass(frozen=True, slots=True)
class Stream:
    """`columns` in schema order, including the event-time column `time`."""

    name: str
    columns: Mapping[str, str]
    time: str
    delay: int
    lateness: int
    ahead: int | None = None

    @property
    def line(self) -> dict[str, Any]:
        bound = {} if self.ahead is None else {"max_ahead_ms": self.ahead}
        return {
            "stream": self.name,
            "schema": dict(self.columns),
            "time": self.time,
            "watermark_delay_ms": self.delay,
            "allowed_lateness_ms": self.lateness,
            **bound,
        }


@dataclass(frozen=True, slots=True)
class Event:
    epoch: int
    stream: str
    row: dict[str, Any]

    @property
    def line(self) -> dict[str, Any]:
        return {"event": self.stream, "row": self.row}


def make_world(rng: Random, profile: Profile, epochs: int) -> World:
    tick = weighted(rng, ((1, 5), (10, 2), (1000, 2)))
    span = rng.randint(15, 30) * epochs
    # Next to 2**53 two neighbouring BIGINTs are the same DOUBLE: equality in DOUBLE is no longer equality.
    offset = weighted(rng, ((0, 12), (-2, 3), (1 << 53, 1)))
    keys = tuple(offset + i for i in range(rng.randint(*profile.keys)))
    jitter = weighted(rng, tuple(zip((0, span // epochs // 4, span // epochs), profile.jitter, strict=True)))
    return World(weighted(rng, BASES) // tick * tick, tick, span, keys, jitter)


def make_stream(rng: Random, profile: Profile, world: World, name: str, epochs: int) -> Stream:
    # k is everywhere, so that any two streams can join.
    roles = ["k", *(r for r in ROLES if r != "k" and not chance(rng, 0.4))]
    time = "ts" if not chance(rng, 0.15) else "at"
    names = [*roles, time]
    rng.shuffle(names)
    columns = {n: ROLES.get(n, "TIMESTAMP" if n == "ts" else "BIGINT") for n in names}
    part = world.span // epochs
    delay = weighted(rng, tuple(zip((0, part // 4, part), profile.delay, strict=True))) * world.tick
    lateness = weighted(rng, tuple(zip((0, part // 3, 2 * part), profile.lateness, strict=True))) * world.tick
    return Stream(name, columns, time, delay, lateness, AHEAD if chance(rng, 0.3) else None)


def make_event(rng: Random, world: World, stream: Stream, epoch: int, epochs: int) -> Event:
    part = world.span / epochs
    at = int(part * epoch + part * rng.random()) + rng.randint(-world.jitter, world.jitter)
    time = world.base + at * world.tick
    if chance(rng, 0.1):
        time += rng.randrange(world.tick)
    row: dict[str, Any] = {c: _value(rng, world, t) for c, t in stream.columns.items()}
    row[stream.time] = time
    if chance(rng, 0.03):
        _break(rng, stream, row)
    elif stream.ahead is not None and chance(rng, 0.06):
        row[stream.time] = POISON + rng.randrange(POISON)
    elif chance(rng, 0.03):
        del row[pick(rng, [c for c in row if c != stream.time])]
    elif chance(rng, 0.02):
        row["unknown"] = "ignored"
    return Event(epoch, stream.name, row)


def _value(rng: Random, world: World, type_: str) -> Any:
    if chance(rng, 0.06):
        return None
    index = rng.randrange(len(world.keys))
    match type_:
        case "BIGINT":
            return world.keys[index]
        case "INT":
            return world.keys[index] if abs(world.keys[index]) < 1 << 31 else index
        case "DOUBLE":
            return weighted(rng, ((float(world.keys[index]), 6), (world.keys[index], 1), (index + 0.5, 1), (-0.0, 1)))
        case "STRING":
            return TEXTS[index % len(TEXTS)]
        case "BOOLEAN":
            return index % 2 == 0
        case "TIMESTAMP":
            return world.base + index * 10 * world.tick
    raise ValueError(type_)


def _break(rng: Random, stream: Stream, row: dict[str, Any]) -> None:
    """Make the row a dead letter, in one of the ways a row can be one."""
    column = pick(rng, list(stream.columns))
    match rng.randrange(4):
        case 0:
            row[stream.time] = None
        case 1:
            del row[stream.time]
        case 2:
            row[column] = {"wrong": "type"}
        case 3:
            row["k"] = pick(rng, (True, 1.5, "1", 1 << 63, 1e30))
