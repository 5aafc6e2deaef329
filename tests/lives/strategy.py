"""Random lives for hypothesis.

A life is drawn as a seed and, for every piece of it that can be taken away, whether it stays. The seed gives
lives as rich as those of `make_life` (drawing every number separately, hypothesis prefers empty ones), and
shrinking takes pieces away: a failing life ends as the few tuples and queries that matter.
"""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import strategies as st

from tests.lives.life import make_life
from tests.lives.shrink import removals, without

ONE_IN = 40
"""How many pieces are missing from the start; 0 is what hypothesis shrinks towards, so 0 means gone."""


@st.composite
def lives(draw: st.DrawFn, profile: str = "tiny") -> list[dict[str, Any]]:
    life = make_life(Random(draw(st.integers(0, 2**32 - 1))), profile)
    pieces = removals(life)
    stays = draw(st.lists(st.integers(0, ONE_IN - 1), min_size=len(pieces), max_size=len(pieces)))
    return without(life, [piece for piece, number in zip(pieces, stays, strict=True) if number == 0])
