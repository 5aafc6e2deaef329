"""A standalone Spark cluster on this machine: a master and workers as processes, out of the pip-installed Spark.

For demonstrations and tests of what only a cluster has: executors in processes of their own with local directories of
their own, workers that join, leave and die while the platform runs. Everything listens on loopback, on ports that the
operating system chooses, and lets in only who knows the cluster's secret (`options` has it for the driver). Whoever has
other hosts says which process belongs on which (`Host`). Processes are known by their id and stopped by it. Two things
to know about Spark: an executor ends by itself when its worker is gone, and a worker that gets SIGPWR is
*decommissioned*: it takes no new tasks, finishes the running ones, and leaves.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from optimizer.errors import FailedPrecondition
from runtime.files import write_atomically
from runtime.spark.executor import PROTECTED, SECRET

STARTED = re.compile(r"Starting Spark master at (spark://\S+)")
REGISTERED = re.compile(r"Successfully registered with master")
PATIENCE = 120.0
"""Seconds that a process may take until its log says that it has started."""


class Host(NamedTuple):
    """Where a process runs: the address it listens on, and the command that starts another one there."""

    address: str
    through: tuple[str, ...] = ()


LOOPBACK = Host("127.0.0.1")


class Daemon:
    """One master or worker process and its log."""

    def __init__(
        self, name: str, directory: Path, arguments: list[str], environment: dict[str, str], host: Host = LOOPBACK
    ) -> None:
        import pyspark

        home = Path(pyspark.__file__).parent
        directory.mkdir(parents=True, exist_ok=True)
        self.name, self.log = name, directory / f"{name}.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [*host.through, str(home / "bin" / "spark-class"), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=directory,
                env=os.environ | {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": host.address} | environment,
                start_new_session=True,  # Ctrl-C is for the one who started us; we stop them in order
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_for(self, said: re.Pattern[str]) -> str:
        """The first group (or all) of what the log says, once it does."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            text = self.log.read_text(errors="replace")
            match = said.search(text)
            if match is not None:
                return match.group(match.lastindex or 0)
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        tail = self.log.read_text(errors="replace")[-2000:]
        raise FailedPrecondition(f"Spark's {self.name} did not start:\n{tail}".rstrip(), reason="SPARK_START_FAILED")

    def send(self, number: signal.Signals) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)

    def stop(self) -> None:
        """SIGTERM; after ten seconds SIGKILL."""
        self.send(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Standalone:
    """A context manager: `with Standalone(folder, workers=2) as cluster: ... cluster.url ...`. `host`: of the `master`,
    and of `worker-1`, `worker-2` and so on."""

    def __init__(
        self,
        directory: Path,
        workers: int = 1,
        *,
        cores: int = 1,
        memory: str = "1g",
        host: Callable[[str], Host] = lambda name: LOOPBACK,
    ) -> None:
        self.directory, self._cores, self._memory, self._host = directory, cores, memory, host
        self.workers: list[Daemon] = []
        self.url = ""
        self._started = 0
        # Executors find the platform where the driver's Python has it, wherever they are started.
        self._common = {
            "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_MASTER_OPTS": "-Dspark.decommission.enabled=true -Dspark.worker.timeout=20",
            "SPARK_WORKER_OPTS": "-Dspark.decommission.enabled=true",
        }
        self.options = {SECRET: secrets.token_hex(32)}
        """What a driver needs to be let in."""
        self._properties = directory / "spark.properties"
        lines = (PROTECTED | self.options).items()
        write_atomically(self._properties, "".join(f"{k} {v}\n" for k, v in lines).encode(), mode=0o600)
        at = host("master")
        arguments = ["org.apache.spark.deploy.master.Master", "--host", at.address, "--port", "0", "--webui-port", "0"]
        arguments += ["--properties-file", str(self._properties)]
        self.master = Daemon("master", directory / "master", arguments, self._common, at)
        try:
            self.url = self.master.wait_for(STARTED)
            added = [self._start_worker() for _ in range(workers)]
            for worker in added:
                worker.wait_for(REGISTERED)
        except BaseException:
            self.stop()
            raise

    def add_worker(self) -> Daemon:
        """Scale out: returns when the master knows the worker; a running application gets an executor on it."""
        worker = self._start_worker()
        worker.wait_for(REGISTERED)
        return worker

    def _start_worker(self) -> Daemon:
        self._started += 1
        name = f"worker-{self._started}"
        home, at = self.directory / name, self._host(name)
        arguments = [
            "org.apache.spark.deploy.worker.Worker",
            *("--host", at.address, "--port", "0", "--webui-port", "0"),
            *("--cores", str(self._cores), "--memory", self._memory, "--work-dir", str(home / "work")),
            *("--properties-file", str(self._properties)),
            self.url,
        ]
        worker = Daemon(name, home, arguments, self._common | {"SPARK_LOCAL_DIRS": str(home / "local")}, at)
        self.workers.append(worker)
        return worker

    def decommission(self, worker: Daemon) -> None:
        """Scale in: the worker finishes what it does and leaves."""
        worker.send(signal.SIGPWR)

    def kill(self, worker: Daemon) -> None:
        """SIGKILL: what others see when a machine dies."""
        worker.process.kill()
        worker.process.wait()

    def stop(self) -> None:
        for daemon in (*reversed(self.workers), self.master):
            daemon.stop()

    def __enter__(self) -> Standalone:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
