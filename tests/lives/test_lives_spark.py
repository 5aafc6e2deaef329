"""The same lives on real Spark: stages as jobs, task processes that share nothing but files."""

from __future__ import annotations

import pytest

from tests.lives.engine import Paced, Stored
from tests.lives.told import live

pytestmark = pytest.mark.spark

LIVES = (
    *(("tiny", seed) for seed in range(700, 708)),
    *(("deep", seed) for seed in range(730, 733)),
    *(("medium", seed) for seed in range(740, 742)),
    *(("folding", seed) for seed in range(750, 755)),
    *(("crowded", seed) for seed in range(760, 761)),
)


@pytest.mark.parametrize(("profile", "seed"), LIVES)
def test_engine_on_spark_and_oracle_agree(profile, seed, spark):
    live(profile, seed, spark, partitions=2 + seed % 2, flags="--spark")


STORED = (
    ("tiny", 760),
    ("tiny", 761),
    ("tiny", 762),
    ("deep", 771),
    ("medium", 780),
    ("folding", 781),
    ("folding", 782),
)


@pytest.mark.parametrize(("profile", "seed"), STORED)
def test_engine_on_spark_with_a_store_and_oracle_agree(profile, seed, spark):
    live(profile, seed, spark, partitions=2 + seed % 2, flags="--spark", stored=Stored(objects=True))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("profile", ["tiny", "deep", "medium", "wide", "folding", "crowded"])
def test_engine_on_spark_and_oracle_agree_for_longer(profile, seed, spark):
    live(profile, 9_000 + seed, spark, partitions=1 + seed % 4, flags="--spark")


@pytest.mark.parametrize(("profile", "seed"), [("tiny", 790), ("tiny", 791), ("deep", 792), ("medium", 793)])
def test_engine_on_spark_and_oracle_agree_when_work_is_postponed(profile, seed, spark):
    live(profile, seed, spark, flags="--spark", paced=Paced(400), stored=Stored(objects=True) if seed % 2 else None)
