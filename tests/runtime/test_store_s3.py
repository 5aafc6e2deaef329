"""The store on a real S3 server: what tasks write and read, a lost machine, an outage, a platform that was replaced."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from optimizer.errors import FailedPrecondition, Unavailable
from runtime.buckets.checked import CHUNK, PER_ARRAY
from runtime.store.arrow import ArrowObjects
from runtime.store.buckets import ObjectBuckets
from runtime.store.cache import Cache
from tests.runtime.rig import Rig
from tests.runtime.test_store import JOIN, begun, epochs, expected, lose
from tests.tools.minio import MinIO


@pytest.fixture
def uri(s3: MinIO) -> Iterator[str]:
    yield s3.uri(s3.new_bucket())
    if s3.stopped:  # a test that failed must not take the server from the next one
        s3.start()


def test_a_lost_machine_comes_back_and_the_replaced_one_stops(tmp_path, uri):
    rig = begun(tmp_path, store=uri, snapshot_every=5)
    epochs(rig, range(4))
    lose(rig)
    epochs(rig, range(4, 6))
    other = Rig(tmp_path / "other", store=uri)
    with pytest.raises(FailedPrecondition) as caught:
        epochs(rig, range(6, 7))
    assert caught.value.reason == "STATE_TAKEN"
    rig.engine.abandon()
    if other.engine.has_input():  # what the replaced one had pushed before it noticed
        other.engine.run_epoch()
    assert [r for r in other.rows("q") if r[2] < 6 and r[3] < 6] == expected(6)
    state = other.engine.state
    listed = {f"buckets/{f}" for f in state.bucket_files} | {f"results/{f}" for f in state.segment_files}
    names = {n for n in other.engine.parts.store.objects.list() if n.startswith(("buckets/", "results/"))}
    assert listed <= names


@pytest.mark.long  # test_platform_s3 has one in every run
def test_an_outage_is_waited_out(tmp_path, s3, uri):
    rig = begun(tmp_path, store=uri)
    epochs(rig, range(2))
    s3.stop(kill=True)
    with pytest.raises(Unavailable) as caught:
        rig.create("q2", JOIN)
    assert caught.value.reason == "STORE_UNAVAILABLE" and "only-for-tests" not in caught.value.message
    s3.start()
    epochs(rig, range(2, 4))
    assert rig.rows("q") == expected(4)


def test_parts_of_objects_are_fetched(tmp_path, uri):
    many = CHUNK // 8 * PER_ARRAY
    written = ObjectBuckets(uri, "p", Cache(tmp_path / "one", 0), 0).write("t/b.1.bucket", {}, {"a": np.arange(many)})
    assert ArrowObjects(uri).list() == {"buckets/t/b.1.bucket": written.bytes}
    cache = Cache(tmp_path / "two", 0)
    file = ObjectBuckets(uri, "p", cache, 0).open(written.file)
    at = np.array([3, many // 2, many - 1])
    assert file.arrays.at_rows("a", at)[at].tolist() == at.tolist()
    assert cache.figures.fetched_bytes <= 4 * CHUNK
    assert file.arrays["a"].tolist() == list(range(many))
