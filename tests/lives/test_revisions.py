"""Lives in which every window is closed from the first epoch on, but every tuple is still accepted late.

So each COUNT(*) delivers a window again whenever an epoch adds to it: many revisions, which ordinary lives rarely have.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.lives import make_life
from tests.lives.engine import differences
from tests.oracle import run_oracle

FAR = 1 << 55


def always_late(life):
    """Watermarks far in the future as soon as a stream is declared, and lateness enough to accept everything."""
    told = []
    for line in life:
        if "schema" in line and not line.get("expect_error"):
            told.append({**line, "allowed_lateness_ms": 2 * FAR})
            told.append({"watermark": line["stream"], "ts": FAR})
        else:
            told.append(line)
    return told


def revisions(life):
    queries = run_oracle(life).queries.values()
    return sum(dict(r[2])["revision"][1] > 0 for q in queries if q.folds for r in q.rows)


@pytest.mark.parametrize(("profile", "seeds"), [("tiny", range(90_000, 90_060)), ("medium", range(90_100, 90_110))])
def test_every_revision_comes_once_and_in_its_epoch(profile, seeds):
    lives = [always_late(make_life(Random(seed), profile)) for seed in seeds]
    assert sum(map(revisions, lives)) > 20
    for seed, life in zip(seeds, lives, strict=True):
        assert differences(life, partitions=1 + seed % 3) == [], f"{profile} {seed}"
