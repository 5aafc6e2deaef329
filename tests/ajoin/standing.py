"""Platforms in processes of their own beside one store: one serves, others stand by."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.ajoin.world import WAIT
from tests.tools.ports import free_port

ROOT = Path(__file__).parents[2]
AJOIN = ("-c", "from ajoin.cli import main; main()")
INTERVAL = 1.0
"""Seconds between two heartbeats: short, so that tests need not wait long, and long enough that a platform which gets
no core for a while is not taken for dead."""


class Served:
    """A process of `ajoin serve`. What it says is read all the time, so that it never waits for a reader."""

    def __init__(self, folder: Path, name: str, store: str, *flags: str, program: Sequence[str] = AJOIN) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self.said: list[dict[str, object]] = []
        self._log = folder / f"{name}.log"
        command = [
            sys.executable, *program, "serve", "--json", "--set", "executor=local", "--listen", self.address,
            "--store", store,
            "--state-dir", str(folder / name), "--epoch-interval", "0.05", "--batch-interval", "0.05",
            "--set", f"heartbeat_interval={INTERVAL}", "--set", "optimize_period=0", *flags,
        ]  # fmt: skip
        with open(self._log, "ab") as log:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(json.loads(line))

    def until_said(self, key: str) -> dict[str, object]:
        """The line with this key: "standby" when it stands by, "listening" when it serves, "error" when it ended."""
        deadline = time.monotonic() + WAIT
        while not (found := [line for line in self.said if key in line]):
            assert time.monotonic() < deadline, f"it did not say {key!r}: {self.log}"
            if self.process.poll() is not None:
                self._reader.join(WAIT)
                assert any(key in line for line in self.said), f"it ended without saying {key!r}: {self.log}"
            time.sleep(0.02)
        return found[0]

    def says(self, key: str) -> bool:
        return any(key in line for line in self.said)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def kill(self) -> None:
        """The whole session: with Spark there is a JVM below it."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(WAIT)


class Standing:
    def __init__(self, folder: Path, store: str) -> None:
        self.folder, self._store = folder, store
        self.all: list[Served] = []

    def serve(self, *flags: str, program: Sequence[str] = AJOIN) -> Served:
        served = Served(self.folder, f"p{len(self.all)}", self._store, *flags, program=program)
        self.all.append(served)
        return served

    def reserve(self) -> str:
        """An address for one that comes later: clients know it already."""
        return f"127.0.0.1:{free_port()}"

    def primary(self, *flags: str) -> Served:
        served = self.serve(*flags)
        served.until_said("listening")
        return served

    def pair(self, *flags: str) -> tuple[Served, Served]:
        """A platform and one that stands by, started together: the second finds nothing until the first is there."""
        primary, standby = self.serve(*flags), self.serve("--standby", *flags)
        primary.until_said("listening")
        standby.until_said("standby")
        return primary, standby

    def standby(self, *flags: str) -> Served:
        served = self.serve("--standby", *flags)
        served.until_said("standby")
        return served


@contextmanager
def beside(folder: Path, store: str | None = None) -> Iterator[Standing]:
    standing = Standing(folder, store or str(folder / "store"))
    try:
        yield standing
    finally:
        for served in standing.all:
            served.kill()
