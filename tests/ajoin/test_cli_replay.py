"""`ajoin replay` and `ajoin demo` as commands: files, exit codes, what is said where."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ajoin.cli import app
from ajoin.demo.data import QUERIES, STREAMS
from ajoin.demo.story import wrap
from ajoin.sql import parse_query

LINES = [
    {"stream": "V", "schema": {"ts": "TIMESTAMP", "vID": "BIGINT"}, "time": "ts"},
    {"stream": "W", "schema": {"ts": "TIMESTAMP", "vID": "BIGINT"}, "time": "ts"},
    {"create": "q1", "sql": "SELECT * FROM V JOIN W ON V.vID = W.vID WINDOW TUMBLING (SIZE 1 SECOND)"},
    {"event": "V", "row": {"ts": 1000, "vID": 7}},
    {"event": "W", "row": {"ts": 1100, "vID": 7}},
    {"restart": "kill"},
    {"epoch": True},
]


def replay(folder: Path, *flags: str, lines: list[object] | None = None) -> Result:
    scenario = folder / "scenario.jsonl"
    scenario.write_text("\n".join(map(json.dumps, LINES if lines is None else lines)))
    out = str(folder / "out")
    return CliRunner().invoke(app, ["replay", str(scenario), "--out", out, "--set", "executor=local", *flags])


def test_a_scenario_runs_and_says_what_it_wrote(tmp_path: Path) -> None:
    done = replay(tmp_path)
    assert done.exit_code == 0, done.output
    assert "replayed 1 epoch and 2 tuples" in done.stdout
    (row,) = (tmp_path / "out" / "results.jsonl").read_text().splitlines()
    assert json.loads(row)["row"] == {"V.ts": 1000, "V.vID": 7, "W.ts": 1100, "W.vID": 7}


def test_with_json_stdout_is_the_report(tmp_path: Path) -> None:
    done = replay(tmp_path, "--json", "--no-flush", "--set", "partitions=3")
    said = json.loads(done.stdout)
    assert said["tuples"] == {"V": 1, "W": 1}
    assert Path(said["files"]["report"]).is_file()
    assert "3 partitions" in said["plans"][-1]["plan"]


def test_a_chosen_state_directory_must_be_empty(tmp_path: Path) -> None:
    state = f"state_dir={tmp_path / 'state'}"
    assert replay(tmp_path, "--set", state).exit_code == 0
    again = replay(tmp_path, "--set", state)
    assert again.exit_code == 2
    assert "not empty" in again.stderr


def test_a_configured_state_directory_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AJOIN_STATE_DIR", str(tmp_path / "production"))
    assert replay(tmp_path).exit_code == 0
    assert not (tmp_path / "production").exists()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"creat": "q1"}, "line 1"),
        ({"event": "V", "row": {}}, "line 1: stream 'V' is not declared"),
        ({"delete": "q1"}, "line 1"),
        ({"create": "q1", "sql": "SELECT"}, "line 1"),
    ],
)
def test_a_wrong_scenario_ends_with_2_and_one_line(tmp_path: Path, line: object, words: str) -> None:
    done = replay(tmp_path, lines=[line])
    assert done.exit_code == 2
    assert words in done.stderr.splitlines()[-1]
    error = json.loads(replay(tmp_path, "--json", lines=[line]).stdout)["error"]
    assert error["line"] == 1


def test_a_wrong_command_line_ends_with_2(tmp_path: Path) -> None:
    assert CliRunner().invoke(app, ["replay"]).exit_code == 2
    done = CliRunner().invoke(app, ["replay", "--json"])
    assert done.exit_code == 2
    assert json.loads(done.stdout)["error"]["reason"] == "USAGE"
    assert CliRunner().invoke(app, ["replay", str(tmp_path / "none"), "--out", "x"]).exit_code == 2


def test_the_demo_tells_its_story_and_ends() -> None:
    done = CliRunner().invoke(
        app,
        [
            "demo",
            "--json",
            "--set",
            "executor=local",
            "--set",
            "epoch_interval=0.1",
            "--set",
            "batch_interval=0.1",
        ],
    )
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    assert set(summary["tuples"]) == {"V", "W", "C", "R"}
    assert {id: q["state"] for id, q in summary["queries"].items()} == {
        "Q1": "DELETED",
        "Q2": "RUNNING",
        "Q3": "RUNNING",
        "Q4": "RUNNING",
        "Q5": "RUNNING",
    }
    assert all(q["rows"] > 0 for q in summary["queries"].values())
    assert summary["savings"]["joins_run"] < summary["savings"]["joins_asked"]
    assert (summary["savings"]["folds_asked"], summary["savings"]["folds_run"]) == (2, 1)
    for words in ("create Q1", "create Q2", "create Q3", "delete Q1", "shared by 2", "next rows of Q2"):
        assert words in done.stderr
    for words in ("create Q4", "how Q5 runs", "Q4 and Q5 fold W by geo once", "next rows of Q5"):
        assert words in done.stderr
    assert max(map(len, done.stderr.splitlines())) <= 100


def test_the_aggregations_of_the_demo_differ_and_share_a_fold() -> None:
    schemas = {s.name: s.schema for s in STREAMS}
    fourth, fifth = (parse_query(q.sql, schemas) for q in QUERIES if q.folds)
    assert fourth.groups == fifth.groups
    assert fourth.window != fifth.window and fourth.selections != fifth.selections and fifth.having is not None
    assert [q.folds for q in QUERIES] == [bool(parse_query(q.sql, schemas).groups) for q in QUERIES]


def test_a_long_line_of_a_plan_goes_on_beside_its_branches() -> None:
    line = "│   ├── W  index usrID, vID  σ Q1: geo = 'GER'  [Q1 Q2 Q3 · bits 0-2]  shared by 3"
    assert wrap(line, 50) == [
        "│   ├── W  index usrID, vID  σ Q1: geo = 'GER'",
        "│   │       [Q1 Q2 Q3 · bits 0-2]  shared by 3",
    ]
    assert wrap(line, 200) == [line]


def test_a_long_sentence_about_a_plan_goes_on_below_itself() -> None:
    said = "Q4 and Q5 fold W by geo once: 60 slices a minute"
    assert wrap(said, 32) == ["Q4 and Q5 fold W by geo once: 60", "    slices a minute"]
    assert wrap(f"join order  {said}", 34) == [
        "join order  Q4 and Q5 fold W by",
        "            geo once: 60 slices a",
        "            minute",
    ]
    assert wrap("", 34) == [""]
