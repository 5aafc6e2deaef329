"""Lives of queries that fold, of all windows and of rows of one stream, through the engine and against the oracle.

As test_lives_local, with the profile `folding`: aggregates over one stream and over joins, GROUP BY, HAVING, late
tuples and the revisions they make. `python -m tests.lives.reproduce folding SEED` plays one of them again. The profile
`aligned` is the same without sessions, count and punctuated windows; in `crowded` lives many queries share few folds.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings

from runtime.engine import close_stage
from runtime.kernels import grouping, hashing
from runtime.operators import alike, by_query
from tests.lives import lives, make_life, with_extra_query
from tests.lives.engine import Stored, differences
from tests.lives.executors import Stubborn
from tests.lives.reproduce import WEAK_MASK
from tests.lives.test_lives_local import PARTITIONS, chunks, live_all
from tests.lives.test_lives_stored import WAYS
from tests.lives.test_revisions import always_late
from tests.lives.told import live


@pytest.mark.parametrize(
    ("profile", "seeds"),
    [
        *chunks("folding", 300_000, 350, 25),
        *chunks("aligned", 305_000, 100, 25),
        *chunks("crowded", 308_000, 100, 10),
    ],
)
def test_engine_and_oracle_agree(profile, seeds):
    live_all(profile, seeds)


@pytest.mark.long
@pytest.mark.parametrize(
    ("profile", "seeds"), [*chunks("folding", 310_000, 5_000, 250), *chunks("crowded", 316_000, 1_000, 100)]
)
def test_engine_and_oracle_agree_for_longer(profile, seeds):
    live_all(profile, seeds)


@settings(max_examples=20)
@given(lives("folding"))
def test_engine_and_oracle_agree_on_what_hypothesis_finds(life):
    assert differences(life) == []


@pytest.mark.long
@settings(max_examples=500)
@given(lives("folding"))
def test_hypothesis_looks_for_longer(life):
    assert differences(life) == []


@pytest.mark.parametrize("seeds", [range(a, a + 10) for a in range(320_000, 320_030, 10)])
def test_every_window_is_closed_and_every_tuple_accepted(seeds):
    """So whatever an epoch brings is a revision, or a first row that comes late."""
    for seed in seeds:
        life = always_late(make_life(Random(seed), "folding"))
        assert differences(life, partitions=PARTITIONS[seed % 3]) == [], f"folding {seed}"


@pytest.mark.parametrize("partitions", [1, 2, 5])
def test_the_number_of_partitions_changes_no_row(partitions):
    for seed in range(330_000, 330_010):
        live("folding", seed, partitions=partitions)


@pytest.mark.parametrize("stored", [None, Stored(objects=True)])
def test_tasks_may_run_twice_in_any_order(stored):
    for seed in range(340_000, 340_020):
        live("folding", seed, Stubborn(seed), PARTITIONS[seed % 3], flags="--stubborn", stored=stored)


@pytest.mark.parametrize(
    "how", [{}, {"sharing": "off"}, {"stored": Stored(objects=True)}, {"stored": Stored(killed=True, lost=False)}]
)
def test_damaged_files_change_no_row(how):
    live_all("folding", range(350_000, 350_010), rotting=0, **how)


@pytest.mark.parametrize("seeds", [range(a, a + 8) for a in (360_000, 360_008)])
def test_killed_around_every_epoch_in_two_tiers(seeds):
    for seed in seeds:
        live("folding", seed, partitions=PARTITIONS[seed % 3], stored=WAYS[seed % 4])


@pytest.mark.parametrize("carry_from", [1, 2, 3])
def test_when_partials_are_carried_changes_no_row(monkeypatch, carry_from):
    """Lives have few epochs, so without this hardly one of them gets there."""
    monkeypatch.setattr(close_stage, "CARRY_FROM", carry_from)
    first = 375_000 + 100 * carry_from
    flags = f"--carry-from {carry_from}"
    live_all("folding", range(first, first + 30), flags=flags)
    live_all("crowded", range(first + 50, first + 60), flags=flags)


@pytest.mark.long
@pytest.mark.parametrize("carry_from", [1, 2, 3, 5])
def test_when_partials_are_carried_changes_no_row_for_longer(monkeypatch, carry_from):
    monkeypatch.setattr(close_stage, "CARRY_FROM", carry_from)
    first = 376_000 + 500 * carry_from
    live_all("folding", range(first, first + 400), flags=f"--carry-from {carry_from}")


@pytest.mark.parametrize("carry_from", [1, 2])
def test_carried_and_always_late(monkeypatch, carry_from):
    monkeypatch.setattr(close_stage, "CARRY_FROM", carry_from)
    for seed in range(325_000, 325_010):
        life = always_late(make_life(Random(seed), "folding"))
        assert differences(life, partitions=PARTITIONS[seed % 3]) == [], f"folding {seed}"


def test_hash_collisions_never_mix_groups(monkeypatch):
    """Three bits of hash: nearly every string and composite key collides with another one."""
    monkeypatch.setattr(hashing, "CANDIDATE_MASK", WEAK_MASK)
    live_all("folding", range(370_000, 370_040), flags="--weak-hash")


@pytest.mark.parametrize("sharing", ["off", "astream"])
def test_the_modes_to_measure_against_deliver_the_same_rows(sharing):
    live_all("folding", range(380_000, 380_020), sharing=sharing)


@pytest.mark.parametrize("seed", range(390_000, 390_010))
def test_an_extra_query_changes_no_row_of_any_other(seed):
    """The oracle answers each query alone, so the extra ones cannot have changed what it says about the others."""
    life = make_life(Random(seed), "folding")
    more = with_extra_query(with_extra_query(life, Random(seed)), Random(seed + 1), folding=True)
    assert differences(more) == []


@pytest.mark.parametrize("dealt", [1 << 24, 5])
def test_folding_per_query_changes_no_row(dealt, monkeypatch):
    """Every bucket, whatever was counted; and in pieces of a few entries."""
    monkeypatch.setattr(by_query, "FEW", 1)
    monkeypatch.setattr(by_query, "GAIN", 0)
    monkeypatch.setattr(by_query, "DEALT", dealt)
    live_all("crowded", range(395_000, 395_020))
    live_all("aligned", range(395_100, 395_120))


def test_combining_what_is_alike_to_some_queries_changes_no_row(monkeypatch):
    """Whether or not it is worth it."""
    monkeypatch.setattr(alike, "GAIN", 0)
    live_all("crowded", range(396_000, 396_030))
    live_all("aligned", range(396_100, 396_120))


def test_dealing_out_by_hash_changes_no_row(monkeypatch):
    """Small lives have few groups, whose tuples are counted instead."""
    monkeypatch.setattr(grouping, "SPARSE", 0)
    live_all("crowded", range(397_000, 397_020))
    live_all("folding", range(397_100, 397_120))


COLUMNS = {"ts": "TIMESTAMP", "k": "BIGINT", "i": "INT"}
STREAM = {"stream": "A", "schema": COLUMNS, "time": "ts", "watermark_delay_ms": 20, "allowed_lateness_ms": 100}


def a(ts, i):
    return {"event": "A", "row": {"ts": ts, "k": i % 3, "i": i}}


def query(id, text):
    return {"create": id, "sql": f"SELECT {text}"}


@pytest.mark.parametrize(
    "life",
    [
        pytest.param(
            [
                query("q", "k, SUM(i) AS s FROM A WHERE i < 100 GROUP BY k WINDOW PUNCTUATED BY (i >= 100)"),
                *(a(39, 2), a(83, 1), {"epoch": True}),  # the watermark is 63 from here on
                *(a(47, 102), a(75, 3), {"epoch": True}),  # the edge is late, the tuple that passes is not
            ],
            id="the only thing of an epoch behind the watermark is a punctuation",
        ),
        pytest.param(
            [
                query("all", "LAST(i) AS l, FIRST(i) AS f FROM A WINDOW TUMBLING (SIZE 10 MS)"),
                query(
                    "odd", "LAST(i) AS l, FIRST(i) AS f FROM A WHERE i % 2 = 1 WINDOW TUMBLING (SIZE 10 MILLISECONDS)"
                ),
                query("few", "LAST(i) AS l, FIRST(i) AS f FROM A WHERE i > 5 WINDOW TUMBLING (SIZE 10 MS)"),
                *(a(5, i) for i in (4, 9, 2, 8, 7, 6, 3)),
                *({"epoch": True}, a(5, 1), a(5, 11), a(5, 12), {"epoch": True}, a(30, 1)),
            ],
            id="LAST among tuples of one time that different queries want",
        ),
    ],
)
def test_lives_that_once_differed(life):
    """Made small; the seeds that found them draw other lives today."""
    assert differences([STREAM, *life]) == []
