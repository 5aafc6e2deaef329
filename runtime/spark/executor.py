"""Stages as Spark jobs: one task of the stage is one Spark task.

What a stage shares and its tasks travel inside the job's closure, which Spark ships to each executor once; tasks
exchange buckets by reference (files or objects that all of them see) and return small reports. So per stage Spark
schedules, retries and places tasks, and moves next to nothing. A plain RDD job costs less than half of what a DataFrame
job or a Structured Streaming micro-batch costs, and the engine's own log already holds offsets and plan versions; see
docs/decisions for the numbers.
"""

from __future__ import annotations

import operator
import os
import pickle
import re
import shutil
import socket
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from optimizer.errors import AJoinError, FailedPrecondition, InternalError, Unavailable
from runtime.api import Traffic
from runtime.execution.outage import as_outage
from runtime.machine.watch import run_within, worker_share
from runtime.plugins import load, loaded
from runtime.spark.gateway import gateway
from runtime.spark.places import Places
from runtime.store.traffic import Meter, Totals

S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")

ATTEMPTS = 4
"""Of a task, before its stage fails."""

LEAN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xms128m -XX:MaxHeapFreeRatio=50"
"""Where driver and tasks share the cores, the JVM only schedules: its optimizing compiler and its concurrent collector
would take more of them than they give back. It needs 50 MB; a heap that begins with more (a 64th of the machine) is
slowly filled with garbage, page by page, which looks like a leak and is of no use."""


SECRET = "spark.authenticate.secret"
PROTECTED = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.io.encryption.enabled": "true",
}
"""On a cluster whose parts share a secret, they ask each other for it and encrypt what they send and spill."""


class SparkExecutor:
    """Owns a Spark context. Start one per process with `start`. `worker_memory`: bytes that a Python worker may take;
    0: its share of the machine it runs on."""

    def __init__(self, context: Any, stage_timeout: float = 0.0, worker_memory: int = 0) -> None:
        self.context, self._stage_timeout = context, stage_timeout
        self.here = is_local(str(context.master))
        self._places = Places(context)
        self._traffic = Totals()
        cores = int(context.defaultParallelism if self.here else context.getConf().get("spark.executor.cores", "0"))
        self._memory = _Memory(worker_memory, cores)

    @property
    def cores(self) -> int:
        return int(self.context.defaultParallelism)

    @classmethod
    def start(
        cls,
        master: str = "local[*]",
        *,
        verbose: bool = False,
        local_dir: Path | None = None,
        ui: bool = False,
        options: dict[str, str] | None = None,
        stage_timeout: float = 0.0,
        worker_memory: int = 0,
    ) -> SparkExecutor:
        """Takes some seconds. Without `verbose`, Spark's messages go to a file in `local_dir`."""
        if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
            raise FailedPrecondition(
                "Spark needs Java, and none was found",
                reason="JAVA_MISSING",
                hint="install Java 17 and make sure `java` is on the PATH or JAVA_HOME is set",
            )
        from pyspark import SparkConf, SparkContext

        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        directory = local_dir or Path(tempfile.gettempdir())
        conf = SparkConf().setMaster(_repeating(master)).setAppName("ajoin")
        given = options or {}
        protected = PROTECTED if SECRET in given or master.startswith(("yarn", "k8s")) else {}
        conf.setAll(list((_settings(master, verbose, directory, ui) | protected | given).items()))
        # Everybody on this machine can read the command line that starts the JVM.
        launching = SparkConf().setAll([(key, value) for key, value in conf.getAll() if key != SECRET])
        log = directory / "spark.log"
        try:
            context = SparkContext(conf=conf, gateway=gateway(launching, None if verbose else log))
        except Exception as e:
            said = log.read_text(errors="replace")[-2000:] if log.exists() else ""
            raise FailedPrecondition(
                f"Spark did not start on {master}: {e}\n{said}".rstrip(), reason="SPARK_START_FAILED"
            ) from e
        context.setLogLevel("INFO" if verbose else "ERROR")
        executor = cls(context, stage_timeout, worker_memory)
        # Workers are forked and kernels loaded before the first epoch needs them.
        executor.run("warm up", operator.is_not, None, list(range(executor.cores)))
        return executor

    def run(self, name: str, stage: Callable[[S, T], R], shared: S, tasks: Sequence[T]) -> list[R]:
        """A stage that takes longer than the time limit is ended, with the workers that run its tasks, and has failed.

        Tasks are dealt out in turn to at most twice as many Spark tasks as there are cores: a Spark task costs tens
        of milliseconds, and neighbours (the ways of a split partition) must not queue behind each other."""
        payload = pickle.dumps((stage, shared))
        context = self.context
        watchdog = _Watchdog(context, name, self._stage_timeout)
        cores = self.cores
        slices = min(len(tasks), 2 * cores if len(tasks) > 2 * cores else cores)
        dealt = [pickle.dumps(list(tasks[i::slices])) for i in range(slices)]
        runner = _Runner(payload, name, self._memory, loaded(), self.here)
        try:
            with watchdog:
                if self.here:
                    answers = context.parallelize(dealt, slices).mapPartitions(runner).collect()
                else:
                    answers = self._places.of(dealt, cores).mapPartitions(runner).collect()
        except Exception as e:
            why = f"it took longer than {self._stage_timeout:g} s" if watchdog.barked else _cause(e)
            raise InternalError(f"{name} failed on Spark: {why}", reason="STAGE_FAILED") from e
        results: list[Any] = [None] * len(tasks)
        for i, answer in enumerate(answers):
            outcome, told = pickle.loads(answer)
            self._traffic.add(told)
            if isinstance(outcome, AJoinError):
                raise outcome
            results[i::slices] = outcome
        return results

    def traffic(self) -> tuple[Traffic, ...]:
        return self._traffic.read()

    def stop(self) -> None:
        self.context.stop()


