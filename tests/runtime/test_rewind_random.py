"""Random lives in which a watermark is poisoned and moved back: a reset that is allowed loses no row and breaks no
promise.

The rows are compared with a nested loop over the tuples that were accepted, by a model of watermarks as simple as the
page on semantics. A reset that is refused changes nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

import pytest

from optimizer.errors import FailedPrecondition
from runtime.control.invariants import validate_state
from tests.runtime.rig import Rig

SIZE, POISON = 400, 10_000_000


@dataclass
class Model:
    """One stream: what is accepted, and where its watermark stands."""

    delay: int
    lateness: int
    watermark: int | None = None
    latest: int | None = None
    accepted: list[tuple[int, int, int]] = field(default_factory=list)

    def epoch(self, tuples, raised=None):
        least = None if self.watermark is None else self.watermark - self.lateness
        mine = [t for t in tuples if least is None or t[2] >= least]
        self.accepted += mine
        self.latest = max((t for t in (self.latest, *(t[2] for t in mine)) if t is not None), default=None)
        by_data = None if self.latest is None else self.latest - self.delay
        self.watermark = max((m for m in (self.watermark, by_data, raised) if m is not None), default=None)

    def reset(self, to):
        self.watermark = to
        self.latest = None if self.latest is None else min(self.latest, to + self.delay)


def expected(a, b, advance):
    """Rows of the join in windows [k * advance, k * advance + SIZE)."""
    rows = Counter()
    for ka, na, ta in a.accepted:
        for kb, nb, tb in b.accepted:
            if ka == kb and abs(ta - tb) < SIZE:
                first, last = (max(ta, tb) - SIZE) // advance + 1, min(ta, tb) // advance
                rows.update((k * advance, k * advance + SIZE, na, nb) for k in range(first, last + 1))
    return rows


@pytest.mark.parametrize("seeds", [range(25), range(25, 50)], ids=str)
def test_resets_that_are_allowed_are_exact(tmp_path, seeds):
    outcomes = Counter()
    for seed in seeds:
        outcomes += life(tmp_path / str(seed), Random(seed))
    assert outcomes["moved back"] > 5 and outcomes["refused"] > 5


def life(folder, rng):
    rig, outcomes = Rig(folder, partitions=1), Counter()
    advance = rng.choice((SIZE, SIZE // 4))
    models = {s: Model(rng.choice((0, 150)), rng.choice((0, 0, 600))) for s in "AB"}
    for name, m in models.items():
        rig.stream(name, k="BIGINT", n="INT", delay=m.delay, lateness=m.lateness)
    window = f"WINDOW HOPPING (SIZE {SIZE} MILLISECONDS, ADVANCE BY {advance} MILLISECONDS)"
    rig.create("q", f"SELECT A.n AS a, B.n AS b FROM A JOIN B ON A.k = B.k {window}")
    promised, number = None, 0
    for epoch in range(15):
        rows, raised = {}, {}
        for name, m in models.items():
            times = [200 * epoch + rng.randint(-300, 300) for _ in range(rng.randint(0, 6))]
            if epoch in (3, 7, 11) and name == "A":
                if rng.random() < 0.5:
                    times.append(POISON)
                else:
                    raised[name] = POISON
                    rig.engine.raise_watermark(name, POISON)
            rows[name] = [(rng.randrange(2), number + i, ts) for i, ts in enumerate(times)]
            number += len(times)
            m.epoch(rows[name], raised.get(name))
        rig.epoch(rows)
        prompt = {n for name, m in models.items() if not m.lateness for _, n, _ in rows[name]}
        for _, end, a, b in rig.delivered().get("q", ()):
            assert promised is None or end > promised or not prompt & {a, b}, "only late tuples open closed windows"
        told = rig.engine.query("q").watermark
        promised = told if promised is None or told is None else max(promised, told)
        assert {n: rig.engine.stream(n).watermark for n in "AB"} == {n: m.watermark for n, m in models.items()}
        if models["A"].watermark is not None and models["A"].watermark > POISON // 2:
            outcomes[move_back(rig, rng, models["A"], told or 200 * epoch)] += 1
    assert Counter(rig.rows("q")) == expected(models["A"], models["B"], advance)
    rig.engine.close()
    return outcomes


def move_back(rig, rng, model, now):
    to, before = now + rng.randint(-150, 350), rig.engine.state
    try:
        rig.engine.reset_watermark("A", to)
    except FailedPrecondition as refused:
        assert refused.reason == "WATERMARK_IN_USE" and rig.engine.state is before
        return "refused"
    model.reset(to)
    validate_state(rig.engine.state)
    if rng.random() < 0.3:
        rig.reopen(kill=True)
    return "moved back"
