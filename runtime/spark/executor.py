"""Stages as Spark jobs: one task of the stage is one Spark task.

What a stage shares and its tasks travel inside the job's closure, which Spark ships to each executor once; what
executors have from earlier stages is not in it (runtime.execution.shipped). Tasks exchange buckets by reference (files
or objects that all of them see) and return small reports. So per stage Spark schedules, retries and places tasks, and
moves next to nothing. A plain RDD job costs less than half of what a DataFrame job or a Structured Streaming
micro-batch costs, and the engine's own log already holds offsets and plan versions; see docs/decisions for the
numbers.
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
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cache as once
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from optimizer.errors import AJoinError, FailedPrecondition, InternalError, Unavailable
from runtime.api import ExecutorStatus
from runtime.execution.outage import as_outage
from runtime.execution.shipped import DONE, LACKS, Kept, Lacks, Parcel, Shipping, unpacked
from runtime.machine.watch import run_within, worker_share
from runtime.plugins import load, loaded
from runtime.spark.executors import Executors, own_id
from runtime.spark.gateway import gateway
from runtime.spark.places import Places
from runtime.store.cache import task_directory
from runtime.store.traffic import Meter

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

DYNAMIC = "spark.dynamicAllocation."
IDLE, CACHED_IDLE = DYNAMIC + "executorIdleTimeout", DYNAMIC + "cachedExecutorIdleTimeout"


class SparkExecutor:
    """Owns a Spark context. Start one per process with `start`. `worker_memory`: bytes that a Python worker may take;
    0: its share of the machine it runs on."""

    def __init__(self, context: Any, stage_timeout: float = 0.0, worker_memory: int = 0) -> None:
        self.context, self._stage_timeout = context, stage_timeout
        self.here = is_local(str(context.master))
        self._places = Places(context)
        self._executors = Executors(context)
        self._wanted = wanted_cores(dict(context.getConf().getAll()))
        self.shipping = Shipping(keep=not self.here)
        cores = int(context.defaultParallelism if self.here else context.getConf().get("spark.executor.cores", "0"))
        self._memory = _Memory(worker_memory, cores)

    @property
    def cores(self) -> int:
        """Of all executors that are there; on a cluster never less than two, says Spark."""
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
        conf.setAll(list((_settings(master, verbose, directory, ui, given) | protected | given).items()))
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

        Tasks are dealt out in turn to at most twice as many Spark tasks as there are cores, or may be: a Spark task
        costs tens of milliseconds, and neighbours (the ways of a split partition) must not queue behind each other."""
        context = self.context
        watchdog = _Watchdog(context, name, self._stage_timeout)
        cores = self.cores
        width = max(cores, self._wanted)
        slices = min(len(tasks), 2 * width if len(tasks) > 2 * width else width)
        dealt = [pickle.dumps(list(tasks[i::slices])) for i in range(slices)]
        ids: dict[int, str] = {}
        try:
            with watchdog:
                outcomes = self.shipping.run((stage, shared), dealt, partial(self._job, name, cores, ids))
        except AJoinError:
            raise
        except Exception as e:
            why = f"it took longer than {self._stage_timeout:g} s" if watchdog.barked else _cause(e)
            raise InternalError(f"{name} failed on Spark: {why}", reason="STAGE_FAILED") from e
        results: list[Any] = [None] * len(tasks)
        worked: dict[int, set[str]] = defaultdict(set)
        for i, outcome in enumerate(outcomes):
            results[i::slices] = outcome
            for task in tasks[i::slices]:
                if isinstance(partition := getattr(task, "partition", None), int):
                    worked[partition].add(ids[i])
        self._executors.worked(worked)
        return results

    def _job(self, name: str, cores: int, ids: dict[int, str], parcel: Parcel, dealt: Sequence[bytes]) -> list[Any]:
        """What came of each of these, and in `ids` on which executor; a task's exception is raised."""
        runner = _Runner(parcel, name, self._memory, loaded(), self.here)
        pieces = self.context.parallelize(dealt, len(dealt)) if self.here else self._places.of(list(dealt), cores)
        outcomes = []
        for i, answer in enumerate(pieces.mapPartitions(runner).collect()):
            outcome, told, id = pickle.loads(answer)
            self._executors.told(id, told)
            outcomes.append(outcome)
            if dealt[i] != DONE:
                ids[i] = id
        for outcome in outcomes:
            if isinstance(outcome, AJoinError):
                raise outcome
        return outcomes

    def executors(self, partitions: int) -> tuple[ExecutorStatus, ...]:
        found = self._executors.read(partitions)
        return () if self.here and not any(e.cache for e in found) else found

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

    def __init__(self, parcel: Parcel, name: str, memory: _Memory, plugins: tuple[str, ...], here: bool) -> None:
        self.parcel, self.name, self.memory, self.plugins, self.here = parcel, name, memory, plugins, here

    def __call__(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        limit = self.memory.limit
        for piece in pieces:
            meter = Meter()
            try:
                load(self.plugins)
                work = partial(_run_all, self.parcel, piece, not self.here)
                outcome: Any = run_within(limit, f"a task of {self.name}", work) if piece != DONE else None
            except Lacks:
                outcome = LACKS
            except (AJoinError, OSError) as e:  # travels as a value, or its class would be lost on the way
                outcome = as_outage(e)
                if outcome is None:
                    raise
                if isinstance(outcome, Unavailable) and not self.here:
                    outcome = _placed(outcome)
            yield pickle.dumps((outcome, meter.read(), own_id()))


def _placed(outage: Unavailable) -> Unavailable:
    """An outage on one machine is not one everywhere."""
    where = f"on executor {socket.gethostname()}: {outage.message}"
    return Unavailable(where, reason=outage.reason, hint=outage.hint)


def _run_all(parcel: Parcel, tasks: bytes, keep: bool) -> list[Any]:
    stage, shared = unpacked(parcel, _kept() if keep else None)
    return [stage(shared, task) for task in pickle.loads(tasks)]


@once
def _kept() -> Kept:
    return Kept(task_directory("ajoin-pieces"))


def wanted_cores(conf: dict[str, str]) -> int:
    """Spark's dynamic allocation asks for executors as long as tasks wait for a core. So there have to be tasks for as
    many cores as it may get, whatever it has now; 0: it is off."""
    if conf.get(DYNAMIC + "enabled", "false").lower() != "true":
        return 0
    return int(conf.get(DYNAMIC + "maxExecutors", 1 << 31)) * int(conf.get("spark.executor.cores", 1))


def is_local(master: str) -> bool:
    """Are the executors of this master threads of the driver's process?"""
    return re.fullmatch(r"local(\[[^\]]*\])?", master) is not None


def _repeating(master: str) -> str:
    """A local master gives up when one task fails, e.g. because its Python worker was killed; a cluster tries four
    times, and so do we."""
    cores = re.fullmatch(r"local(?:\[([^,\]]+)\])?", master)
    return f"local[{cores[1] or 1},{ATTEMPTS}]" if cores else master


def _settings(master: str, verbose: bool, directory: Path, ui: bool, given: dict[str, str]) -> dict[str, str]:
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
        # With dynamic allocation one that has nothing to do is given back, also if it remembers places (places.py): by
        # itself Spark never gives back an executor with a cached block.
        settings |= {CACHED_IDLE: given.get(IDLE, "60s")}
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
