"""Bucket files: what is written is what is read, completely or not at all, and damage is named."""

from __future__ import annotations

import base64
import json
import os
import pickle
from random import Random

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from optimizer.errors import InternalError
from optimizer.model.plan import Leaf
from optimizer.model.types import ColumnType as T
from runtime.buckets import file as bucket_file
from runtime.buckets.checked import CHUNK
from runtime.buckets.file import MAGIC
from runtime.buckets.store import BucketStore
from runtime.buckets.views import View, get_column, put_column, put_view
from runtime.columns.column import from_arrow
from runtime.connectors.base import ARROW_TYPES
from tests.runtime.expressions import VALUES
from tests.runtime.rig import entries

ARRAYS = st.dictionaries(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6),
    st.tuples(
        st.sampled_from(["<u8", "<i8", "<i4", "|u1", "<f8", "|b1"]),
        st.integers(0, 20),
        st.sampled_from([None, 0, 1, 3]),
    ),
    max_size=5,
)


@given(ARRAYS)
def test_a_bucket_reads_back_as_it_was_written(tmp_path_factory, described):
    path = tmp_path_factory.mktemp("bucket") / "b1.bucket"
    arrays = {
        name: np.arange(n * (width if width is not None else 1))
        .astype(dtype)
        .reshape(n if width is None else (n, width))
        for name, (dtype, n, width) in described.items()
    }
    meta = {"stream": "V", "epoch": 7, "types": {"x": "BIGINT"}}
    size = bucket_file.write(path, "p", meta, arrays)
    found = bucket_file.read(path, "p")
    assert (found.name, found.meta, size) == ("b1.bucket", meta, path.stat().st_size)
    assert list(found.arrays) == list(arrays)
    for name, array in arrays.items():
        read = found.arrays[name]
        assert (read.dtype, read.shape) == (array.dtype, array.shape)
        assert np.array_equal(read, array)
        assert array.size == 0 or read.ctypes.data % array.itemsize == 0, "aligned"
    assert [p.name for p in path.parent.iterdir()] == ["b1.bucket"], "no temporary file stays"


@given(st.sampled_from(list(T)).flatmap(lambda t: st.tuples(st.just(t), st.lists(st.sampled_from([None, *VALUES[t]])))))
def test_columns_of_every_type_read_back(tmp_path_factory, column):
    type, values = column
    data = from_arrow(pa.array(values, ARROW_TYPES[type]), type)
    arrays = {}
    put_column(arrays, "x", data)
    store = BucketStore(tmp_path_factory.mktemp("bucket"))
    store.write("b1.bucket", {"types": {"x": type}}, arrays)
    found = get_column(store.open("b1.bucket"), "x")
    assert repr(found.to_arrow().to_pylist()) == repr(data.to_arrow().to_pylist())


def test_a_view_reads_back_with_its_indexes(tmp_path):
    hashes = np.array([5, 3, 5, 9], np.uint64)
    usable = np.array([True, True, True, False])
    sets = np.array([[1, 0], [2, 0], [0, 4], [1, 1]], np.uint64)
    slices = np.array([0, 0, 10, 10])
    key, other = (("k", T.BIGINT),), (("s", T.STRING), ("k", T.BIGINT))
    arrays = {}
    put_view(
        arrays, Leaf("V", 1), 3, np.array([0, 2, 4, 6]), sets, slices, [(key, hashes, usable), (other, hashes, None)]
    )
    store = BucketStore(tmp_path)
    store.write("b1.bucket", {}, arrays)
    view = View(store.open("b1.bucket"), Leaf("V", 1), 3)
    assert view.rows.tolist() == [0, 2, 4, 6]
    assert np.array_equal(view.sets, sets)
    assert entries(view.index(key)) == [[1], [0], [2]], "the item without a key is in no index"
    assert entries(view.index(other)) == [[1], [0], [2], [3]]


