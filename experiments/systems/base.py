"""The interface of a system under test, as the driver sees it.

    system.prepare(data, queries)      which tuples and queries from now on
    system.run(chunks, count=False)    ─► Measurement: the whole prefix processed, every row of every query made
    system.stop()

`count=True` is the correctness run: it answers how many rows each query got, and its time does not matter. A request
that is not answered in its time limit ends the worker; the measurement says so, and the next one starts a new worker.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, Listener, wait
from pathlib import Path
from typing import Any

from experiments.data import Dataset
from experiments.processes import Usage, usage_of
from experiments.template import TemplateQuery, used_streams

ROOT = Path(__file__).resolve().parents[2]
START_LIMIT = 180.0
MEMORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class Measurement:
    """`status`: 'ok', 'timed out', or what went wrong. `tuples` and `seconds` belong together: their quotient is the
    input rate.
    """

    system: str
    status: str = "ok"
    chunks: int = 0
    tuples: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_bytes: int = 0
    rows: Mapping[str, int] | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    plans: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Of a platform: aspects of its physical plan (plans.py) when it was warm, and at the end."""

    @property
    def finished(self) -> bool:
        return self.status == "ok"

    @property
    def rate(self) -> float:
        return self.tuples / self.seconds if self.finished and self.seconds > 0 else 0.0


class Unavailable(Exception):
    """This system cannot run here; the message says why."""


class System:
    """One worker process, started on demand. Subclasses say how to start it and what to send."""

    layout = "chunks"
    pays_for_starting = False
    """Does every run plan, generate code and start tasks anew? Then the driver subtracts the warm-up run."""

    def __init__(self, name: str, log: Path) -> None:
        self.name, self.log = name, log
        self._process: subprocess.Popen[bytes] | None = None
        self._scratch: Path | None = None
        self._connection: Connection[Any, Any] | None = None
        self._data: Dataset | None = None
        self._queries: tuple[TemplateQuery, ...] = ()
        self._options: Mapping[str, Any] = {}

    # -- for subclasses -------------------------------------------------------------------------------------------

    def command(self) -> list[str]:
        """How to start the worker, without the socket's address; Unavailable if it cannot be."""
        raise Unavailable(f"{self.name} has no worker")

    def environment(self) -> Mapping[str, str]:
        return {}

    def refuses(self, queries: Sequence[TemplateQuery]) -> str:
        """Why this system cannot run these queries; empty if it can."""
        return ""

    def settling(self, count: bool) -> int:
        """Epochs that a run has, before its time and its tuples count."""
        return 0

    # -- the interface --------------------------------------------------------------------------------------------

    def prepare(
        self, data: Dataset, queries: Sequence[TemplateQuery], options: Mapping[str, Any] | None = None
    ) -> None:
        self._data, self._queries, self._options = data, tuple(queries), dict(options or {})

    def run(self, chunks: int, *, count: bool = False, time_limit: float = 600.0) -> Measurement:
        assert self._data is not None, "prepare first"
        refused = self.refuses(self._queries)
        if refused:
            return Measurement(self.name, refused, chunks)
        settle, per_epoch = self.settling(count), int(self._options.get("engine.chunks_per_epoch", 1))
        ahead = settle * per_epoch
        request = {
            "op": "run",
            "data": str(self._data.prefix(chunks + ahead, self.layout)),
            "settle": settle,
            "epochs": -(-chunks // per_epoch),
            "queries": [q.to_json() for q in self._queries],
            "options": self._options,
            "chunk_seconds": self._data.spec.chunk_seconds,
            "count": count,
        }
        measured = self.ask(request, time_limit)
        streams = len(used_streams(self._queries))
        tuples = int(measured.values.get("timed_tuples", self._data.tuples(chunks, streams)))
        return replace(measured, chunks=chunks, tuples=tuples)

    def ask(self, request: Mapping[str, Any], time_limit: float) -> Measurement:
        """Send any request; the answer's numbers, with processor time and memory of the worker and its children."""
        try:
            self._start()
        except (Unavailable, OSError, subprocess.SubprocessError) as why:
            return Measurement(self.name, f"not available: {why}")
        assert self._process is not None and self._connection is not None
        with usage_of(self._process.pid) as usage:
            try:
                self._connection.send_bytes(json.dumps(request).encode())
                if not self._connection.poll(time_limit):
                    self.stop(patience=0.0)
                    return self._with(Measurement(self.name, "timed out", seconds=time_limit), usage)
                answer = json.loads(self._connection.recv_bytes())
            except (EOFError, OSError) as why:
                self.stop()
                said = why or type(why).__name__
                return Measurement(self.name, f"failed: the worker ended ({said}), see {self.log.name}")
        if "error" in answer:
            return Measurement(self.name, f"failed: {answer['error']}")
        measured = Measurement(
            self.name,
            seconds=float(answer.get("seconds", 0.0)),
            rows=answer.get("rows"),
            values={k: float(v) for k, v in answer.get("values", {}).items()},
            plans=answer.get("plans", {}),
        )
        return self._with(measured, usage)

    def stop(self, patience: float = 5.0) -> None:
        """The worker leads a process group of its own, so this ends it and the JVMs it started, and nobody else."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._process is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            shutil.rmtree(MEMORY / self._scratch.name, ignore_errors=True)
            self._scratch = None

    # -- inside ---------------------------------------------------------------------------------------------------

    def _with(self, measured: Measurement, usage: Usage) -> Measurement:
        return replace(measured, cpu_seconds=usage.cpu_seconds, peak_bytes=usage.peak_bytes)

    def _start(self) -> None:
        if self._process is not None:
            return
        command = self.command()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._scratch = Path(tempfile.mkdtemp(prefix=f"ajoin-bench-{self.name}-"))
        address = str(self._scratch / "socket")
        environment = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(self._scratch)} | dict(self.environment())
        with Listener(address, family="AF_UNIX") as listener, open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                [*command, address], stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment,
                start_new_session=True, cwd=ROOT,
            )  # fmt: skip
            waited = 0.0
            while not wait([listener._listener._socket], 1.0):  # type: ignore[attr-defined]
                waited += 1.0
                if self._process.poll() is not None or waited > START_LIMIT:
                    self.stop()
                    raise Unavailable(f"its worker did not start, see {self.log.name}")
            self._connection = listener.accept()
        self._connection.send_bytes(json.dumps({"op": "warm"}).encode())
        try:
            answer = (
                json.loads(self._connection.recv_bytes())
                if self._connection.poll(START_LIMIT)
                else {"error": "timed out"}
            )
        except (EOFError, OSError) as why:
            answer = {"error": f"the worker ended: {why}"}
        if "error" in answer:
            self.stop()
            raise Unavailable(f"its worker did not warm up: {answer['error']}, see {self.log.name}")
