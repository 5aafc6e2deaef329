"""Small draws from a `random.Random`, shaped so that hypothesis can shrink them.

Given a Random by hypothesis (`st.randoms`), its shrinker moves what the Random returns towards 0, the first
choice and the lower end. So everywhere the plain variant comes first, and a chance is taken at the *upper*
end of the unit interval: the shrunk life is the one in which nothing special happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")


def chance(rng: Random, probability: float) -> bool:
    return rng.random() >= 1.0 - probability


def pick(rng: Random, options: Sequence[T]) -> T:
    return options[rng.randrange(len(options))]


def weighted(rng: Random, options: Sequence[tuple[T, float]]) -> T:
    """An option with probability proportional to its weight."""
    at = rng.random() * sum(weight for _, weight in options)
    for option, weight in options:
        at -= weight
        if at < 0:
            return option
    return options[-1][0]


def subset(rng: Random, options: Sequence[T], probability: float) -> list[T]:
    return [o for o in options if chance(rng, probability)]
