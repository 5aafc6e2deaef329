"""A query that explodes for a while, through the running platform: what everybody notices, and that it passes."""

from __future__ import annotations

from pathlib import Path

from ajoin.platform.platform import Pace, only
from runtime.api import Optimize
from runtime.control.budgets import Pacing
from runtime.engine.config import EngineConfig
from tests.ajoin.world import WAIT, World, running

COLUMNS = {"ts": "TIMESTAMP", "k": "BIGINT", "h": "BIGINT"}
GOOD = "SELECT A.ts AS a, B.ts AS b FROM A JOIN B ON A.k = B.k WINDOW TUMBLING (SIZE 1 SECOND)"
HEAVY = GOOD.replace("A.k = B.k", "A.h = B.h")
TUPLES = 80
ROWS = 100
"""A burst is 6,400 pairs for HEAVY: 64 epochs, and two seconds at this pace. Time enough to see it behind."""
STEADY = Pace(batch_interval=0.01, epoch_interval=0.03, idle_interval=0.03)


def burst(world: World, number: int) -> None:
    rows = [{"ts": 1000 * number + i, "k": i, "h": 7} for i in range(TUPLES)]
    world.feed({"A": rows, "B": rows})


def test_the_others_go_on_it_is_put_apart_and_catches_up(tmp_path: Path) -> None:
    with running(tmp_path / "s", engine=EngineConfig(pacing=Pacing(ROWS, max_behind=10_000)), pace=STEADY) as world:
        client, platform = world.client, world.platform
        for name in "AB":
            client.create_stream(name, columns=COLUMNS, time="ts", source="push")
        client.create_queries({"good1": GOOD, "good2": GOOD, "heavy": HEAVY})
        for number in range(3):
            burst(world, number)
        behind = client.query("heavy")
        assert behind.epochs_behind >= 3 and behind.rows < 3 * TUPLES * TUPLES
        assert client.query("good1").rows == 3 * TUPLES, "they have everything, in the epoch of its tuples"
        only(platform.control(Optimize("incremental", force=False)).result(WAIT))  # what the periodic optimizer asks
        assert "apart: heavy" in client.explain("heavy")
        assert client.query("good1").group == client.query("good2").group != client.query("heavy").group

        burst(world, 3)
        assert platform.wait_until(lambda: client.query("heavy").epochs_behind == 0, WAIT)
        heavy = client.query("heavy")
        assert heavy.rows == 4 * TUPLES * TUPLES and heavy.lag_ms == 0
        assert client.query("good1").rows == client.query("good2").rows == 4 * TUPLES
