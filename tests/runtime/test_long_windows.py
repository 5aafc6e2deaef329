"""Long windows that advance by little: every way to combine them gives the rows that combining all slices gives.

Two engines get the same tuples: one as it is, one without blocks and without sharing among windows that close together.
"""

from __future__ import annotations

from random import Random

import pytest

from optimizer.explain.combining import TOGETHER
from optimizer.explain.combining import combining as explained
from optimizer.model import combining
from runtime.aggregates import sliding
from runtime.api import ScaleTo
from runtime.buckets.refs import Block
from runtime.control.invariants import validate_state
from runtime.execution import blocks
from runtime.execution.blocks import Need, Refs, cover, gaps, together
from runtime.operators import close_time
from tests.runtime.rig import Rig

FUNCTIONS = (
    "COUNT(*)", "SUM(x)", "SUM(y)", "AVG(x)", "MIN(y)", "MAX(x)", "STDDEV(y)", "ARG_MAX(x, y)", "MEDIAN(x)",
    "COUNT(DISTINCT x)", "APPROX_COUNT_DISTINCT(x)",
)  # fmt: skip
LONG = "WINDOW HOPPING (SIZE 70 SECONDS, ADVANCE BY 1 SECOND)"
UNEVEN = "WINDOW HOPPING (SIZE 50 SECONDS, ADVANCE BY 1500 MILLISECONDS)"
SHORT = "WINDOW TUMBLING (SIZE 5 SECONDS)"


@pytest.fixture
def plain(monkeypatch):
    """Switches to combining all slices, and back."""

    def switch(on):
        monkeypatch.setattr(combining, "LONG", 1 << 60 if on else 32)
        monkeypatch.setattr(blocks, "cover", (lambda *_: ()) if on else cover)
        monkeypatch.setattr(close_time, "SHARED", 1 << 60 if on else 2)

    return switch


def start(directory, delay=0, lateness=0):
    rig = Rig(directory)
    rig.stream("S", k="BIGINT", x="BIGINT", y="DOUBLE", delay=delay, lateness=lateness)
    chosen = ", ".join(f"{f} AS f{i}" for i, f in enumerate(FUNCTIONS))
    for id, window in (("long", LONG), ("uneven", UNEVEN), ("short", SHORT)):
        rig.create(id, f"SELECT k, {chosen} FROM S GROUP BY k {window}")
    rig.create("some", f"SELECT k, SUM(x) AS s FROM S WHERE x > 3 GROUP BY k HAVING SUM(x) > 9 {LONG}")
    rig.create("order", f"SELECT k, FIRST(x) AS a, LAST(x) AS b FROM S GROUP BY k {LONG}")
    return rig


def tuples(random, now, width, back=0):
    """Of the `width` ms from `now` on; some are up to `back` late."""
    out = []
    for _ in range(random.randint(2, 12)):
        ts = now + random.randrange(width) - (random.randrange(back) if back and random.random() < 0.3 else 0)
        out.append((random.randint(1, 3), random.randint(-4, 9), random.randint(-8, 8) / 4, max(ts, 0)))
    return out


def rounded(rows):
    return [tuple(round(v, 9) if isinstance(v, float) else v for v in row) for row in rows]


def agree(plain, rigs, ids=("long", "uneven", "short", "some", "order")):
    for id in ids:
        plain(False)
        mine, other = (sorted(rounded(rig.rows(id)), key=repr) for rig in rigs)
        assert mine == other and (mine or id == "some"), id


