"""`ajoin state ...` on a real directory: text for people, JSON for programs, exit codes for scripts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ajoin.cli import app
from tests.ajoin.world import JOIN, running, with_streams


def ajoin(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["state", *arguments], env={"COLUMNS": "200"})
    return done.exit_code, done.stdout + done.stderr


def as_json(*arguments: str) -> Any:
    return json.loads(ajoin(*arguments, "--json")[1])


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    state = tmp_path / "state"
    with with_streams(state) as world:
        world.client.create_query(JOIN, id="q1")
        world.feed({"V": [{"ts": 1, "vID": 7, "geo": "DE"}], "W": [{"ts": 1, "vID": 7, "usrID": 1}]})
        assert world.platform.wait_until(lambda: world.platform.query("q1").rows == 1, 60)
    return state


def test_a_whole_directory(directory: Path) -> None:
    where = ("--state-dir", str(directory))
    report = as_json("inspect", *where)
    assert [s["name"] for s in report["streams"]] == ["V", "W"] and report["queries"][0]["rows"] == 1
    assert report["running"] is False and report["debris"] == [] and report["planned"] is None
    code, text = ajoin("inspect", *where)
    assert code == 0 and f"epoch:        {report['epoch']:,}" in text and "q1" in text and "push" in text
    code, text = ajoin("verify", *where)
    assert code == 0 and "everything holds" in text
    assert ajoin("gc", *where) == (0, "there is nothing to remove\n")


def test_a_damaged_directory_with_debris(directory: Path) -> None:
    where = ("--state-dir", str(directory))
    bucket = min((directory / "buckets").iterdir())
    bucket.write_bytes(bucket.read_bytes()[:-1])
    (directory / "buckets" / "b99.bucket").write_bytes(b"x" * 2048)
    found = as_json("verify", *where)
    assert [(p["file"], p["reason"]) for p in found["problems"]] == [(f"buckets/{bucket.name}", "BUCKET_DAMAGED")]
    code, text = ajoin("verify", *where)
    assert code == 1 and bucket.name in text and "1 problems" in text and "reads its 1 tuples again" in text
    assert ajoin("verify", *where, "--json")[0] == 1
    assert "1 files, 2.0 KiB" in ajoin("inspect", *where)[1]
    assert as_json("gc", "--dry-run", *where) == {
        "removed": False,
        "files": [{"path": "buckets/b99.bucket", "bytes": 2048, "why": "no committed epoch lists it"}],
        "bytes": 2048,
    }
    code, text = ajoin("gc", *where)
    assert code == 0 and "1 files with 2.0 KiB removed" in text and not (directory / "buckets" / "b99.bucket").exists()


def test_while_a_platform_runs(tmp_path: Path) -> None:
    with with_streams(tmp_path / "state"):
        where = ("--state-dir", str(tmp_path / "state"))
        for command in ("inspect", "verify"):
            code, text = ajoin(command, *where)
            assert code == 0 and "a platform is running" in text and as_json(command, *where)["running"] is True
        code, text = ajoin("gc", *where)
        assert code == 1 and text.startswith("error STATE_LOCKED:")


def test_no_directory_is_a_clear_error(tmp_path: Path) -> None:
    for command in ("inspect", "verify", "gc"):
        code, text = ajoin(command, "--state-dir", str(tmp_path / "nowhere"))
        assert code == 1 and text.startswith("error STATE_NOT_FOUND:")
    assert not (tmp_path / "nowhere").exists()


def test_suspending_without_a_platform(directory: Path) -> None:
    where = ("--state-dir", str(directory))
    code, text = ajoin("suspend", "q2", *where)
    assert code == 1 and "QUERY_NOT_FOUND" in text
    code, text = ajoin("suspend", "q1", *where)
    assert code == 0 and "q1 is suspended" in text and "plan version" in text
    assert [q["state"] for q in as_json("inspect", *where)["queries"]] == ["SUSPENDED"]
    assert as_json("suspend", "all", *where)["queries"] == []
    assert ajoin("verify", *where)[0] == 0
    with running(directory) as world:
        assert world.client.query("q1").state == "SUSPENDED"
        code, text = ajoin("suspend", "all", *where)
        assert code == 1 and "STATE_LOCKED" in text
