"""Lives through the real engine without Spark, row for row against the oracle.

The same kernels, operators, files, logs and recovery as in production; only Spark's scheduling is left out
(test_lives_spark puts it back). A failure names its seed and the command that plays that life again.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings

from runtime.kernels import hashing
from tests.lives import PROFILES, lives, make_life, with_extra_query
from tests.lives.engine import Stored, differences, play
from tests.lives.executors import Stubborn
from tests.lives.reproduce import WEAK_MASK
from tests.lives.told import live
from tests.oracle import freeze, rows_by_query

PARTITIONS = (2, 1, 5)


def chunks(profile, first, lives_in_all, size):
    """(profile, seeds) with ids like tiny-1000..1024."""
    return [
        pytest.param(profile, range(a, a + size), id=f"{profile}-{a}..{a + size - 1}")
        for a in range(first, first + lives_in_all, size)
    ]


def live_all(profile, seeds, rotting=None, **how):
    for seed in seeds:
        live(profile, seed, partitions=PARTITIONS[seed % 3], rotting=None if rotting is None else rotting + seed, **how)


@pytest.mark.parametrize(
    ("profile", "seeds"),
    [
        *chunks("tiny", 10_000, 400, 50),
        *chunks("medium", 20_000, 30, 5),
        *chunks("deep", 30_000, 50, 25),
        *chunks("wide", 40_000, 3, 1),
    ],
)
def test_engine_and_oracle_agree(profile, seeds):
    live_all(profile, seeds)


@pytest.mark.long
@pytest.mark.parametrize(
    ("profile", "seeds"),
    [
        *chunks("tiny", 110_000, 8_000, 250),
        *chunks("medium", 120_000, 400, 25),
        *chunks("deep", 130_000, 1_000, 100),
        *chunks("wide", 140_000, 40, 10),
    ],
)
def test_engine_and_oracle_agree_for_longer(profile, seeds):
    live_all(profile, seeds)


# seeds that found something, each with how it was played
FOUND = [
    pytest.param("tiny", 77_002, {"partitions": 5}, id="a text column that older buckets of the join do not have"),
]


@pytest.mark.parametrize(("profile", "seed", "how"), FOUND)
def test_what_once_went_wrong(profile, seed, how):
    live(profile, seed, **how)


@settings(max_examples=30)
@given(lives())
def test_engine_and_oracle_agree_on_what_hypothesis_finds(life):
    assert differences(life) == []


@pytest.mark.long
@settings(max_examples=1_000)
@given(lives())
def test_hypothesis_looks_for_longer(life):
    assert differences(life) == []


@pytest.mark.parametrize(("profile", "seeds"), [*chunks("tiny", 50_000, 40, 40), *chunks("deep", 60_000, 10, 10)])
def test_tasks_may_run_twice_and_in_any_order(profile, seeds):
    for seed in seeds:
        live(profile, seed, Stubborn(seed), PARTITIONS[seed % 3], flags="--stubborn")


@pytest.mark.parametrize(("profile", "seeds"), [*chunks("tiny", 52_000, 60, 30), *chunks("deep", 62_000, 30, 30)])
def test_tasks_may_share_no_files(profile, seeds):
    for seed in seeds:
        live(profile, seed, Stubborn(seed), PARTITIONS[seed % 3], flags="--stubborn", stored=Stored(objects=True))


ROTTING = [
    pytest.param("tiny", (19, 250), {}, id="damage-during-a-repair"),
    pytest.param("medium", (22,), {}, id="damage-of-two-epochs"),
    pytest.param("tiny", (3051, 3067), {"stored": Stored(killed=True, lost=False)}, id="killed-around-epochs"),
    pytest.param("tiny", range(53_000, 53_025), {}, id="tiny"),
    pytest.param("deep", range(63_000, 63_006), {}, id="deep"),
    pytest.param("tiny", range(53_100, 53_108), {"sharing": "off"}, id="tiny-off"),
    pytest.param("tiny", range(53_200, 53_208), {"stored": Stored(objects=True)}, id="tiny-objects"),
    pytest.param("tiny", range(153_000, 155_000), {}, id="tiny-long", marks=pytest.mark.long),
    pytest.param("deep", range(163_000, 163_200), {}, id="deep-long", marks=pytest.mark.long),
    pytest.param("medium", range(173_000, 173_050), {}, id="medium-long", marks=pytest.mark.long),
    pytest.param("deep", range(164_000, 164_100), {"sharing": "off"}, id="deep-off-long", marks=pytest.mark.long),
]


@pytest.mark.parametrize(("profile", "seeds", "how"), ROTTING)
def test_damaged_files_change_no_row(profile, seeds, how):
    """Every now and then a bucket file is changed, cut or removed between two stages (runtime.engine.repair)."""
    live_all(profile, seeds, rotting=0, **how)


@pytest.mark.parametrize(("profile", "seeds"), [*chunks("tiny", 70_000, 80, 40), *chunks("deep", 80_000, 20, 20)])
def test_hash_collisions_never_join_different_keys(profile, seeds, monkeypatch):
    """Three bits of hash: nearly every string and composite key collides with another one."""
    monkeypatch.setattr(hashing, "CANDIDATE_MASK", WEAK_MASK)
    live_all(profile, seeds, flags="--weak-hash")


@pytest.mark.parametrize("sharing", ["off", "astream"])
@pytest.mark.parametrize(
    ("profile", "seeds"),
    [*chunks("tiny", 90_000, 40, 40), *chunks("deep", 95_000, 10, 10), *chunks("wide", 96_000, 1, 1)],
)
def test_the_modes_to_measure_against_deliver_the_same_rows(profile, seeds, sharing):
    live_all(profile, seeds, sharing=sharing)


def delivered(life, partitions=2):
    """What each query got: (rows as a bag, what the platform says about the query)."""
    results, queries, report = play(life, partitions=partitions)
    rows = {
        id: Counter(freeze(r["window_start"], r["window_end"], r["row"]) for r in lines)
        for id, lines in rows_by_query(results).items()
    }
    counts = {counter: report[counter] for counter in ("tuples", "late_dropped", "dead_letter")}
    return {id: (rows.get(id, Counter()), info) for id, info in queries.items()}, counts


@pytest.mark.parametrize("seed", range(5_000, 5_012))
def test_an_extra_query_changes_no_row_of_any_other(seed):
    life = make_life(Random(seed), "tiny" if seed % 4 else "medium")
    more = with_extra_query(with_extra_query(life, Random(seed)), Random(seed + 1))
    before, counts = delivered(life)
    after, counts_after = delivered(more)
    assert {id: said for id, said in after.items() if not id.startswith("extra")} == before
    assert counts_after == counts


@pytest.mark.parametrize("seed", range(6_000, 6_010))
def test_the_number_of_partitions_changes_no_row(seed):
    life = make_life(Random(seed), list(PROFILES)[seed % 2])
    one, *others = (delivered(life, partitions) for partitions in (1, 2, 5))
    assert all(other == one for other in others)