def sample(path):
    """A bucket with arrays of every size class, and where its parts lie: (first byte, end) by name."""
    arrays = {"a": np.arange(100), "one": np.array([7], np.uint8), "none": np.empty((0, 2)), "sets": np.ones((40, 2))}
    bucket_file.write(path, "p", {"stream": "V", "epoch": 3}, arrays)
    raw = path.read_bytes()
    length = int.from_bytes(raw[8:16], "little")
    parts = {"magic": (0, 8), "length": (8, 16), "checksum": (16, 24), "header": (24, 24 + length)}
    base = -(-(24 + length) // 64) * 64
    for name, dtype, shape, offset in json.loads(raw[24 : 24 + length])["arrays"]:
        start = base + offset
        parts[name] = (start, start + int(np.prod(shape)) * np.dtype(dtype).itemsize)
    return raw, parts


def assert_damaged(path, raw):
    """Named by `verify` and by whoever opens it and looks at all arrays; never a crash, never another value."""
    path.write_bytes(raw)
    for look in (lambda: bucket_file.verify(path, "p"), lambda: dict(bucket_file.read(path, "p").arrays)):
        with pytest.raises(InternalError, match=r"b7\.bucket") as caught:
            look()
        assert caught.value.reason == "BUCKET_DAMAGED"


@pytest.mark.parametrize("part", ["magic", "length", "checksum", "header", "a", "one", "sets"])
def test_one_wrong_bit_anywhere_is_found(tmp_path, part):
    path = tmp_path / "b7.bucket"
    raw, parts = sample(path)
    rng = Random(part)
    start, end = parts[part]
    every = range(8 * start, 8 * end)
    for bit in every if len(every) <= 64 else rng.sample(every, 64):
        wrong = bytearray(raw)
        wrong[bit // 8] ^= 1 << bit % 8
        assert_damaged(path, wrong)


def test_wrong_padding_of_the_header_is_nobodys_business(tmp_path):
    path = tmp_path / "b7.bucket"
    raw, parts = sample(path)
    padding = range(parts["header"][1], parts["a"][0])
    wrong = bytes(255 if at in padding else byte for at, byte in enumerate(raw))
    assert wrong != raw
    path.write_bytes(wrong)
    bucket_file.verify(path, "p")
    assert bucket_file.read(path, "p").arrays["a"].tolist() == list(range(100))


def test_a_file_of_another_length_is_damaged(tmp_path):
    path = tmp_path / "b7.bucket"
    raw, _ = sample(path)
    rng = Random(1)
    for length in {0, 1, 7, 8, 16, 23, 24, len(raw) - 1, *rng.sample(range(len(raw)), 60)}:
        assert_damaged(path, raw[:length])
    assert_damaged(path, raw + b"\0")
    assert_damaged(path, raw + raw)


def test_random_bytes_are_no_bucket(tmp_path):
    path, rng = tmp_path / "b7.bucket", Random(2)
    for _ in range(50):
        noise = rng.randbytes(rng.randrange(400))
        assert_damaged(path, noise)
        assert_damaged(path, MAGIC + noise)


def test_arrays_are_checked_when_they_are_looked_at_and_only_then(tmp_path):
    path, rows = tmp_path / "b7.bucket", CHUNK // 4
    bucket_file.write(path, "p", {}, {"a": np.arange(rows), "sets": np.ones((rows, 1))})
    wrong = bytearray(path.read_bytes())
    wrong[-1] ^= 1
    path.write_bytes(wrong)
    found = bucket_file.read(path, "p")
    assert found.nbytes == 2 * rows * 8 and "sets" in found.arrays, "neither needs the data"
    assert found.arrays["a"] is found.arrays["a"], "checked once"
    for _ in range(2):
        with pytest.raises(InternalError, match="the checksum of bytes"):
            found.arrays["sets"]
    with pytest.raises(KeyError):
        found.arrays["other"]


def test_a_store_notices_that_an_open_file_was_changed_cut_or_removed(tmp_path):
    store, path = BucketStore(tmp_path), tmp_path / "b1.bucket"
    store.write("b1.bucket", {}, {"a": np.arange(1000)})
    raw = path.read_bytes()
    whole = store.open("b1.bucket")
    assert len(whole.arrays["a"]) == 1000 and store.open("b1.bucket") is whole
    os.truncate(path, len(raw) - 8)
    with pytest.raises(InternalError, match=r"b1\.bucket is damaged"):
        store.open("b1.bucket")
    path.unlink()
    with pytest.raises(InternalError, match=r"b1\.bucket is missing"):
        store.open("b1.bucket")
    path.write_bytes(raw)
    assert store.open("b1.bucket").arrays["a"].tolist() == list(range(1000)), "back again"


def test_a_file_that_cannot_be_read_is_damaged(tmp_path):
    (tmp_path / "b7.bucket").mkdir()
    for look in (bucket_file.verify, bucket_file.read):
        with pytest.raises(InternalError, match=r"b7\.bucket") as caught:
            look(tmp_path / "b7.bucket", "p")
        assert caught.value.reason == "BUCKET_DAMAGED"


def test_a_missing_file_is_named(tmp_path):
    for look in (BucketStore(tmp_path).open, BucketStore(tmp_path).verify):
        with pytest.raises(InternalError, match=r"b8\.bucket") as caught:
            look("b8.bucket")
        assert caught.value.reason == "BUCKET_MISSING"


def test_an_opened_bucket_stays_valid_after_its_name_is_dropped(tmp_path):
    store = BucketStore(tmp_path)
    store.write("b1.bucket", {}, {"a": np.arange(5)})
    opened = store.open("b1.bucket")
    store.drop("b1.bucket")
    store.drop("b1.bucket")  # dropping twice is fine
    assert opened.arrays["a"].tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(InternalError):
        store.open("b1.bucket")


def test_a_second_attempt_replaces_what_the_first_one_wrote(tmp_path):
    store = BucketStore(tmp_path)
    store.write("b1.bucket", {}, {"a": np.arange(3)})
    assert store.open("b1.bucket").arrays["a"].tolist() == [0, 1, 2]
    store.write("b1.bucket", {}, {"a": np.arange(4)})
    assert store.open("b1.bucket").arrays["a"].tolist() == [0, 1, 2, 3]


def test_a_store_travels_as_its_path_and_keeps_few_files_open(tmp_path):
    store = BucketStore(tmp_path, cached=2)
    for n in range(4):
        store.write(f"b{n}.bucket", {"n": n}, {})
    assert [store.open(f"b{n}.bucket").meta["n"] for n in (0, 1, 0, 2, 3, 0)] == [0, 1, 0, 2, 3, 0]
    there = pickle.loads(pickle.dumps(store))
    assert there.open("b3.bucket").meta == {"n": 3}
    assert pickle.loads(pickle.dumps(store)) is there, "tasks of one process share open files"


def test_the_header_is_readable_without_this_program(tmp_path):
    path = tmp_path / "b1.bucket"
    bucket_file.write(path, "p", {"stream": "V"}, {"a": np.array([1, 2], np.int64)})
    raw = path.read_bytes()
    length = int.from_bytes(raw[8:16], "little")
    header = json.loads(raw[24 : 24 + length])
    sums = base64.b64encode(xxhash.xxh3_64_intdigest(np.array([1, 2], np.int64)).to_bytes(8, "little")).decode()
    about = {"name": "b1.bucket", "platform": "p", "meta": {"stream": "V"}}
    assert header == about | {"arrays": [["a", "<i8", [2], 0]], "bytes": 16, "chunk": 4096, "sums": sums}
    assert int.from_bytes(raw[16:24], "little") == xxhash.xxh3_64_intdigest(raw[8:16] + raw[24 : 24 + length])


def test_open_buckets_are_bounded_in_bytes_and_open_again_as_they_were(tmp_path):
    store = BucketStore(tmp_path, cached_bytes=20_000)
    for i in range(5):
        store.write(f"b{i}.bucket", {}, {"x": np.full(1000, i)})
    opened = [store.open(f"b{i}.bucket") for i in range(5)]
    assert store.open("b4.bucket") is opened[4], "the newest are still open"
    assert store.open("b0.bucket") is not opened[0], "the oldest had to go"
    assert [int(f.arrays["x"][0]) for f in opened] == [0, 1, 2, 3, 4], "whoever holds one keeps it"
    assert sum(opened.file.nbytes for opened in store._open._values.values()) == store._open._weight <= 20_000


def test_one_bucket_larger_than_the_bound_can_still_be_opened(tmp_path):
    store = BucketStore(tmp_path, cached_bytes=100)
    store.write("big.bucket", {}, {"x": np.arange(1000)})
    assert store.open("big.bucket") is store.open("big.bucket")
