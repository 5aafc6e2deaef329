"""`python -m experiments.soak --minutes 30`: steady load and query churn for a while; does anything grow?

The platform is the real one, `ajoin serve` on Spark in a process of its own. Generators bring tuples at a fixed rate,
a few queries stay for good (one of them with a subscriber, one with a sink), and all the time queries are created and,
a little later, deleted. Meanwhile memory, open files, the state directory and epoch times are sampled. Retention is
set so small that results reach their bound within the warm-up.

A quantity *grows* when even the lower end of the 95 % interval of its slope (experiments/trend.py) is above what is
tolerated per hour: a tenth of its median, and at least FLOORS. Then the exit code is 1. Runs of less than ten minutes
are too short for that and only report.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

from ajoin.client.client import Client
from experiments.processes import tree
from experiments.soak_report import Sample, write_report
from optimizer.errors import AJoinError
from runtime.control.fold import DELETED_KEPT

RESULTS = Path(__file__).parent / "results" / "soak"
STREAMS = ("V", "W", "C")
RATE = 400
KEYS = 2_000
STAYING = {
    "pair": "SELECT V.n AS v, W.n AS w FROM V JOIN W ON V.k = W.k WINDOW TUMBLING (SIZE 1 SECOND)",
    "chain": "SELECT V.n AS v, W.n AS w, C.n AS c FROM V JOIN W ON V.k = W.k JOIN C ON W.j = C.j "
    "WINDOW HOPPING (SIZE 2 SECONDS, ADVANCE BY 1 SECOND)",
    "counted": "SELECT COUNT(*) AS many FROM W JOIN C ON W.j = C.j WINDOW TUMBLING (SIZE 2 SECONDS)",
}
ALIVE = 12
"""Churning queries that are there at a time."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two samples")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the report")
    asked = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # through the context managers, which stop the platform
    asked.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ajoin-soak-") as folder:
        samples, troubles = soak(Path(folder), asked.minutes, asked.every, asked.master)
    grown = write_report(asked.out, samples, troubles, asked.minutes)
    print((asked.out / "report.md").read_text())
    return 1 if grown or troubles else 0


def soak(folder: Path, minutes: float, every: float, master: str) -> tuple[list[Sample], list[str]]:
    """Samples, and what went wrong on the way."""
    troubles: list[str] = []
    ended = threading.Event()
    with serving(folder, master) as (process, address), Client(address) as client:
        begin(client, folder)
        workers = [
            threading.Thread(target=_watched, args=(work, address, ended, troubles), daemon=True)
            for work in (churn, subscribe)
        ]
        for worker in workers:
            worker.start()
        samples: list[Sample] = []
        began = time.monotonic()
        while (at := time.monotonic() - began) < 60 * minutes and not troubles:
            samples.append(sample(client, process.pid, folder / "state", at / 3600))
            print(_told(samples[-1]), flush=True)
            ended.wait(max(0.0, every - (time.monotonic() - began - at)))
        ended.set()
        for worker in workers:
            worker.join(60)
    return samples, troubles


def _told(s: Sample) -> str:
    memory = f"driver {s.driver_mb:5.0f}, JVM {s.jvm_mb:5.0f}, workers {s.workers_mb:5.0f} MB"
    state = f"state {s.state_mb:6.1f} MB in {s.state_files} files"
    return (
        f"{60 * s.hours:5.1f} min  epoch {s.epoch:6,} {s.epoch_seconds:5.2f} s  {memory}  {s.open_files} open  {state}"
    )


