"""The fault campaign: a seed is a random life of the platform together with everything that goes wrong in it.

What a seed decides (`draw`): the life (tests/lives, with more changes of plan than usual), how many partitions there
are, whether tasks run twice and in any order, how long results are kept, how often there is a snapshot, whether there
is a store, of which kind, and the local directory is lost with every process, whether bucket files are damaged; and
where each process dies (`doomed`): at named crash points which an undisturbed rehearsal of the same life came along,
also while recovering from the death before. What must come out does not depend on any of it: the rows of the oracle,
each exactly once, read by subscribers whose cursors go on across all restarts, and copied to a sink.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from optimizer.model.plan import Plan, RunningQuery
from runtime.control.budgets import Pacing
from runtime.control.planner import Planner
from runtime.crashpoints import POINTS
from runtime.delivery.schedule import InStep
from runtime.engine.config import EngineConfig
from runtime.engine.engine import Engine
from runtime.execution.executor import Executor, LocalExecutor
from runtime.execution.sharing import SharingName
from runtime.operators.join import JoinReport
from runtime.operators.source import SourceReport
from tests.faults.story import scenario
from tests.faults.survivor import Death, Survivor
from tests.lives import PROFILES, make_life
from tests.lives.engine import MEMORY, Stored, validated
from tests.lives.executors import Rotting, Stubborn
from tests.oracle import run_oracle

Line = dict[str, Any]
KINDS = {"tiny": 8, "folding": 5, "deep": 3, "medium": 2}
"""Profiles and how often each is drawn."""


@dataclass(frozen=True, slots=True)
class Fate:
    """Everything about a seed except the life itself."""

    seed: int
    profile: str
    partitions: int
    stubborn: bool
    sharing: SharingName
    snapshot_every: int
    retention_epochs: int
    sink: bool
    stored: Stored | None
    rotting: bool
    paced: int | None
    """Rows a query may make in an epoch."""
    deaths: tuple[Death, ...] = ()

    def __str__(self) -> str:
        died = ", ".join(f"{name}:{count}" for name, count in self.deaths) or "no point"
        how = [f"{self.partitions} partitions"]
        how += ["tasks repeat"] if self.stubborn else []
        if self.stored is not None:
            kept = "local directory lost" if self.stored.lost else "local directory kept"
            kind = "failing store" if self.stored.fails else "store of objects" if self.stored.objects else "path"
            how += [f"{kind}, {kept}, cache {self.stored.cache_bytes}"]
        how += ["bucket files rot"] if self.rotting else []
        how += [f"{self.paced} rows an epoch"] if self.paced is not None else []
        how += [f"sharing {self.sharing}"] if self.sharing != "cost" else []
        return f"seed {self.seed}: {self.profile}, {', '.join(how)}; dies at {died}"


@dataclass(frozen=True, slots=True)
class Outcome:
    differences: tuple[str, ...]
    died: tuple[str, ...]
    rows: int
    hits: Counter[str]


def draw(seed: int) -> tuple[Fate, list[Line]]:
    rng = Random(f"fault-{seed}")
    profile = rng.choices(list(KINDS), list(KINDS.values()))[0]
    fate = Fate(
        seed,
        profile,
        rng.choice((1, 2, 3, 5)),
        rng.random() < 0.3,
        rng.choices(("cost", "off", "astream"), (8, 1, 1))[0],
        rng.choice((3, 7, 20, 500)),
        rng.choice((1, 2, 10_000)),
        rng.random() < 0.6,
        _stored(rng) if rng.random() < 0.5 else None,
        rotting := rng.random() < 0.2,
        None if rotting else Random(f"pace-{seed}").choice((None, None, 60, 300)),
    )
    eventful = replace(
        PROFILES[profile], forced=0.5, scaled=0.4, optimized=0.3, restarted=0.15, watermarked=0.2, deleted=0.4
    )
    return fate, make_life(rng, eventful)


def _stored(rng: Random) -> Stored:
    kind = rng.choice(("path", "objects", "objects", "failing"))
    lost, cache = rng.random() < 0.6, rng.choice((0, 0, 20_000))
    return Stored(objects=kind != "path", lost=lost, cache_bytes=cache, fails=kind == "failing")


def doomed(fate: Fate, hits: Counter[str]) -> Fate:
    """Deaths at points that the rehearsal hit, spread over the whole life."""
    rng = Random(f"doom-{fate.seed}")
    many = rng.randint(1, 6)
    names = [rng.choice(sorted(hits)) for _ in range(many)]
    return replace(fate, deaths=tuple((name, rng.randint(1, max(1, hits[name] * 2 // (many + 1)))) for name in names))


def run(seed: int) -> tuple[Fate, list[Line], Outcome]:
    """One seed of the campaign."""
    fate, life = draw(seed)
    rehearsal = live(fate, life)
    if rehearsal.differences:
        return fate, life, rehearsal
    fate = doomed(fate, rehearsal.hits)
    return fate, life, live(fate, life)


def live(fate: Fate, life: Sequence[Line]) -> Outcome:
    """The differences from the oracle, or the error it ended with."""
    executor: Executor = Stubborn(fate.seed) if fate.stubborn else LocalExecutor()
    config = EngineConfig(
        partitions=fate.partitions,
        sharing=fate.sharing,
        snapshot_every=fate.snapshot_every,
        retention_epochs=fate.retention_epochs,
        delivery=InStep,
        pacing=Pacing(fate.paced, max_behind=1 << 30),
    )
    with tempfile.TemporaryDirectory(prefix="ajoin-fault-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        state = Path(folder) / "state"
        if fate.rotting:
            place = state if fate.stored is None else Path(folder) / "store"
            executor = Rotting(executor, place / "buckets", fate.seed)
        if fate.stored is not None:
            uri = fate.stored.uri(Path(folder) / "store")
            config = replace(config, store=uri, cache_bytes=fate.stored.cache_bytes)

        def opener() -> Engine:
            if fate.stored is not None and fate.stored.lost:
                shutil.rmtree(state, ignore_errors=True)
            return validated(Engine.open(state, executor, config, lambda: 0))

        survivor = Survivor(
            opener,
            fate.deaths,
            Path(folder) / "sink" if fate.sink else None,
        )
        try:
            with patch.object(Planner, "observe", _observe_steadily):
                survivor.play(scenario(list(life)))
            found = survivor.differences(run_oracle(life))
        except Exception as error:
            found = [f"{type(error).__name__}: {error}"]
        finally:
            survivor.stop()
    rows = sum(len(rows) for rows in survivor.rows.values())
    return Outcome(tuple(found), tuple(survivor.died), rows, survivor.hits)


_observe = Planner.observe


def _observe_steadily(
    self: Planner,
    plan: Plan,
    queries: Mapping[str, RunningQuery],
    sources: Sequence[SourceReport],
    joins: Sequence[JoinReport],
    at: float,
    seconds: float,
    latency_s: Mapping[str, float],
    wall: float,
) -> None:
    """Every epoch takes a second, or a seed would not always lead to the same plans and the same deaths."""
    timeless = [replace(j, join_seconds=0.0, sink_seconds=0.0) for j in joins]
    now = (self._at or 0.0) + 1.0
    _observe(self, plan, queries, [replace(s, seconds=0.0) for s in sources], timeless, now, 1.0, {}, now)


@dataclass(slots=True)
class Tally:
    """What a campaign has been through so far."""

    seeds: int = 0
    rows: int = 0
    deaths: Counter[str] | None = None
    failed: list[int] | None = None

    def add(self, fate: Fate, outcome: Outcome) -> None:
        self.seeds += 1
        self.rows += outcome.rows
        self.deaths = (self.deaths or Counter()) + Counter(outcome.died)
        if outcome.differences:
            self.failed = [*(self.failed or []), fate.seed]

    def __str__(self) -> str:
        deaths = self.deaths or Counter()
        return (
            f"{self.seeds} seeds, {deaths.total()} deaths at {len(deaths)} of {len(POINTS)} points, {self.rows:,} rows"
        )
