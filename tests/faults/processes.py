"""Processes to kill: `ajoin serve` on Spark, and what hangs below it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from experiments.processes import tree

PATIENCE = 400.0
"""Seconds to wait for a condition before giving up; never the time it takes."""
SERVE = ("serve", "--json", "--master", "local[2]", "--listen", "127.0.0.1:0", "--partitions", "2")
PACE = ("--epoch-interval", "0", "--batch-interval", "0.05")


class Served:
    """A running `ajoin serve`, its address, and the processes it started."""

    def __init__(self, process: subprocess.Popen[str], address: str, said: Path) -> None:
        self.process, self.address, self._said = process, address, said

    def below(self, words: str) -> list[int]:
        """Descendants whose command line has these words."""
        return [p for p in tree(self.process.pid)[1:] if words in command_line(p)]

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)

    def wait_until_killed(self) -> None:
        assert self.process.wait(PATIENCE) == -signal.SIGKILL, self._said.read_text()[-4000:]


@contextmanager
def serving(folder: Path, environment: Mapping[str, str] | None = None, *flags: str) -> Iterator[Served]:
    """`ajoin serve` on the state in `folder`, ready to be called; killed at the end, if it is not dead by then."""
    command = [sys.executable, "-c", "from ajoin.cli import main; main()", *SERVE, *PACE]
    said = folder / "said"
    with (
        open(said, "a") as log,
        subprocess.Popen(
            [*command, "--state-dir", str(folder / "state"), *flags],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=os.environ | dict(environment or {}),
        ) as process,
    ):
        family: list[int] = []
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            assert first, said.read_text()[-4000:]
            family = tree(process.pid)[1:]
            yield Served(process, json.loads(first)["listening"], said)
        finally:
            process.kill()
            process.wait()
            # Spark's JVM and its Python processes notice by themselves that their driver is gone.
            until(lambda: not [p for p in family if "spark" in command_line(p)], "Spark outlived its driver")


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def until(condition: Callable[[], bool], otherwise: str) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, otherwise
        time.sleep(0.02)
