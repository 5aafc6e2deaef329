"""Lives in which every window counts as a long one: blocks are made and used wherever there are any partials, and all
windows that close together share work (runtime.execution.blocks, runtime.operators.close_time).

Blocks are made of two thirds of a step of the window, which is finer than any real ones, so that they fit into the
short windows of lives.
"""

from __future__ import annotations

import pytest

from optimizer.model import combining
from runtime.engine import due
from runtime.execution import blocks
from runtime.operators import close, close_time
from tests.lives.engine import Stored
from tests.lives.test_lives_local import chunks, live_all


@pytest.fixture
def short_is_long(monkeypatch):
    """Counts how often the ways are gone."""
    counted = {"made": 0, "used": 0, "shared": 0}

    def counting(what, real, when):
        def call(*args):
            counted[what] += when(*args)
            return real(*args)

        return call

    unit = due._unit
    monkeypatch.setattr(combining, "LONG", 1)
    monkeypatch.setattr(blocks, "BASE", 2)
    monkeypatch.setattr(due, "_unit", lambda queries: max(1, unit(queries) // 3))
    monkeypatch.setattr(close_time, "SHARED", 0)
    monkeypatch.setattr(close_time, "FULL", 1 << 30)
    monkeypatch.setattr(close, "combined_ahead", counting("made", close.combined_ahead, lambda *_: 1))
    monkeypatch.setattr(close, "close_time", counting("used", close.close_time, lambda _, __, q, *___: bool(q.cover)))
    monkeypatch.setattr(close_time, "_slid", counting("shared", close_time._slid, lambda *_: 1))
    return counted


@pytest.mark.parametrize(
    ("profile", "seeds"), [*chunks("aligned", 305_500, 80, 40), *chunks("folding", 307_000, 80, 40)]
)
def test_engine_and_oracle_agree(profile, seeds, short_is_long):
    live_all(profile, seeds)
    assert min(short_is_long.values()) > 3


@pytest.mark.parametrize("how", [{"sharing": "off"}, {"stored": Stored(objects=True)}])
def test_other_ways_to_run(how, short_is_long):
    live_all("aligned", range(308_000, 308_015), **how)
    assert min(short_is_long.values()) > 0
