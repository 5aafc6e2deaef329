"""`ajoin serve` as a process of its own: it says where it listens, ends when told to, and remembers."""

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ajoin.cli import app
from ajoin.client.client import Client
from ajoin.service.tokens import Role, create_token
from optimizer.errors import InternalError
from tests.ajoin.certificates import Authority
from tests.ajoin.world import WAIT
from tests.tools.ports import free_port


@contextmanager
def serving(folder: Path, *flags: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process and its address, once it listens."""
    command = [
        sys.executable, "-c", "from ajoin.cli import main; main()",
        "serve", "--json", "--set", "executor=local",
        "--listen", "127.0.0.1:0", "--state-dir", str(folder / "state"), "--epoch-interval", "0.05",
        "--batch-interval", "0.05", *flags,
    ]  # fmt: skip
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            assert first, process.stderr and process.stderr.read()
            yield process, json.loads(first)["listening"]
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_it_is_told_to_stop_and_recovers(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path, "--demo-streams") as (process, address):
        with Client(address) as client:
            assert [s.schema.name for s in client.streams()] == ["C", "R", "V", "W"]
            client.create_query("SELECT V.vID FROM V JOIN W ON V.vID = W.vID WINDOW TUMBLING (SIZE 1 SECOND)", id="q1")
            assert len(client.results("q1", limit=3, timeout=WAIT)) == 3
        process.send_signal(number)
        assert process.wait(WAIT) == 0
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
    if number == signal.SIGTERM:
        with serving(tmp_path, "--demo-streams") as (_, address), Client(address) as client:
            assert client.query("q1").rows >= 3
            assert len(client.streams()) == 4


def test_it_serves_other_machines_with_tls_tokens_metrics_and_a_json_log(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca", "ours")
    pair = authority.sign("server")
    port = free_port()
    tokens = tmp_path / "tokens.toml"
    token = create_token(tokens, "operator", Role.admin)
    flags = [
        "--listen", "0.0.0.0:0", "--tls-cert", str(pair.cert), "--tls-key", str(pair.key), "--token-file", str(tokens),
        "--set", f"metrics_port={port}", "--set", "log_format=json",
    ]  # fmt: skip
    with serving(tmp_path, *flags) as (process, address):
        server = address.replace("0.0.0.0", "127.0.0.1")
        environment = {"AJOIN_SERVER": server, "AJOIN_TLS_CA": str(authority.cert), "AJOIN_TOKEN": token}

        def ajoin(*arguments: str, **changed: str) -> Any:
            return json.loads(CliRunner().invoke(app, [*arguments, "--json"], env={**environment, **changed}).stdout)

        assert ajoin("status")["state"] == "RUNNING"
        assert ajoin("status", AJOIN_TOKEN="")["error"]["reason"] == "UNAUTHENTICATED"
        source = ["--source", "files", "-o", f"path={tmp_path}"]
        refused = ajoin("stream", "create", "S", "-c", "ts:TIMESTAMP", "--time", "ts", *source)
        assert "allowed_roots" in refused["error"]["hint"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert b'ajoin_state{state="RUNNING"} 1' in answer.read()
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT) == 0
        assert process.stderr is not None
        lines = [json.loads(line) for line in process.stderr.read().splitlines() if line.startswith("{")]
    assert [line["state"] for line in lines if "state" in line] == ["RUNNING", "STOPPING", "STOPPED"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A running server: its folder and its address."""
    folder = tmp_path_factory.mktemp("served")
    with serving(folder) as (_, address):
        yield folder, address


def test_a_taken_port_is_a_clear_error(served: tuple[Path, str], tmp_path: Path) -> None:
    flags = ["--listen", served[1], "--state-dir", str(tmp_path / "other")]
    done = CliRunner().invoke(app, ["serve", "--set", "executor=local", *flags])
    assert done.exit_code == 1
    assert "ADDRESS_IN_USE" in done.stderr


def test_a_state_directory_belongs_to_one_process(served: tuple[Path, str]) -> None:
    flags = ["--listen", "127.0.0.1:0", "--state-dir", str(served[0] / "state")]
    done = CliRunner().invoke(app, ["serve", "--set", "executor=local", *flags])
    assert done.exit_code == 1
    assert done.stderr.splitlines()[-1].startswith("error ")


def test_the_configuration_is_printed_with_its_origins(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text("partitions = 3\n")
    arguments = [
        "serve",
        "--print-config",
        "--config",
        str(file),
        "--epoch-interval",
        "2",
        "--set",
        "verbose=yes",
    ]
    text = CliRunner().invoke(app, arguments, env={"AJOIN_BATCH_INTERVAL": "4"}).stdout
    assert ["partitions", "=", "3", "#", str(file)] in [line.split() for line in text.splitlines()]
    printed: Any = json.loads(CliRunner().invoke(app, [*arguments, "--json"], env={"AJOIN_BATCH_INTERVAL": "4"}).stdout)
    assert printed["settings"]["epoch_interval"] == 2.0
    assert printed["settings"]["verbose"] is True
    assert printed["origins"]["epoch_interval"] == "flag"
    assert printed["origins"]["batch_interval"] == "environment AJOIN_BATCH_INTERVAL"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--set", "partition=3"], "partitions"),
        (["--set", "partitions"], "key=value"),
        (["--partitions", "0"], "partitions"),
        (["--listen", "here"], "host:port"),
        (["--config", "missing.toml"], "missing.toml"),
    ],
)
def test_a_wrong_configuration_ends_with_2(flags: list[str], words: str) -> None:
    done = CliRunner().invoke(app, ["serve", "--print-config", *flags])
    assert done.exit_code == 2
    assert done.stderr.startswith("error CONFIG_")
    assert words in done.stderr


