"""Lives in which most queries join three or four sources on one key: their joins run in one stage.

Orders are forced and taken back, partitions split and united, so that chains are taken apart and put together while
windows are open; the platform is killed, work is postponed, buckets are damaged, and state lies in a store.
"""

from __future__ import annotations

import pytest

from runtime.kernels import hashing
from tests.lives.engine import Paced, Stored
from tests.lives.executors import Stubborn
from tests.lives.reproduce import WEAK_MASK
from tests.lives.told import live

PARTITIONS = (2, 1, 3)


def live_all(seeds, **how):
    for seed in seeds:
        live("chains", seed, partitions=PARTITIONS[seed % 3], **how)


def in_a_store(seed):
    return Stored(objects=bool(seed % 2), killed=True, cache_bytes=6000 * (seed % 3))


def test_engine_and_oracle_agree():
    live_all(range(310_000, 310_040))


def test_with_work_that_is_postponed():
    for seed in range(311_000, 311_030):
        live_all([seed], paced=Paced((20, 100)[seed % 2], at_once=seed % 5 == 0))


def test_with_tasks_that_run_twice_and_in_any_order():
    for seed in range(312_000, 312_008):
        live_all([seed], executor=Stubborn(seed), flags="--stubborn", paced=Paced(100) if seed % 2 else None)


def test_with_damaged_buckets():
    for seed in range(313_000, 313_012):
        live_all([seed], rotting=seed)


def test_in_a_store():
    for seed in range(314_000, 314_008):
        live_all([seed], stored=in_a_store(seed), paced=Paced(100) if seed % 4 == 0 else None)


def test_hash_collisions_never_join_different_keys(monkeypatch):
    monkeypatch.setattr(hashing, "CANDIDATE_MASK", WEAK_MASK)
    live_all(range(315_000, 315_012), flags="--weak-hash")


@pytest.mark.long
def test_for_longer():
    live_all(range(320_000, 321_000))
    for seed in range(321_000, 321_600):
        live_all([seed], paced=Paced((20, 100)[seed % 2], at_once=seed % 5 == 0))
    for seed in range(322_000, 322_100):
        live_all([seed], rotting=seed)
    for seed in range(323_000, 323_060):
        live_all([seed], stored=in_a_store(seed), paced=Paced(100) if seed % 4 == 0 else None)
