"""The poison campaign: a seed is a random life together with the hostile kinds that occur in it.

What a seed decides: streams, tuples, good queries and when they come and go, what is done to the plan, which kinds
attack and before which step. Kinds are dealt out like cards: ten seeds in a row (from a multiple of ten) share one
shuffled deck, so each ten have every kind exactly once; the slow ones are dealt first, to different seeds. What must
come out does not depend on any of it: the good queries' rows are the oracle's, each attack ends as its kind says, the
platform serves all the time, and nothing is left when it has been stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from runtime.spark.executor import SparkExecutor
from tests.lives import PROFILES, make_life
from tests.lives.streams import AHEAD
from tests.poison.catalogue import CATALOGUE
from tests.poison.kinds import Ending, Kind
from tests.poison.life import Life, Planned
from tests.poison.service import serving

EVENTFUL = replace(
    PROFILES["tiny"], events=(60, 90), queries=(4, 6), deleted=0.35, restarted=0.0, refused=0.0, idle=0.0
)
FUTURE = 1 << 50
HANDS = 10
"""So many seeds share a deck."""


@dataclass(frozen=True, slots=True)
class Outcome:
    seed: int
    differences: tuple[str, ...]
    endings: tuple[tuple[str, Ending], ...]
    rows: int


def hand(seed: int) -> tuple[Kind, ...]:
    """The kinds that occur in the life of this seed."""
    rng = Random(f"poison-deck-{seed // HANDS}")
    deck = rng.sample(CATALOGUE, len(CATALOGUE))
    deck.sort(key=lambda kind: not kind.slow)
    return tuple(deck[seed % HANDS :: HANDS])


def draw(seed: int, kinds: Sequence[Kind] | None = None) -> tuple[list[dict[str, Any]], list[Planned]]:
    """The lines of the life, and the attacks in it."""
    rng = Random(f"poison-{seed}")
    # Numbers of COUNT(*) that are corrected by late tuples depend on where epochs end, which no client decides.
    late = rng.random() < 0.5
    profile = replace(EVENTFUL, counted=0.0 if late else 0.25)
    lines = make_life(rng, profile)
    if not late:
        lines = [line | {"allowed_lateness_ms": 0} if "stream" in line else line for line in lines]
    if any(FUTURE < time < AHEAD for time in _times(lines)):  # such a life needs streams that allow any time
        lines = [{"max_ahead_ms": 0} | line if "stream" in line else line for line in lines]
    steps = sum("epoch" in line for line in lines)
    return lines, [Planned(kind, rng.randint(0, steps - 1)) for kind in kinds or hand(seed)]


def _times(lines: Sequence[Mapping[str, Any]]) -> Iterator[int]:
    """Event times of the tuples."""
    columns = {line["stream"]: line["time"] for line in lines if "stream" in line}
    times = (line["row"].get(columns[line["event"]]) for line in lines if "event" in line)
    return (time for time in times if type(time) is int)


def run(spark: SparkExecutor, seed: int, kinds: Sequence[Kind] | None = None) -> Outcome:
    """One seed of the campaign; `kinds`: with these instead of those it was dealt."""
    lines, attacks = draw(seed, kinds)
    life: Life | None = None
    wrong: list[str] = []
    try:
        with serving(spark, max((a.kind.stage_timeout for a in attacks), default=0.0)) as service:
            life = Life(service, lines, attacks, f"poison-{seed}")
            life.live()
    except Exception as failure:
        wrong.append(f"{type(failure).__name__}: {failure}")
    if life is None:
        return Outcome(seed, tuple(wrong), (), 0)
    endings = tuple((kind.name, ending) for kind, ending in life.endings.items())
    return Outcome(seed, (*life.differences, *wrong), endings, life.rows)


@dataclass(slots=True)
class Tally:
    """What a campaign has been through so far."""

    seeds: int = 0
    rows: int = 0
    endings: Counter[tuple[str, Ending]] = field(default_factory=Counter)
    failed: list[int] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.rows += outcome.rows
        self.endings.update(outcome.endings)
        if outcome.differences:
            self.failed.append(outcome.seed)

    def __str__(self) -> str:
        kinds = {name for name, _ in self.endings}
        return (
            f"{self.seeds} seeds, {self.endings.total()} attacks of {len(kinds)} of {len(CATALOGUE)} kinds, "
            f"{self.rows:,} rows as the oracle has them"
        )

    def table(self) -> str:
        """How often each kind occurred, and how it ended."""
        width = max((len(name) for name, _ in self.endings), default=0)
        return "\n".join(
            f"  {name:<{width}}  {count:>4}  {ending}"
            for (name, ending), count in sorted(self.endings.items(), key=str)
        )
