"""Whole files in the wrong place: exchanged, or copied from another state directory. Each is noticed and named, and
rows stay what they are."""

from __future__ import annotations

import logging
import shutil

import pytest

from optimizer.errors import InternalError
from runtime.buckets import file as bucket_file
from runtime.plugins import load
from runtime.state_tools.files import read_state
from runtime.state_tools.verify import verify
from runtime.state_tools.verify_store import verify as verify_store
from tests.lives.executors import Stubborn
from tests.runtime.damage_world import TWO, finish, joining, kinds, repairs
from tests.runtime.rig import Rig

EXCHANGES = ("same stream", "other stream", "source with joined", "two joined", "another directory")


def exchange(path, other):
    kept = path.read_bytes()
    path.write_bytes(other.read_bytes())
    other.write_bytes(kept)


def misplace(rig, which, elsewhere):
    """Put bucket files in each other's place; the names of those that are wrong afterwards."""
    state, folder = rig.engine.state, rig.directory / "buckets"
    sources = sorted(state.sources.values(), key=lambda r: r.id)
    a = next(r for r in sources if r.stream == "A")
    if which == "another directory":
        other = joining(elsewhere)
        assert (elsewhere / "buckets" / a.file).exists(), "the same name, the same tuples, another platform"
        shutil.copy(elsewhere / "buckets" / a.file, folder / a.file)
        other.engine.abandon()
        return [a.file]
    pairs = {
        "same stream": (a.file, next(r.file for r in sources if r.stream == "A" and r.epoch != a.epoch)),
        "other stream": (a.file, next(r.file for r in sources if r.stream == "B" and r.epoch == a.epoch)),
        "source with joined": (a.file, kinds(state)["joined"][0]),
        "two joined": tuple(kinds(state)["joined"][:2]),
    }
    exchange(*(folder / name for name in pairs[which]))
    return list(pairs[which])


@pytest.mark.parametrize("which", EXCHANGES)
def test_a_bucket_file_in_the_wrong_place_is_noticed_and_made_again(tmp_path, which, undamaged, caplog):
    rig = joining(tmp_path / "state", Stubborn(1))
    wrong = misplace(rig, which, tmp_path / "elsewhere")
    problems = verify(rig.directory).problems
    assert sorted(p.file for p in problems) == sorted(f"buckets/{name}" for name in wrong)
    for p in problems:
        said = "of another platform" if which == "another directory" else "is another file of this platform"
        assert p.reason == "BUCKET_DAMAGED" and said in p.what
    rig.reopen()
    with caplog.at_level(logging.WARNING):
        assert finish(rig) == undamaged
    assert repairs(rig.engine) == 1
    for name in wrong:
        assert f"bucket file {name} is damaged: it is" in caplog.text
    assert not verify(rig.directory).problems


@pytest.mark.parametrize("scheme", ["", "opaque://"])
def test_objects_of_a_store_that_were_exchanged_are_told_and_not_used(tmp_path, undamaged, scheme):
    load(("tests.tools.opaque_store",))
    uri = f"{scheme}{tmp_path / 'far'}"
    rig = joining(tmp_path / "state", store=uri)
    one, two = kinds(rig.engine.state)["base"][:2]
    exchange(tmp_path / "far" / "buckets" / one, tmp_path / "far" / "buckets" / two)
    found = verify_store(uri).problems
    assert sorted(p.file for p in found) == [f"buckets/{one}", f"buckets/{two}"]
    rig.engine.abandon()
    shutil.rmtree(rig.directory)
    rig.engine = rig._open()
    assert finish(rig) == undamaged
    assert repairs(rig.engine) == 1, "their tuples are read again"


def test_the_platform_id_stays_and_goes_along(tmp_path):
    """Through restarts, into a store that is added later, and back when the directory is lost."""
    rig = joining(tmp_path / "state")
    platform = rig.engine.state.platform
    assert len(platform) == 32
    rig.reopen(kill=False)
    rig.reopen(kill=True)
    assert rig.engine.state.platform == read_state(rig.directory).state.platform == platform
    rig.engine.close()
    far = Rig(tmp_path / "state", store=str(tmp_path / "far"))
    assert far.engine.state.platform == platform
    far.engine.abandon()
    shutil.rmtree(tmp_path / "state")
    again = Rig(tmp_path / "state", store=str(tmp_path / "far"))
    assert again.engine.state.platform == platform and again.rows("two")
    assert Rig(tmp_path / "other").engine.state.platform != platform


def test_a_directory_that_died_before_its_first_epoch_keeps_its_id(tmp_path):
    rig = Rig(tmp_path)
    platform = rig.engine.state.platform
    rig.reopen(kill=True)
    assert rig.engine.state.platform == platform


def test_a_file_under_another_name_is_not_opened(tmp_path):
    bucket_file.write(tmp_path / "b1.bucket", "p", {}, {})
    shutil.copy(tmp_path / "b1.bucket", tmp_path / "b2.bucket")
    bucket_file.verify(tmp_path / "b1.bucket", "p")
    for name, platform, said in (("b2", "p", "another file of this platform, b1"), ("b1", "q", "of another platform")):
        for look in (bucket_file.read, bucket_file.verify):
            with pytest.raises(InternalError, match=said) as caught:
                look(tmp_path / f"{name}.bucket", platform)
            assert caught.value.reason == "BUCKET_DAMAGED" and name in caught.value.message


# -- result segments ----------------------------------------------------------------------------------------------


def equal_segments(path):
    """Two epochs whose segments differ in nothing but their names."""
    rig = Rig(path)
    for name in "AB":
        rig.stream(name, k="BIGINT", j="BIGINT", n="INT")
    rig.create("q", TWO)
    for start in (0, 10_000):
        rig.epoch({"A": [(1, 1, 1, start)], "B": [(1, 1, 1, start)]})
    return rig


def test_segments_that_were_exchanged_are_damaged_however_alike_they_are(tmp_path):
    rig = equal_segments(tmp_path)
    (one,), (two,) = rig.engine.state.segments.values()
    assert (one.bytes, one.index, one.rows) == (two.bytes, two.index, two.rows)
    exchange(tmp_path / "results" / one.file, tmp_path / "results" / two.file)
    assert {p.file for p in verify(tmp_path).problems} == {f"results/{one.file}", f"results/{two.file}"}
    rig.reopen()
    with pytest.raises(InternalError) as caught:
        rig.rows("q")
    assert caught.value.reason == "RESULTS_DAMAGED"


def test_a_segment_of_another_platform_is_damaged(tmp_path):
    rig, other = equal_segments(tmp_path / "one"), equal_segments(tmp_path / "two")
    (segment,) = rig.engine.state.segments[1]
    assert other.engine.state.segments[1][0].file == segment.file
    shutil.copy(tmp_path / "two" / "results" / segment.file, tmp_path / "one" / "results" / segment.file)
    (problem,) = verify(tmp_path / "one").problems
    assert problem.file == f"results/{segment.file}" and problem.reason == "RESULTS_DAMAGED"
