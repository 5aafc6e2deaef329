"""Lives in a store: around every epoch the process is killed, and the machine is lost, kept, or too small."""

from __future__ import annotations

import itertools
from random import Random

import pytest

from tests.lives import make_life
from tests.lives.engine import Stored, differences
from tests.lives.executors import Recycled, Stubborn
from tests.lives.told import live

WAYS = (
    Stored(killed=True),
    Stored(objects=True, killed=True, cache_bytes=1),
    Stored(objects=True, killed=True, lost=False, cache_bytes=6000),
    Stored(objects=True, killed=True, fails=True),
)


def play_all(profile, seeds):
    for seed in seeds:
        live(profile, seed, partitions=1 + seed % 3, stored=WAYS[seed % 4])


@pytest.mark.parametrize(
    ("profile", "seeds"),
    [("tiny", range(200_000, 200_024)), ("deep", range(210_000, 210_006)), ("medium", range(220_000, 220_001))],
)
def test_engine_and_oracle_agree_whatever_happens_to_the_machine(profile, seeds):
    play_all(profile, seeds)


@pytest.mark.long
@pytest.mark.parametrize(
    ("profile", "seeds"),
    [
        *(("tiny", range(a, a + 50)) for a in range(230_000, 230_500, 50)),
        *(("deep", range(a, a + 20)) for a in range(240_000, 240_100, 20)),
        *(("medium", range(a, a + 5)) for a in range(250_000, 250_030, 5)),
    ],
)
def test_engine_and_oracle_agree_whatever_happens_to_the_machine_for_longer(profile, seeds):
    play_all(profile, seeds)


@pytest.mark.parametrize("seed", range(260_000, 260_004))
def test_with_tasks_that_run_twice(seed):
    live("tiny", seed, Stubborn(seed), 2, flags="--stubborn", stored=WAYS[seed % 4])


def test_workers_and_executors_are_replaced(tmp_path):
    again = 0
    for seed in range(260_010, 260_018):
        executor = Recycled(tmp_path / str(seed), seed)
        live("tiny", seed, executor, 3, flags="--recycled", stored=WAYS[seed % 4])
        names = [name for name, _ in executor.jobs]
        again += sum(a == b for a, b in itertools.pairwise(names))
    assert again, "nobody had to ask again"


@pytest.mark.parametrize("seed", range(260_004, 260_010))
def test_epochs_fail_and_are_run_again(seed):
    live("tiny", seed, partitions=2, stored=Stored(fails=True))


@pytest.mark.spark
@pytest.mark.parametrize("seed", [700, 702])
def test_on_spark_workers_fetch_what_they_need(seed, spark):
    live("tiny", seed, spark, flags="--spark", stored=Stored(objects=seed == 700, killed=True))


def test_a_life_is_disturbed_after_every_epoch():
    life = make_life(Random(1), "tiny")
    more = Stored(killed=True).disturbed(life)
    assert sum("restart" in line for line in more) >= 2 * sum("epoch" in line for line in life)
    assert [line for line in more if "restart" not in line] == [line for line in life if "restart" not in line]
    assert differences(life, stored=Stored(killed=True)) == []
