"""Lives in which queries may make only a few rows an epoch: the rest is postponed, and every row still comes once.

Plans change, queries come and go, the platform is killed and buckets are damaged while work is postponed.
"""

from __future__ import annotations

import pytest

from tests.lives.engine import Paced, Stored
from tests.lives.executors import Stubborn
from tests.lives.told import live

ROWS = (20, 100, 400)
PARTITIONS = (2, 1, 5)


def how(seed):
    return {"partitions": PARTITIONS[seed % 3], "paced": Paced(ROWS[seed // 3 % 3])}


@pytest.mark.parametrize(
    ("profile", "first", "lives"), [("tiny", 70_000, 120), ("medium", 71_000, 6), ("deep", 72_000, 12)]
)
def test_postponed_rows_come_whatever_happens_in_between(profile, first, lives):
    for seed in range(first, first + lives):
        live(profile, seed, **how(seed))


@pytest.mark.parametrize(("profile", "first", "lives"), [("tiny", 73_000, 60), ("medium", 74_000, 3)])
def test_every_delivery_is_the_same_when_postponed_work_is_done_first(profile, first, lives):
    for seed in range(first, first + lives):
        live(profile, seed, partitions=PARTITIONS[seed % 3], paced=Paced(ROWS[seed % 3], at_once=True))


@pytest.mark.parametrize("seed", range(75_000, 75_012))
def test_with_tasks_that_run_twice_and_in_any_order(seed):
    live("tiny", seed, executor=Stubborn(seed), flags="--stubborn", **how(seed))


@pytest.mark.parametrize("seed", range(76_000, 76_012))
def test_with_a_store_and_without_sharing(seed):
    live(
        "tiny",
        seed,
        stored=Stored(objects=True) if seed % 2 else None,
        sharing=("off", "astream")[seed % 2],
        **how(seed),
    )


@pytest.mark.parametrize("seed", range(77_000, 77_012))
def test_with_kills_around_every_epoch_and_a_lost_disk(seed):
    live("tiny", seed, stored=Stored(killed=True, lost=bool(seed % 2)), **how(seed))


@pytest.mark.long
@pytest.mark.parametrize(("profile", "first", "lives"), [("tiny", 170_000, 2_000), ("medium", 171_000, 100)])
def test_postponed_rows_come_for_longer(profile, first, lives):
    for seed in range(first, first + lives):
        live(profile, seed, **how(seed))
