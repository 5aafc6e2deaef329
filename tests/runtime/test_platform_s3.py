"""The store on a real S3 server: objects, a lost machine, a closed door, and a server that goes away."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import fs

from optimizer.errors import Unavailable
from runtime.engine.config import EngineConfig
from runtime.engine.engine import Engine
from runtime.execution.executor import LocalExecutor
from runtime.store.arrow import ArrowObjects
from tests.ajoin.world import JOIN, WAIT, with_streams
from tests.runtime.rig import Rig
from tests.runtime.story import tell, wrong
from tests.tools.minio import SECRET, MinIO

ROWS_SQL = "SELECT A.n AS a, B.n AS b FROM A JOIN B ON A.k = B.k WINDOW TUMBLING (SIZE 1000 SECONDS)"


@pytest.fixture
def bucket(s3: MinIO) -> Iterator[str]:
    yield s3.new_bucket()
    if s3.stopped:  # a test that failed must not take the server from the next one
        s3.start()


def objects(s3: MinIO, bucket: str) -> list[str]:
    found = s3.files().get_file_info(fs.FileSelector(bucket, recursive=True))
    return sorted(i.path for i in found if i.type == fs.FileType.File)


def test_objects_are_put_read_listed_and_deleted(s3: MinIO, bucket: str) -> None:
    store = ArrowObjects(s3.uri(bucket))
    large = bytes(range(256)) * (12 << 12)  # more than one part of an upload
    assert store.list() == {} and store.get("a") is None and store.path("a") is None
    assert store.put("a", b"first") == 5 and store.put("a", b"again!") == 6
    assert store.get("a") == b"again!"
    assert store.put("deep/down/b", large) == len(large)
    assert store.read("deep/down/b", 1_000_001, 7) == large[1_000_001:1_000_008]
    assert store.read("deep/down/b", len(large) - 3, 10) == large[-3:]
    with pytest.raises(FileNotFoundError):
        store.read("deep/down/c", 0, 1)
    assert store.list() == {"a": 6, "deep/down/b": len(large)}
    assert store.list("deep") == {"deep/down/b": len(large)} and store.list("nowhere") == {}
    store.delete("a")
    store.delete("a")
    store.delete_folder("deep")
    store.delete_folder("deep")
    assert store.list() == {} and objects(s3, bucket) == []


def test_the_machine_is_lost_and_another_goes_on(s3: MinIO, bucket: str, tmp_path: Path) -> None:
    rig = Rig(tmp_path / "state", store=s3.uri(bucket), snapshot_every=5)
    for name in "AB":
        rig.stream(name, k="BIGINT", n="INT")
    rig.create("q", ROWS_SQL)
    for i in range(4):
        rig.epoch({"A": [(i % 2, i, i)], "B": [(i % 2, i, i)]})
    rig.engine.push("A", [{"k": 0, "n": 4, "ts": 4}])
    rig.engine.abandon()
    shutil.rmtree(tmp_path / "state")
    rig.engine = rig._open()
    assert rig.engine.epoch == 4
    rig.epoch({"B": [(0, 4, 4)]})
    rig.epoch({"A": [(1, 5, 5)], "B": [(1, 5, 5)]})
    assert rig.rows("q") == sorted((0, 1_000_000, a, b) for a in range(6) for b in range(6) if a % 2 == b % 2)
    rig.engine.close()


def test_the_story_is_told_with_the_directory_lost_after_every_epoch(s3: MinIO, bucket: str, tmp_path: Path) -> None:
    """Every kind of stage, five lives, each in an empty directory, one of them with a directory too small."""
    config = EngineConfig(partitions=2, snapshot_every=6, store=s3.uri(bucket), cache_bytes=4000)
    lives = iter(range(100))

    class Mortal(Engine):
        """Dies after each epoch."""

        def __init__(self, opened) -> None:
            super().__init__(opened)
            run = self.run_epoch

            def run_and_die():
                run()
                raise KeyboardInterrupt

            self.run_epoch = run_and_die

    engine = tell(
        lambda: Mortal.open(tmp_path / f"{next(lives)}", LocalExecutor(), config, lambda: 0), (KeyboardInterrupt,)
    )
    assert next(lives) == 6
    assert wrong(engine) == []
    engine.close()


@pytest.mark.parametrize("wrongly", ["key", "secret", "bucket"])
def test_a_closed_door_is_said_and_nothing_is_left_behind(s3: MinIO, bucket: str, tmp_path: Path, wrongly: str) -> None:
    given = {"key": {"key": "somebody"}, "secret": {"secret": "not-the-secret"}, "bucket": {}}[wrongly]
    uri = s3.uri(f"{bucket}-not" if wrongly == "bucket" else bucket, **given)
    with pytest.raises(Unavailable) as refused:
        Engine.open(tmp_path / "state", LocalExecutor(), EngineConfig(store=uri))
    assert refused.value.reason == "STORE_REFUSED"
    assert "correct" in refused.value.hint and bucket in refused.value.message
    assert SECRET not in str(refused.value) and "not-the-secret" not in str(refused.value)
    assert objects(s3, bucket) == []
    assert {p.name for p in (tmp_path / "state").iterdir()} == {"lock"}
    Engine.open(tmp_path / "state", LocalExecutor(), EngineConfig(store=s3.uri(bucket))).close()


def test_a_server_that_is_away_is_waited_for(s3: MinIO, bucket: str, tmp_path: Path) -> None:
    def rows(n: int):
        return {"V": [{"ts": n, "vID": n, "geo": "x"}], "W": [{"ts": n, "vID": n, "usrID": n}]}

    with with_streams(tmp_path / "state", engine=EngineConfig(store=s3.uri(bucket))) as world:
        world.client.create_query(JOIN, id="q")
        world.feed(rows(1))
        s3.stop(kill=True)
        with pytest.raises(Unavailable) as refused:
            world.platform.push("V", rows(2)["V"]).result(WAIT)
        assert refused.value.reason == "STORE_UNAVAILABLE"
        assert SECRET not in str(refused.value)
        world.platform.raise_watermark("V", 5).result(WAIT)
        assert world.platform.wait_until(lambda: "store" in world.platform.status().message, WAIT)
        assert world.client.status().state == "RUNNING"
        back = threading.Thread(target=s3.start)
        back.start()
        world.platform.wait_until(lambda: not world.platform.status().message, WAIT)
        back.join()
        world.feed(rows(7))
        assert world.client.query("q").rows == 2
        assert [r["vID"] for r in world.client.results("q")] == [1, 7]
    other = Engine.open(tmp_path / "other", LocalExecutor(), EngineConfig(store=s3.uri(bucket)))
    assert other.query("q").rows == 2
    other.close()
