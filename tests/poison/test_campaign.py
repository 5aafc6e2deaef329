"""Ten seeds of the poison campaign, in which every kind occurs (`make test-poison SEEDS=100` has more), and does a
campaign notice anything?"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter

from tests.poison.__main__ import command, listed
from tests.poison.campaign import HANDS, Outcome, Tally, draw, hand
from tests.poison.catalogue import CATALOGUE
from tests.poison.kinds import SERVED, How, Kind

SEEDS = 10


def test_every_kind_is_in_each_ten_seeds() -> None:
    assert len(CATALOGUE) == len({kind.name for kind in CATALOGUE}) >= 40
    for first in (0, 50):
        dealt = Counter(kind.name for seed in range(first, first + HANDS) for kind in hand(seed))
        assert dealt == Counter(kind.name for kind in CATALOGUE)
        assert max(sum(kind.slow for kind in hand(seed)) for seed in range(first, first + HANDS)) == 1
    assert hand(3) != hand(13), "another ten, another deck"


def test_the_same_seed_is_the_same_life() -> None:
    assert draw(3) == draw(3) != draw(4)


def test_the_catalogue_says_how_each_kind_ends() -> None:
    assert {kind.ends.how for kind in CATALOGUE} == set(How)
    assert all(kind.ends.code and kind.ends.reason for kind in CATALOGUE if kind.ends.how == How.REFUSED)
    assert len(listed().splitlines()) == len(CATALOGUE)


def test_ten_seeds_with_every_kind_harm_nobody_on_spark() -> None:
    """In a process of its own: its Spark has little memory, and what is left in the end is seen."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.poison", "--seeds", str(SEEDS)], capture_output=True, text=True, timeout=1100
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    assert f"{SEEDS} seeds, {len(CATALOGUE)} attacks of {len(CATALOGUE)} of {len(CATALOGUE)} kinds" in done.stdout
    rows = re.search(r"([\d,]+) rows as the oracle has them; nobody was harmed", done.stdout)
    assert rows and int(rows[1].replace(",", "")) > 1_000


def test_a_tally_names_failing_seeds_and_how_each_kind_ended() -> None:
    kind: Kind = CATALOGUE[0]
    tally = Tally()
    tally.add(Outcome(4, (), ((kind.name, kind.ends), ("other", SERVED)), 7))
    tally.add(Outcome(5, ("q1: missing",), ((kind.name, kind.ends),), 1))
    assert tally.failed == [5] and "2 seeds, 3 attacks of 2 of" in str(tally)
    assert re.search(rf"{kind.name} +2  {kind.ends}", tally.table())
    assert command(17, [kind]) == f"python -m tests.poison --seed 17 --kind {kind.name}"