class _Watchdog:
    """Cancels the Spark jobs that this thread starts within it, when they take too long. 0 seconds: it never does."""

    def __init__(self, context: Any, name: str, seconds: float) -> None:
        self._context, self._group = context, uuid.uuid4().hex
        self._timer = threading.Timer(seconds, self._bark) if seconds else None
        self.barked = False
        context.setJobGroup(self._group, name, interruptOnCancel=True)

    def _bark(self) -> None:
        self.barked = True
        self._context.cancelJobGroup(self._group)

    def __enter__(self) -> None:
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()


class _Memory(NamedTuple):
    """What a worker may take: so many bytes, or its share beside as many workers as there are `cores` (0: as many as
    the machine has)."""

    bytes: int
    cores: int

    @property
    def limit(self) -> int:
        """Asked where the worker runs."""
        return self.bytes or worker_share(self.cores or os.cpu_count() or 1)


class _Runner:
    """What a Spark task executes: a module-level class, so that it travels by name and not by value. `plugins`: those
    of the driver. A worker that does not have them yet loads them before it reads anything that may need them."""

    def __init__(self, payload: bytes, name: str, memory: _Memory, plugins: tuple[str, ...], here: bool) -> None:
        self.payload, self.name, self.memory, self.plugins, self.here = payload, name, memory, plugins, here

    def __call__(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        limit = self.memory.limit
        for piece in pieces:
            meter = Meter()
            try:
                load(self.plugins)
                work = partial(_run_all, self.payload, piece)
                outcome: Any = run_within(limit, f"a task of {self.name}", work)
            except (AJoinError, OSError) as e:  # travels as a value, or its class would be lost on the way
                outcome = as_outage(e)
                if outcome is None:
                    raise
                if isinstance(outcome, Unavailable) and not self.here:
                    outcome = _placed(outcome)
            yield pickle.dumps((outcome, meter.read()))


def _placed(outage: Unavailable) -> Unavailable:
    """An outage on one machine is not one everywhere."""
    where = f"on executor {socket.gethostname()}: {outage.message}"
    return Unavailable(where, reason=outage.reason, hint=outage.hint)


def _run_all(payload: bytes, tasks: bytes) -> list[Any]:
    stage, shared = pickle.loads(payload)
    return [stage(shared, task) for task in pickle.loads(tasks)]


def is_local(master: str) -> bool:
    """Are the executors of this master threads of the driver's process?"""
    return re.fullmatch(r"local(\[[^\]]*\])?", master) is not None


def _repeating(master: str) -> str:
    """A local master gives up when one task fails, e.g. because its Python worker was killed; a cluster tries four
    times, and so do we."""
    cores = re.fullmatch(r"local(?:\[([^,\]]+)\])?", master)
    return f"local[{cores[1] or 1},{ATTEMPTS}]" if cores else master


def _settings(master: str, verbose: bool, directory: Path, ui: bool) -> dict[str, str]:
    settings = {
        "spark.ui.enabled": str(ui).lower(),
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(directory),
        "spark.python.daemon.module": "runtime.spark.daemon",
        "spark.python.worker.reuse": "true",
        "spark.locality.wait": "0",
        "spark.scheduler.mode": "FAIR",
        "spark.driver.memory": "1g",
        "spark.log.level": "INFO" if verbose else "ERROR",
        # Spark keeps a history of what it ran even without its web page; the platform runs for months.
        "spark.ui.retainedJobs": "200",
        "spark.ui.retainedStages": "200",
        "spark.ui.retainedTasks": "2000",
        # By itself the JVM looks for old garbage only when its heap is full, and until then the process grows.
        "spark.cleaner.periodicGC.interval": "5min",
    }
    java = [LEAN] if master.startswith("local") else []
    if not verbose:
        java.append(f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}")
    settings["spark.driver.extraJavaOptions"] = " ".join(java)
    if master.startswith(("local", "spark://127.0.0.1:", "spark://localhost:")):
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if not master.startswith("local"):
        # Executors come and go: one that is told to leave finishes its tasks first.
        settings |= {"spark.decommission.enabled": "true"}
    return settings


_LOST_TASK = re.compile(r"most recent failure: [^\n]*\(TID \d+\) \([^)]*\): (?:[\w.]+: )?([^\n]+)")


def _cause(error: Exception) -> str:
    """The Python traceback a task died with, or what became of its worker, without what Spark puts around it."""
    text = str(error)
    at = text.find("Traceback (most recent call last)")
    if at >= 0:
        return text[at:].partition("\n\tat ")[0].partition("\n SQLSTATE: ")[0].rstrip()
    lost = _LOST_TASK.search(text)
    return lost[1].partition(". Consider setting ")[0] if lost else text[:2000]
