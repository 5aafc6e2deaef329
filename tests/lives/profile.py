"""How big and how eventful a random life is."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Profile:
    """Ranges are inclusive. `ways` weighs the number of sources; a chance is per epoch unless said.

    `rows_per_query` and `rows` bound the rows a query and a whole life may have (see bound.py).
    """

    name: str
    streams: tuple[int, int]
    events: tuple[int, int]
    epochs: tuple[int, int]
    queries: tuple[int, int]
    ways: tuple[tuple[int, float], ...]
    keys: tuple[int, int]
    rows_per_query: int
    rows: int = 18_000
    one_key: float = 0.0
    """Chance, per query, to join all its sources on the same columns, so that its joins run in one stage."""
    selective: float = 0.35
    """Chance, per source of a query, to have a condition of its own."""
    counted: float = 0.2
    """Chance, per query, to be a COUNT(*)."""
    factorized: float = 0.2
    """Chance, per other query, to be EMIT FACTORIZED."""
    folded: float = 0.0
    """Chance, per query, to be one of folding.py: aggregates, windows of all kinds, one stream."""
    by_data: float = 1.0
    """Weight of sessions, count and punctuated windows among them."""
    alike: float = 0.0
    """Chance, per aggregate, to be grouped as most others are, so that folds have many users."""
    one_group: bool = False
    """All queries are forced into one group, so that its query sets need more than one word."""
    early: float = 0.65
    """Chance, per query, to be there from the first epoch."""
    deleted: float = 0.25
    """Chance, per query, to be deleted some day."""
    delay: tuple[int, int, int] = (3, 3, 3)
    """Weights of streams whose watermarks follow at once, soon, and an epoch later."""
    lateness: tuple[int, int, int] = (4, 2, 1)
    """Weights of streams that accept nothing late, a little, and all of the last two epochs."""
    jitter: tuple[int, int, int] = (2, 4, 3)
    """Weights of lives in which tuples come in order, nearly so, and an epoch too late or too early."""
    forced: float = 0.35
    scaled: float = 0.25
    optimized: float = 0.15
    restarted: float = 0.06
    refused: float = 0.05
    watermarked: float = 0.12
    idle: float = 0.08
    """Chance of an additional epoch without tuples."""


TINY = Profile(
    name="tiny",
    streams=(2, 3),
    events=(24, 34),
    epochs=(3, 3),
    queries=(3, 5),
    ways=((2, 6), (3, 3), (4, 1)),
    keys=(2, 4),
    rows_per_query=1_500,
)
MEDIUM = Profile(
    name="medium",
    streams=(2, 4),
    events=(120, 170),
    epochs=(5, 7),
    queries=(8, 12),
    ways=((2, 5), (3, 3), (4, 1.5), (5, 0.5)),
    keys=(4, 9),
    rows_per_query=2_500,
)
WIDE = Profile(
    name="wide",
    streams=(2, 3),
    events=(50, 70),
    epochs=(4, 5),
    queries=(80, 96),
    ways=((2, 8), (3, 1)),
    keys=(4, 8),
    rows_per_query=400,
    one_group=True,
    early=0.85,
    deleted=0.3,
)
DEEP = Profile(
    name="deep",
    streams=(2, 4),
    events=(24, 36),
    epochs=(3, 4),
    queries=(2, 4),
    ways=((5, 4), (6, 3), (7, 2), (8, 1)),
    keys=(2, 3),
    rows_per_query=4_000,
    selective=0.1,
    early=0.9,
    deleted=0.15,
)
FOLDING = Profile(
    name="folding",
    streams=(2, 3),
    events=(60, 110),
    epochs=(4, 8),
    queries=(4, 7),
    ways=((2, 6), (3, 2)),
    keys=(2, 4),
    rows_per_query=1_500,
    folded=0.9,
    delay=(6, 2, 1),
    lateness=(1, 1, 5),
    jitter=(1, 3, 6),
    watermarked=0.2,
)
ALIGNED = replace(FOLDING, name="aligned", by_data=0.0)
CROWDED = replace(
    FOLDING, name="crowded", streams=(2, 2), events=(50, 80), epochs=(3, 5), queries=(9, 14), alike=0.9, selective=0.45
)
CHAINS = Profile(
    name="chains",
    streams=(2, 4),
    events=(36, 60),
    epochs=(4, 6),
    queries=(3, 6),
    ways=((2, 1), (3, 4), (4, 4), (5, 1)),
    keys=(2, 5),
    rows_per_query=2_500,
    one_key=0.75,
    selective=0.25,
    forced=0.5,
    scaled=0.5,
    optimized=0.25,
    restarted=0.15,
)
PROFILES = {p.name: p for p in (TINY, MEDIUM, WIDE, DEEP, FOLDING, ALIGNED, CROWDED, CHAINS)}
