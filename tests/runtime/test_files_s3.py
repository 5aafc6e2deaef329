"""Files in object stores: listed by the driver, read by tasks, exactly once; on a real S3 server."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from optimizer.errors import InvalidRequest, Unavailable
from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.connectors.base import ConnectorSpec
from runtime.connectors.files import FilesSource, parse_config
from runtime.connectors.registry import check_options
from tests.runtime.rig import Rig
from tests.runtime.test_exchange import Elsewhere
from tests.tools.minio import SECRET, MinIO

SCHEMA = StreamSchema("S", (Column("ts", ColumnType.TIMESTAMP), Column("n", ColumnType.BIGINT)), time="ts")
Put = Callable[..., None]


@pytest.fixture
def bucket(s3: MinIO) -> Iterator[str]:
    yield s3.new_bucket()
    if s3.stopped:  # a test that failed must not take the server from the next one
        s3.start()


@pytest.fixture
def put(s3: MinIO, bucket: str) -> Put:
    def put(name: str, *numbers: int) -> None:
        with s3.files().open_output_stream(f"{bucket}/in/{name}") as out:
            out.write("".join(json.dumps({"ts": n, "n": n}) + "\n" for n in numbers).encode())

    return put


def numbers(source: FilesSource, start: int, end: int) -> list[int]:
    reads = pickle.loads(pickle.dumps(source.reads(start, end)))
    return [n for r in reads for n in r.load(SCHEMA).table["n"].to_pylist()]


def test_objects_are_picked_up_in_name_order_and_read_as_they_were(s3: MinIO, bucket: str, put: Put, tmp_path: Path):
    def open_source() -> FilesSource:
        return FilesSource(parse_config({"path": s3.uri(bucket, "in"), "max_files": "3"}), tmp_path)

    source = open_source()
    assert source.latest(0, 0) == 0, "a folder without objects is none"
    for name, n in (("b.jsonl", 2), ("a.jsonl", 1), ("deep/c.jsonl", 9), (".d.jsonl", 9), ("e.tmp", 9)):
        put(name, n)
    assert source.latest(0, 0) == 2 and numbers(source, 0, 2) == [1, 2]
    put("a0.jsonl", 3)
    put("c.jsonl", 4)
    assert source.latest(2, 0) == 4 and numbers(open_source(), 0, 4) == [1, 2, 3, 4]
    put("b.jsonl", 2, 3)
    s3.files().delete_file(f"{bucket}/in/c.jsonl")
    reads = source.reads(0, 4)
    (changed,), (gone,) = (reads[i].load(SCHEMA).dead for i in (1, 3))
    assert "must not change" in changed.reason and "disappeared" in gone.reason
    assert SECRET not in repr(reads)


@pytest.mark.long  # test_connectors_files has it with a store that is away at once
def test_a_server_that_is_away_is_waited_for(s3: MinIO, bucket: str, put: Put, tmp_path: Path):
    put("1.jsonl", 1)
    source = FilesSource(parse_config({"path": s3.uri(bucket, "in")}), tmp_path)
    assert source.latest(0, 0) == 1
    [read] = source.reads(0, 1)
    s3.stop()
    assert source.latest(1, 0) == 1, "no news, and the stream goes on"
    with pytest.raises(Unavailable) as waits:
        read.load(SCHEMA)
    assert waits.value.reason == "STORE_UNAVAILABLE" and SECRET not in waits.value.message
    s3.start()
    put("2.jsonl", 2)
    now_ms = 0
    while source.latest(1, now_ms) == 1:  # a list that was asked for meanwhile may still fail
        now_ms += 30_000
        time.sleep(0.05)
    assert numbers(source, 0, 2) == [1, 2]


def test_files_and_store_on_one_server_over_a_restart(s3: MinIO, bucket: str, put: Put, tmp_path: Path):
    executor = Elsewhere()
    rig = Rig(tmp_path / "state", executor, store=s3.uri(bucket))
    rig.stream("S", ConnectorSpec("files", (("path", s3.uri(bucket, "in")),)), n="BIGINT")
    rig.stream("T", n="BIGINT")
    rig.create("q", "SELECT S.n FROM S JOIN T ON S.n = T.n WINDOW TUMBLING (SIZE 1 SECOND)")
    for i in range(4):
        put(f"{i}.jsonl", i)
        rig.epoch({"T": [(i, i)]})
        rig.reopen()
    assert rig.rows("q") == [(0, 1000, i) for i in range(4)]
    assert [path for path in executor.opened if str(tmp_path) in path] == []
    rig.engine.close()


def test_a_folder_that_cannot_be_listed_makes_no_stream(s3: MinIO, bucket: str):
    wrong = s3.uri(bucket, "in", secret="not-the-secret")
    with pytest.raises(InvalidRequest) as caught:
        check_options(ConnectorSpec("files", (("path", wrong),)))
    assert caught.value.reason == "BAD_CONNECTOR_OPTION" and "not-the-secret" not in str(caught.value)
    assert "does not accept the secret" in caught.value.message