def test_a_lost_bucket_is_said_in_the_status_and_in_the_exit_code(tmp_path: Path) -> None:
    """Its file is gone and the source does not have the tuples any more: nothing goes on, and everybody is told."""
    inbox = tmp_path / "in"
    inbox.mkdir()

    def arrive(number: int) -> None:
        for stream in "AB":
            row = json.dumps({"k": 1, "ts": number})
            (inbox / f".{stream}").write_text(row + "\n")
            (inbox / f".{stream}").rename(inbox / f"{stream}-{number}.jsonl")

    flags = ("--set", f"allowed_roots={tmp_path}")
    with serving(tmp_path, *flags) as (process, address), Client(address) as client:
        for stream in "AB":
            options = {"path": str(inbox), "pattern": f"{stream}-*.jsonl"}
            columns = {"k": "BIGINT", "ts": "TIMESTAMP"}
            client.create_stream(stream, columns=columns, time="ts", source="files", options=options)
        client.create_query("SELECT A.k FROM A JOIN B ON A.k = B.k WINDOW TUMBLING (SIZE 1 HOUR)", id="q1")
        arrive(1)
        assert len(client.results("q1", limit=1, timeout=WAIT)) == 1
        process.kill()
        process.wait(WAIT)
    (lost,) = {p.name for p in (tmp_path / "state" / "buckets").glob("b2.bucket")}
    (tmp_path / "state" / "buckets" / lost).unlink()
    (inbox / "A-1.jsonl").unlink()
    with serving(tmp_path, *flags) as (process, address), Client(address) as client:
        arrive(2)
        with pytest.raises(InternalError) as failed:
            client.results("q1", limit=10, timeout=WAIT)
        assert failed.value.reason == "PLATFORM_FAILED" and lost in failed.value.message
        status = client.status()
        assert status.state == "FAILED" and f"bucket file {lost} is lost" in status.message
        assert client.query("q1").rows == 1, "no row after the loss"
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT) == 1
        assert process.stdout is not None and process.stderr is not None
        assert f"bucket file {lost} is lost" in process.stdout.read() + process.stderr.read()
    with serving(tmp_path, *flags) as (process, address), Client(address) as client:
        failed_again = "the planned epoch fails again, and the service answers all the same"
        while client.status().state != "FAILED":
            process.poll()
        assert f"bucket file {lost} is lost" in client.status().message, failed_again
        assert client.query("q1").rows == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT) == 1
