"""What travels with a stage: what has changed. Who has never seen anything gets all of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from runtime.execution.shipped import Kept, Lacks, ShippedOnce, Shipping, memory, unpacked
from tests.lives.executors import Recycled
from tests.runtime.rig import Rig
from tests.tools.store_double import Double

CHAIN = """SELECT V.a, W.b, C.d FROM V JOIN W ON V.k = W.k JOIN C ON W.b = C.b
           WINDOW HOPPING (SIZE {} SECONDS, ADVANCE BY 1 SECOND)"""
LAST = 5


class Seen(NamedTuple):
    """Of the last epochs: bytes of every join stage, buckets that were open, and all rows."""

    sizes: list[int]
    opened: int
    rows: list[tuple[Any, ...]]


def chain(folder: Path, window: int, executor: Recycled | None, renewed: bool = False) -> Seen:
    """Windows hop, so that after the first one the state is steady. `renewed`: all workers are new before the end."""
    where = {"store": Double().open()} if executor is not None else {}
    rig = Rig(folder, executor, partitions=4, pipelined=False, **where)
    rig.stream("V", k="BIGINT", a="BIGINT")
    rig.stream("W", k="BIGINT", b="BIGINT")
    rig.stream("C", b="BIGINT", d="BIGINT")
    rig.create("q", CHAIN.format(window))
    first = 0
    for second in range(window + 3 + LAST):
        if second == window + 3 and executor is not None:
            first = len(executor.jobs)
            if renewed:
                executor.renew()
        tuples = [(second % 3, second % 2, 1000 * second), (7, 1, 1000 * second)]
        rig.epoch({"V": tuples, "W": tuples, "C": tuples})
    sizes = [size for name, size in executor.jobs[first:] if "join" in name] if executor is not None else []
    state = rig.engine.state
    return Seen(sizes, len(state.sources) + len(state.joined), rig.rows("q"))


def test_a_stage_ships_what_has_changed(tmp_path: Path) -> None:
    few, many = (
        chain(tmp_path / f"{window}", window, Recycled(tmp_path / f"kept-{window}", 1, often=0)) for window in (2, 24)
    )
    assert many.opened > 8 * few.opened
    assert len(many.sizes) == len(few.sizes) == 2 * LAST, "nobody had to ask again"
    named = 8 * (many.opened - few.opened)
    assert sum(many.sizes) / len(many.sizes) < sum(few.sizes) / len(few.sizes) + named, (few, many)


def test_workers_that_have_never_seen_anything_join_rightly(tmp_path: Path) -> None:
    executor = Recycled(tmp_path / "kept", 1, often=0)
    found = chain(tmp_path / "stored", 4, executor, renewed=True)
    assert len(found.sizes) > 2 * LAST, "some had to ask again"
    assert max(found.sizes) > 2 * min(found.sizes)
    assert found.rows == chain(tmp_path / "local", 4, None).rows
    assert found.rows


def test_what_is_kept_may_be_lost_or_rot(tmp_path: Path) -> None:
    shipping, piece = Shipping(keep=True), ShippedOnce({"a": 1})
    kept = Kept(tmp_path)

    def job(parcel: Any, tasks: Any) -> list[Any]:
        return [unpacked(parcel, kept, memory()).value["a"] for _ in tasks]

    assert shipping.run(piece, [b"task"], job) == [1]
    later = shipping.parcel(piece)
    assert not later.pieces
    assert unpacked(later, kept, memory()).value == {"a": 1}, "of another worker"
    (file,) = tmp_path.iterdir()
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(Lacks):
        unpacked(later, kept, memory())
    whole = shipping.parcel(piece, whole=True)
    assert unpacked(whole, kept, memory()).value == {"a": 1}
    assert unpacked(later, kept, memory()).value == {"a": 1}


def test_an_executor_keeps_the_newest(tmp_path: Path) -> None:
    kept, big = Kept(tmp_path), bytes(1 << 16)
    for number in range(1, 513):
        kept.put("here", number, big)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 9 << 20
    assert kept.get("here", 512) == big
    assert kept.get("here", 1) is None