@contextmanager
def serving(folder: Path, master: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [
        sys.executable, "-c", "from ajoin.cli import main; main()", "serve", "--json", "--master", master,
        "--listen", "127.0.0.1:0", "--state-dir", str(folder / "state"), "--epoch-interval", "0.5",
        "--batch-interval", "0.5",
        "--set", "retention_epochs=60", "--set", "spark_conf=spark.driver.memory=512m", "--log-level", "warning",
    ]  # fmt: skip
    with (
        open(folder / "said", "w") as said,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            if not first:
                raise SystemExit((folder / "said").read_text()[-4000:])
            yield process, json.loads(first)["listening"]
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


def begin(client: Client, folder: Path) -> None:
    for name in STREAMS:
        client.create_stream(
            name,
            columns={"k": "BIGINT", "j": "BIGINT", "n": "BIGINT", "ts": "TIMESTAMP"},
            time="ts",
            options={
                "rate": RATE, "start_ms": "now", "disorder_ms": 200, "column.k": f"uniform(0,{KEYS})",
                "column.j": f"uniform(0,{KEYS})", "column.n": "seq",
            },
            watermark_delay_ms=300,
        )  # fmt: skip
    for id, sql in STAYING.items():
        sinks = ["blackhole"] if id == "chain" else []
        client.create_query(sql, id=id, sinks=sinks)
    made = 0
    while made < DELETED_KEPT:  # so many deleted queries are remembered; from then on one is forgotten for each
        batch = [f"past-{made + i}" for i in range(100)]
        client.create_queries(dict.fromkeys(batch, STAYING["pair"]))
        with ThreadPoolExecutor(len(batch)) as pool:  # together, so that they are one changelog
            list(pool.map(client.delete_query, batch))
        made += len(batch)


def churn(client: Client, ended: threading.Event) -> None:
    """About every second one query comes and, when there are enough, the oldest goes."""
    rng, alive, number = Random(7), list[str](), 0
    while not ended.wait(rng.uniform(0.5, 1.5)):
        number += 1
        one, other = rng.sample(STREAMS, 2)
        key = rng.choice("kj")
        condition = f"{one}.n % {rng.randint(2, 9)} = 0"
        kind = rng.choice((f"SELECT {one}.n AS a, {other}.n AS b", "SELECT COUNT(*) AS many"))
        sql = f"{kind} FROM {one} JOIN {other} ON {one}.{key} = {other}.{key} WHERE {condition} "
        client.create_query(sql + f"WINDOW TUMBLING (SIZE {rng.randint(1, 3)} SECONDS)", id=f"churn-{number}")
        alive.append(f"churn-{number}")
        if len(alive) > ALIVE:
            client.delete_query(alive.pop(0))


def subscribe(client: Client, ended: threading.Event) -> None:
    """One subscriber that keeps up, and comes back with its cursor now and then."""
    cursor = None
    while not ended.is_set():
        until = time.monotonic() + 20
        for item in client.subscribe("pair", cursor=cursor, progress=True):
            cursor = item.cursor
            if ended.is_set() or time.monotonic() > until:
                break


Work = Callable[[Client, threading.Event], None]


def _watched(work: Work, address: str, ended: threading.Event, troubles: list[str]) -> None:
    try:
        with Client(address) as client:
            work(client, ended)
    except AJoinError as error:
        if not ended.is_set():
            troubles.append(f"{work.__name__}: {error.reason}: {error}")


# -- samples ----------------------------------------------------------------------------------------------------------


def sample(client: Client, pid: int, state: Path, hours: float) -> Sample:
    status = client.status()
    family = tree(pid)
    names = {p: _command_line(p) for p in family}
    jvm = [p for p in family if "java" in names[p].split(" ")[0]]
    workers = [p for p in family if "-m runtime.spark.daemon" in names[p]]  # the JVM's line has the name too
    files = [p for p in state.rglob("*") if p.is_file()]
    return Sample(
        hours,
        status.epoch,
        status.epoch_seconds,
        _resident([pid]),
        _resident(jvm),
        _resident(workers),
        sum(_open_files(p) for p in (pid, *jvm, *workers)),
        sum(_size(p) for p in files) / 1e6,
        len(files),
        status.queries,
        max(status.backlog.values(), default=0),
    )


def _resident(pids: list[int]) -> float:
    """Megabytes that are not pages of files: how much of those counts as ours depends on who else has them open. Of
    workers the proportional share, because they were forked and have most of their pages in common."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss_Anon:"):
                    total += int(line.split()[1])
    return total / 1e3


def _open_files(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # dropped meanwhile


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


if __name__ == "__main__":
    sys.exit(main())
