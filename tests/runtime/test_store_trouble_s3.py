"""A store that fails while a platform runs on it: full, without rights, away in the middle. It waits, reads go on, and
when the store does its work again not a row is missing or doubled.
"""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from optimizer.errors import Unavailable
from runtime.engine.config import EngineConfig
from runtime.engine.engine import Engine
from runtime.execution.executor import LocalExecutor
from tests.ajoin.world import JOIN, WAIT, World, with_streams
from tests.runtime.rig import Rig, plain
from tests.runtime.test_store import begun, epochs, expected, lose
from tests.tools import minio
from tests.tools.minio import KEY, SECRET, MinIO
from tests.tools.s3_front import Front, standing_before

FULL = (507, "XMinioStorageFull", "Storage backend has reached its minimum free drive threshold")
ROOM = "48m"


def rows(n: int) -> dict[str, list[dict[str, object]]]:
    return {"V": [{"ts": n, "vID": n, "geo": "x"}], "W": [{"ts": n, "vID": n, "usrID": n}]}


@pytest.fixture
def small(s3: MinIO, tmp_path: Path) -> Iterator[tuple[MinIO, Path]]:
    """A server whose disk is a small one, and a file on it that takes the room."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "none", str(disk)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip(f"no disk of its own: {mounted.stderr.decode()}")
    try:
        with minio.running(disk) as server:
            yield server, disk / "ballast"
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def fill(ballast: Path) -> None:
    with open(ballast, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 12))
        except OSError:
            return


def test_a_full_disk_is_waited_out_and_reads_go_on(
    small: tuple[MinIO, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server, ballast = small
    caplog.set_level(logging.INFO, "ajoin")
    uri = server.uri(server.new_bucket())
    with with_streams(tmp_path / "state", engine=EngineConfig(store=uri, cache_bytes=1)) as world:
        world.client.create_query(JOIN, id="q")
        world.feed(rows(1))
        fill(ballast)
        with pytest.raises(Unavailable) as refused:
            world.platform.push("V", rows(2)["V"]).result(WAIT)
        assert refused.value.reason == "STORE_FULL" and "make room" in refused.value.hint
        with pytest.raises(Unavailable) as refused:
            world.client.create_query(JOIN, id="q2")
        assert refused.value.reason == "STORE_FULL"
        waits_for(world, "is full")
        assert world.client.status().state == "RUNNING"
        assert [r["vID"] for r in world.client.results("q")] == [1]
        ballast.unlink()
        assert world.platform.wait_until(lambda: not world.platform.status().message, WAIT)
        world.feed(rows(7))
        assert [r["vID"] for r in world.client.results("q")] == [1, 7]
        assert caplog.text.count("epoch waits") == 1 and caplog.text.count("epochs go on") == 1
    other = Engine.open(tmp_path / "other", LocalExecutor(), EngineConfig(store=uri))
    assert other.query("q").rows == 2
    other.close()


def waits_for(world: World, words: str) -> None:
    world.platform.raise_watermark("V", 5).result(WAIT)
    assert world.platform.wait_until(lambda: words in world.platform.status().message, WAIT)


@pytest.fixture
def front(s3: MinIO) -> Iterator[Front]:
    with standing_before(s3.address) as front:
        yield front


def behind(front: Front, s3: MinIO) -> str:
    return s3.uri(s3.new_bucket()).replace(s3.address, front.address)


class Follower:
    """Takes every row of the query once, in the order of the result log."""

    def __init__(self, rig: Rig) -> None:
        self._rig, self._after = rig, None
        self.rows: list[tuple[object, ...]] = []

    def follow(self) -> None:
        while batches := self._rig.engine.read_results("q", self._after, 1 << 30):
            self.rows += [row for batch in batches for row in plain(batch.rows)]
            self._after = batches[-1].cursor


@pytest.mark.parametrize("after", [4, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, 14) if n != 4)])
def test_a_store_that_fills_up_within_an_epoch_costs_no_row(
    s3: MinIO, front: Front, tmp_path: Path, after: int
) -> None:
    """Before each put in turn, of pushed batches, records, buckets, segments; results expire meanwhile."""
    rig = begun(tmp_path, store=behind(front, s3), retention_epochs=2, partitions=2)
    follower, refused = Follower(rig), 0

    def do(act: Callable[[], object]) -> None:
        nonlocal refused
        try:
            act()
        except Unavailable as outage:
            assert outage.reason == "STORE_FULL"
            refused += 1
            follower.follow()  # reads go on
            front.refuses.clear()
            act()

    for n in range(6):
        if n == 3:
            front.refuse_after("PUT", after, FULL)
        for name in "AB":
            do(lambda name=name, n=n: rig.engine.push(name, [{"k": n % 3, "n": n, "ts": n}]))
        do(rig.engine.run_epoch)
        follower.follow()
    assert refused == 1
    assert sorted(follower.rows) == expected(6)
    lose(rig)
    epochs(rig, range(6, 7))
    follower.follow()
    assert sorted(follower.rows) == expected(7)
    rig.engine.close()


def test_a_key_that_may_not_delete_costs_room_and_nothing_else(
    s3: MinIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bucket = s3.new_bucket()
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name, value in s3.limited("s3:GetObject", "s3:PutObject", "s3:ListBucket").items():
        monkeypatch.setenv(name, value)
    keyless = s3.uri(bucket).replace(f"{KEY}:{SECRET}@", "")
    rig = begun(tmp_path, store=keyless, retention_epochs=2, snapshot_every=3)
    for n in range(5):
        rig.epoch({name: [(0, n, n * 1_000_000)] for name in "AB"})
    said = [r.message for r in caplog.records if "stays in the store until it can be deleted" in r.message]
    assert len(said) == 1 and "does not allow it" in said[0] and "get, put, list and delete" in said[0]
    kept = len(rig.engine.parts.store.objects.list())
    rig.engine.close()
    full = Rig(tmp_path / "other", store=s3.uri(bucket), retention_epochs=2)
    full.epoch({name: [(0, 5, 5_000_000)] for name in "AB"})
    assert full.rows("q") == [(start, start + 1_000_000, n, n) for n in (4, 5) for start in [n * 1_000_000]]
    assert len(full.engine.parts.store.objects.list()) < kept
    full.engine.close()
