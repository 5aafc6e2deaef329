"""A crash at every named point, at its first and last hit (the long run: at every hit): afterwards each row is there
exactly once, and everything the platform had said still holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from runtime import crashpoints
from runtime.crashpoints import POINTS
from tests.faults.story import expected, tell

ROOT = Path(__file__).parents[2]
LOCAL = [name for name in POINTS if not name.startswith("store.")]
ONLY_LOCAL = {"log.append.torn", "snapshot.written", "snapshot.renamed"}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    survivor, wrong = tell(tmp_path_factory.mktemp("undisturbed"))
    assert wrong == []
    assert survivor.died == []
    return survivor


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    survivor, wrong = tell(tmp_path_factory.mktemp("stored"), store="opaque")
    assert wrong == []
    return survivor


def test_the_story_comes_along_every_point(undisturbed, stored):
    assert set(undisturbed.hits) == set(LOCAL)
    assert set(stored.hits) == set(POINTS) - ONLY_LOCAL


def test_the_story_has_rows_late_tuples_and_counts(undisturbed):
    assert all(q.rows for q in expected().queries.values())
    assert any(s.late_dropped for s in expected().streams.values())
    assert undisturbed.refused


@pytest.mark.parametrize("name", LOCAL)
def test_a_crash_at_any_point_loses_and_repeats_nothing(tmp_path, undisturbed, name):
    last = undisturbed.hits[name]
    for count in sorted({1, last}):
        survivor, wrong = tell(tmp_path / str(count), [(name, count)])
        assert wrong == [], f"died at {name}, hit {count} of {last}"
        if not name.startswith("recover"):  # those hits are spread over several processes
            assert survivor.died == [name]


@pytest.mark.parametrize(
    "name", [*(n for n in POINTS if n.startswith("store.")), "epoch.committed", "bucket.renamed", "segment.written"]
)
def test_a_crash_at_any_point_may_take_the_local_directory_with_it(tmp_path, stored, name):
    last = stored.hits[name]
    for count in sorted({1, last}):
        survivor, wrong = tell(tmp_path / str(count), [(name, count)], store="opaque")
        assert wrong == [], f"died at {name}, hit {count} of {last}"
        assert survivor.died == [name]


@pytest.mark.parametrize("name", ["recover.read", "recover.cleaned", "recover.delivered", "bucket.renamed"])
@pytest.mark.parametrize("first", ["epoch.planned", "epoch.commit", "epoch.committed"])
def test_a_crash_while_recovering_from_a_crash(tmp_path, first, name):
    survivor, wrong = tell(tmp_path, [(first, 4), (name, 1), (name, 1)])
    assert wrong == []
    assert survivor.died[0] == first


@pytest.mark.long
@pytest.mark.parametrize("name", POINTS)
@pytest.mark.parametrize("how", [{}, {"store": "path"}, {"store": "opaque"}], ids=["directory", "path", "objects"])
def test_a_crash_at_every_hit_of_every_point(tmp_path, undisturbed, stored, name, how):
    rehearsal = stored if "store" in how else undisturbed
    for count in range(1, rehearsal.hits[name] + 1):
        _, wrong = tell(tmp_path / str(count), [(name, count)], **how)
        assert wrong == [], f"died at {name}, hit {count}"


def test_every_point_in_the_code_is_in_the_list():
    code = "".join(p.read_text() for p in (ROOT / "runtime").rglob("*.py"))
    assert set(re.findall(r"(?:\breach\(\s*|\bpoint=)\"([^\"]+)\"", code)) == set(POINTS)


def test_the_documentation_has_every_point_and_says_the_same():
    page = (ROOT / "docs" / "faults.md").read_text()
    assert dict(re.findall(r"^\| `([a-z.]+)` \| (.+?) \|", page, re.MULTILINE)) == dict(POINTS)


def test_an_unknown_point_cannot_be_armed_or_reached():
    with pytest.raises(ValueError, match="no crash point"), crashpoints.arm("nowhere"):
        pass
    crashpoints.reach("nowhere")  # nobody looks
    with crashpoints.arm(None), pytest.raises(ValueError, match="no crash point"):
        crashpoints.reach("nowhere")
