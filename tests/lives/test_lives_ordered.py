"""Large buckets are laid out in the order of their first index; lives are small, so here every bucket is."""

from __future__ import annotations

import pytest

from runtime.operators import source
from tests.lives.told import live


@pytest.mark.parametrize(("profile", "seeds"), [("tiny", range(40)), ("medium", range(4)), ("deep", range(8))])
def test_the_order_of_rows_in_a_bucket_does_not_matter(
    profile: str, seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "ORDERED_FROM", 1)
    for seed in seeds:
        live(profile, 970_000 + seed)