@pytest.mark.parametrize(
    ("seed", "width", "back", "delay", "lateness"),
    [(0, 1000, 0, 0, 0), (1, 1000, 3000, 3000, 0), (2, 1000, 9000, 1000, 8000), (3, 13_000, 0, 0, 0),
     (4, 30_000, 5000, 2000, 3000)],
)  # fmt: skip
def test_all_ways_agree(tmp_path, plain, seed, width, back, delay, lateness):
    """Tuples in order, out of order, and late; one second per epoch, and so many that many windows close together. On
    the way partitions change, a query comes and one goes, and the engine dies."""
    random = Random(seed)
    rigs = [start(tmp_path / name, delay, lateness) for name in ("mine", "all")]
    used = made = 0
    for epoch in range(max(12, 160_000 // width)):
        batch = tuples(random, epoch * width, width, back)
        for rig, on in zip(rigs, (False, True), strict=True):
            plain(on)
            match epoch:
                case 5:
                    rig.control(ScaleTo(5))
                case 40:
                    rig.control(ScaleTo(1))
                    rig.create("late", f"SELECT k, MAX(y) AS m FROM S GROUP BY k {LONG}")
                case 90:
                    rig.delete("uneven")
                    rig.reopen()
            rig.epoch({"S": batch})
            validate_state(rig.engine.state)
        made += any(b.epoch == rigs[0].engine.epoch for b in rigs[0].engine.state.blocks.values())
        used += any(b.epoch < rigs[0].engine.epoch for b in rigs[0].engine.state.blocks.values())
    agree(plain, rigs)
    assert made and used and not rigs[1].engine.state.blocks
    if width == 1000:
        agree(plain, rigs, ["late"])


def test_a_window_opens_its_blocks_and_the_slices_at_its_ends(tmp_path, monkeypatch):
    rig = Rig(tmp_path)
    rig.stream("S", k="BIGINT")
    rig.create("q", "SELECT k, COUNT(*) AS n FROM S GROUP BY k WINDOW HOPPING (SIZE 600 SECONDS, ADVANCE BY 1 SECOND)")
    for second in range(700):
        rig.epoch({"S": [(1, 1000 * second)]})
    opened = set()
    store = type(rig.engine.parts.exchange.files)
    real = store.open
    monkeypatch.setattr(store, "open", lambda self, name: opened.add(name) or real(self, name))
    rig.epoch({"S": [(1, 700_000)]})
    assert [row[-1] for row in rig.delivered()["q"]] == [600]
    assert len(opened) < 45


@pytest.mark.parametrize("how", ["damaged", "missing"])
def test_a_block_that_is_lost_is_done_without(tmp_path, plain, how):
    random = Random(7)
    rigs = [start(tmp_path / name) for name in ("mine", "all")]
    lost = []
    for epoch in range(110):
        batch = tuples(random, epoch * 1000, 1000)
        if epoch in (80, 95):
            rigs[0].reopen(kill=False)  # nothing is open any more
            chosen = [b for b in rigs[0].engine.state.blocks.values() if b.lo >= 1000 * epoch - 60_000][:3]
            for path in (rigs[0].directory / "buckets" / f for b in chosen for f in b.files):
                if how == "missing":
                    path.unlink()
                else:
                    content = bytearray(path.read_bytes())
                    content[len(content) // 2] ^= 255
                    path.write_bytes(content)
            lost += [b.name for b in chosen]
        for rig, on in zip(rigs, (False, True), strict=True):
            plain(on)
            rig.epoch({"S": batch})
    agree(plain, rigs)
    assert lost and not set(lost) & rigs[0].engine.state.blocks.keys()


def test_blocks_go_with_their_query(tmp_path):
    rig = start(tmp_path)
    for epoch in range(60):
        rig.epoch({"S": [(1, epoch, 0.5, 1000 * epoch)]})
    names = {f for b in rig.engine.state.blocks.values() for f in b.files}
    assert names and names <= {p.name for p in rig.files("buckets")}
    for id in ("long", "uneven", "some", "order"):
        rig.delete(id)
    rig.epoch({"S": [(1, 1, 0.5, 60_000)]})
    assert not rig.engine.state.blocks and not names & {p.name for p in rig.files("buckets")}


def block(lo, hi, epoch=1):
    return Block(f"{lo}-{hi}-{epoch}", "f", lo, hi, epoch, ("q#1",), ())


def test_a_cover_takes_the_largest_blocks_that_fit():
    small = [block(lo, lo + 8) for lo in range(0, 160, 8)]
    large = [block(0, 64), block(64, 128)]
    chosen = cover([*small, *large, block(8, 16, 5)], 3, 141)
    assert [(b.lo, b.hi) for b in chosen] == [(lo, lo + 8) for lo in range(8, 64, 8)] + [(64, 128), (128, 136)]
    assert chosen[0].epoch == 5
    need = Need(3, 141, chosen)
    assert list(gaps(need)) == [(3, 8), (136, 141)]
    assert together([need, Need(5, 20), Need(20, 21)]) == ((3, 21), (136, 141))


def test_late_buckets_are_needed_beside_a_block(tmp_path):
    rig = start(tmp_path, lateness=1 << 40)
    rig.epoch({"S": [(1, 1, 0.5, 5), (1, 1, 0.5, 7000)]})
    rig.epoch({"S": [(1, 1, 0.5, 6)]})
    refs = Refs(sorted(rig.engine.state.partials.values(), key=lambda r: r.epoch))
    assert refs.needed(Need(0, 8000, (block(0, 8000, epoch=1),))).tolist() == [False, True]
    assert refs.needed(Need(0, 8000, (block(0, 8000, epoch=2),))).tolist() == [False, False]
    assert refs.needed(Need(0, 8000, (block(0, 4000, epoch=2),))).tolist() == [True, False]


def test_the_choice_is_explained_as_it_is_made(tmp_path, monkeypatch):
    """Blocks for those that explain says, and for windows that close together the ways that explain says."""
    rig = start(tmp_path)
    said = {w.queries: w.entries for w in explained(list(rig.engine.state.running.values())).windows}
    ways = []
    real = sliding.way_of
    monkeypatch.setattr(sliding, "way_of", lambda *given: ways.append(real(*given)) or ways[-1])
    for epoch in range(80):
        rig.epoch({"S": [(1, epoch, 0.5, 1000 * epoch)]})
    named = {uid.rpartition("#")[0] for b in rig.engine.state.blocks.values() for uid in b.uids}
    assert (
        named == {id for ids, entries in said.items() if entries for id in ids} == {"long", "order", "some", "uneven"}
    )
    assert not ways, "one window closes in an epoch"
    for windows in (TOGETHER - 1, TOGETHER):
        ways.clear()
        last = epoch + windows
        rig.epoch({"S": [(1, 1, 0.5, 1000 * (epoch := epoch + 1)) for _ in range(windows)]})
        assert epoch == last and set(ways) == ({"subtract", "stacks"} if windows == TOGETHER else {"combine"})
