"""Bucket files: what is written is what is read, completely or not at all, and damage is named."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.errors import InternalError
from optimizer.plan import Leaf
from optimizer.types import ColumnType as T
from runtime.buckets import file as bucket_file
from runtime.buckets.file import MAGIC, BucketStore
from runtime.buckets.views import View, get_column, put_column, put_view
from runtime.columns import from_arrow
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
    size = bucket_file.write(path, meta, arrays)
    found = bucket_file.read(path)
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


def spoil_magic(data):
    return b"NOBUCKET" + data[8:]


def spoil_header(data):
    return data[:16] + b"{" * 20 + data[36:]


def cut_header(data):
    return data[:30]


def cut_arrays(data):
    return data[:-100]


def nothing(data):
    return b""


def not_even_a_length(data):
    return MAGIC


@pytest.mark.parametrize("spoil", [spoil_magic, spoil_header, cut_header, cut_arrays, nothing, not_even_a_length])
def test_a_damaged_file_is_named_and_never_read_as_something_else(tmp_path, spoil):
    path = tmp_path / "b7.bucket"
    bucket_file.write(path, {"x": 1}, {"a": np.arange(100)})
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(InternalError, match=r"b7\.bucket") as caught:
        bucket_file.read(path)
    assert caught.value.reason in ("BUCKET_DAMAGED", "BUCKET_MISSING")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InternalError, match=r"b8\.bucket") as caught:
        BucketStore(tmp_path).open("b8.bucket")
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
    bucket_file.write(path, {"stream": "V"}, {"a": np.array([1, 2], np.int64)})
    raw = path.read_bytes()
    length = int.from_bytes(raw[8:16], "little")
    header = json.loads(raw[16 : 16 + length])
    assert header == {"meta": {"stream": "V"}, "arrays": [["a", "<i8", [2], 0]]}
