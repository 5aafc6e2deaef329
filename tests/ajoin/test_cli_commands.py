"""The commands as a user types them, against a real service: engine in this process, gRPC on a port."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ajoin.cli import app
from ajoin.platform.platform import Pace, Platform
from ajoin.service import ServerThread
from runtime.engine.config import EngineConfig
from runtime.engine.engine import Engine
from runtime.execution.executor import LocalExecutor
from tests.ajoin.world import WAIT

JOIN = "SELECT V.vID, V.geo, W.usrID FROM V JOIN W ON V.vID = W.vID WINDOW TUMBLING (SIZE 1 SECOND)"


class Shell:
    """`shell("query list")` runs `ajoin query list` against the service."""

    def __init__(self, server: str, platform: Platform) -> None:
        self.server = server
        self.platform = platform

    def __call__(self, *arguments: str, stdin: str | None = None, code: int = 0) -> str:
        done = CliRunner().invoke(
            app, list(arguments), input=stdin, env={"AJOIN_SERVER": self.server, "COLUMNS": "200"}
        )
        assert done.exit_code == code, done.output
        return done.stdout if code == 0 or "--json" in arguments else done.stderr

    def json(self, *arguments: str, **options: Any) -> Any:
        return json.loads(self(*arguments, "--json", **options))

    def push(self, stream: str, *rows: dict[str, Any]) -> None:
        """Push and wait until the rows are ingested."""
        before = self.platform.stream(stream).tuples
        self.platform.push(stream, rows).result()
        assert self.platform.wait_until(lambda: self.platform.stream(stream).tuples == before + len(rows), timeout=WAIT)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    ticks = iter(range(1_700_000_000_000, 1_800_000_000_000))
    engine = Engine.open(tmp_path / "state", LocalExecutor(), EngineConfig(), lambda: next(ticks))
    platform = Platform(engine, clock=lambda: next(ticks), pace=Pace(0.01, 0.01, 0.05))
    with platform, ServerThread(platform) as server:
        yield Shell(server.address, platform)


@pytest.fixture
def streams(shell: Shell) -> Shell:
    for name, key in (("V", "geo:STRING"), ("W", "usrID:BIGINT")):
        shell("stream", "create", name, "-c", "ts:TIMESTAMP", "-c", "vID:BIGINT", "-c", key,
              "--time", "ts", "--source", "push", "--watermark-delay-ms", "5")  # fmt: skip
    return shell


def test_the_life_of_a_stream(shell: Shell) -> None:
    assert "no streams" in shell("stream", "list")
    said = shell(
        "stream", "create", "V", "--column", "ts:TIMESTAMP", "--column", "vID:BIGINT", "--time", "ts",
        "--source", "generator", "--option", "rate=10", "--option", "column.vID=uniform(1,5)",
    )  # fmt: skip
    assert "created stream V" in said
    shown = shell.json("stream", "show", "V")
    assert [c["name"] for c in shown["schema"]["columns"]] == ["ts", "vID"]
    assert ["rate", "10"] in shown["source"]["options"]
    text = shell("stream", "show", "V")
    assert "vID BIGINT" in text
    assert "event time" in text
    assert [s["schema"]["name"] for s in shell.json("stream", "list")] == ["V"]
    assert shell.json("stream", "delete", "V") == {"deleted": "V"}
    assert shell.json("stream", "list") == []


def test_a_query_from_creation_to_its_rows(streams: Shell) -> None:
    shell = streams
    assert "no queries" in shell("query", "list")
    created = shell.json("query", "create", JOIN, "--id", "q1")
    assert (created["id"], created["state"], created["active_from"]) == ("q1", "RUNNING", None)
    shell.push("V", {"ts": 1000, "vID": 7, "geo": "DE"}, {"ts": 1001, "vID": 7, "geo": None})
    shell.push("W", {"ts": 1500, "vID": 7, "usrID": 42})
    rows = shell("tail", "q1", "--no-follow", "--json").splitlines()
    assert sorted(map(json.loads, rows), key=str) == [
        {"window_start": 1000, "window_end": 2000, "revision": 0, "row": {"vID": 7, "geo": geo, "usrID": 42}}
        for geo in ("DE", None)
    ]
    table = shell("tail", "q1", "--limit", "1").splitlines()
    assert table[0].split() == ["window_start", "window_end", "vID", "geo", "usrID"]
    assert table[2].startswith("1970-01-01 00:00:01.000")
    assert len(table) == 3
    assert shell("query", "list").splitlines()[1].split()[:3] == ["q1", "RUNNING", "0"]
    assert "2" in shell("query", "show", "q1")
    assert shell.json("query", "show", "q1")["rows"] == 2
    assert shell.json("query", "delete", "q1")["state"] == "DELETED"
    assert shell.json("query", "list") == []
    assert [q["id"] for q in shell.json("query", "list", "--all")] == ["q1"]


def test_sql_comes_from_an_argument_a_file_or_standard_input(streams: Shell, tmp_path: Path) -> None:
    file = tmp_path / "q.sql"
    file.write_text(JOIN)
    assert streams.json("query", "create", "-f", str(file), "--id", "a")["sql"] == JOIN
    assert streams.json("query", "create", "--id", "b", stdin=JOIN)["sql"] == JOIN
    assert streams.json("query", "create", "-", "--id", "c", stdin=JOIN)["sql"] == JOIN
    assert streams.json("query", "create", JOIN)["id"]
    assert "not both" in streams("query", "create", JOIN, "-f", str(file), code=2)
    assert "cannot read" in streams("query", "create", "-f", str(tmp_path / "none.sql"), code=2)


def test_a_sink_is_a_kind_with_options(streams: Shell, tmp_path: Path) -> None:
    made = streams.json("query", "create", JOIN, "--id", "q1", "--sink", f"parquet:path={tmp_path / 'out'}")
    assert made["sinks"] == [{"kind": "parquet", "options": [["path", str(tmp_path / "out")]]}]
    assert "KEY=VALUE" in streams("query", "create", JOIN, "--sink", "parquet:path", code=2)


def test_explain_shows_the_plan_a_query_and_a_candidate(streams: Shell) -> None:
    streams("query", "create", JOIN, "--id", "q1")
    assert "(V ⋈ W)" in streams("explain")
    assert "q1" in streams("explain", "q1")
    assert "candidate" in streams("explain", "--sql", JOIN)
    assert streams.json("explain")["queries"][0]["id"] == "q1"
    assert streams("explain", "--format", "dot").startswith("digraph")
    assert "not both" in streams("explain", "q1", "--sql", JOIN, code=2)


def test_steering_the_plan(streams: Shell) -> None:
    for id in ("q1", "q2"):
        streams("query", "create", JOIN, "--id", id)
    version = streams.json("scale", "--partitions", "3")["plan_version"]
    assert streams.json("scale", "--split", "1:2")["plan_version"] == version + 1
    assert streams.json("force", "groups", "q1=0", "q2=1")["plan_version"] == version + 2
    assert {q["id"]: q["group"] for q in streams.json("query", "list")} == {"q1": 0, "q2": 1}
    assert streams.json("force", "order", "q1", '["W","V"]')["plan_version"] >= version + 2
    assert "order and group" in streams("query", "show", "q1") and "the partition function" in streams("status")
    assert "done: plan version" in streams("unpin", "q1", "--scale")
    assert "pinned" not in streams("query", "show", "q1") and "the group of q2" in streams("status")
    assert "done: plan version" in streams("unpin", "--all") and "pinned" not in streams("status")
    assert "optimize_calm is 9 now" in streams("set", "optimize-calm", "9")
    assert "(configured: 6)" in streams("settings")
    assert "as configured" in streams("set", "optimize_calm", "--reset")
    dry = streams.json("optimize", "--full", "--dry-run")
    assert (dry["mode"], dry["applied"]) == ("full", False)
    assert streams.json("optimize")["plan_version"] >= version + 2
    assert "optimization of the plan" in streams("optimize", "--dry-run")
    assert "plan version" in streams("optimize", "--full")
    assert "done: plan version" in streams("scale", "--partitions", "2")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["scale"], "one of the two"),
        (["scale", "--partitions", "2", "--split", "0:2"], "one of the two"),
        (["scale", "--split", "0"], "PARTITION:WAYS"),
        (["scale", "--split", "x:2"], "not a number"),
        (["force", "order", "q1", "V"], "join order"),
        (["force", "order", "q1", '"V"'], "join order"),
        (["force", "order", "q1", '["V", ["W"]]'], "join order"),
        (["force", "groups", "q1"], "KEY=VALUE"),
        (["unpin"], "--all"),
        (["unpin", "q1", "--all"], "nothing else"),
        (["set", "optimize_calm"], "--reset"),
        (["force", "groups", "q1=x"], "not a number"),
    ],
)
def test_wrong_steering_is_a_usage_error(arguments: list[str], words: str) -> None:
    done = CliRunner().invoke(app, arguments, env={"AJOIN_SERVER": "127.0.0.1:1", "COLUMNS": "200"})
    assert done.exit_code == 2
    assert words in done.stderr


def test_status_counts(streams: Shell) -> None:
    streams.push("V", {"ts": 1000, "vID": 7, "geo": "DE"})
    status = streams.json("status")
    assert (status["state"], status["streams"], status["tuples"]) == ("RUNNING", 2, 1)
    text = streams("status")
    assert "RUNNING" in text
    assert "plan version" in text


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["stream", "show", "X"], "STREAM_NOT_FOUND"),
        (["stream", "delete", "X"], "STREAM_NOT_FOUND"),
        (["query", "show", "q9"], "QUERY_NOT_FOUND"),
        (["query", "delete", "q9"], "QUERY_NOT_FOUND"),
        (["tail", "q9"], "QUERY_NOT_FOUND"),
        (["tail", "q9", "--cursor", "x"], "BAD_CURSOR"),
        (["explain", "q9"], "QUERY_NOT_FOUND"),
        (["stream", "create", "X", "-c", "ts:BLOB", "--time", "ts"], "UNKNOWN_COLUMN_TYPE"),
        (["stream", "create", "X", "-c", "ts:TIMESTAMP", "--time", "t"], "TIME_COLUMN_MISSING"),
        (
            ["stream", "create", "X", "-c", "ts:TIMESTAMP", "--time", "ts", "-o", "rte=1"],
            "BAD_CONNECTOR_OPTION",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_a_refusal_is_one_line_or_one_json_object(shell: Shell, arguments: list[str], reason: str) -> None:
    said = shell(*arguments, code=1)
    assert said.startswith(f"error {reason}: ")
    assert said.count("\n") == 1
    error = shell.json(*arguments, code=1)["error"]
    assert error["reason"] == reason
    assert error["message"]


def test_a_sql_error_has_its_place(streams: Shell) -> None:
    error = streams.json("query", "create", JOIN.replace("V.geo", "V.goe"), code=1)["error"]
    assert (error["line"], error["column"]) == (1, JOIN.index("geo") + 1)
    assert error["token"] == "goe"
    assert "geo" in error["hint"] + error["message"]


def test_nobody_listening_is_a_clear_error() -> None:
    done = CliRunner().invoke(app, ["status", "--server", "127.0.0.1:1"])
    assert done.exit_code == 1
    assert "UNREACHABLE" in done.stderr
    assert "ajoin serve" in done.stderr
