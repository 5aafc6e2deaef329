"""How long is nobody there? From `kill -9` of the platform to the next committed epoch.

    python -m experiments.standby [--runs 3] [--heartbeat 2.0] [--store URI]

Two ways to go on, each measured in fresh directories on one store (a path, unless another is named):

    standby    `ajoin serve --standby` runs beside it, with Spark started; it has to notice the silence, and recover
    restart    a supervisor starts `ajoin serve` again at once, in an empty directory: no silence, but Spark's start

Both platforms run on Spark in local mode on this machine, with the demo's streams and one join, until some epochs are
committed. The kill comes at a random moment between two heartbeats (seeded). A client that knows both addresses asks
for the status until the epoch is beyond the last one it saw before the kill; so what is measured is what a client
notices. The parts of a take-over come from the standby's log: how long it heard nothing, and how long it then took
until the epoch. Each number is the median of the runs, with the least and the greatest.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from random import Random

from ajoin.client.client import Client
from tests.ajoin.standing import Served, Standing, beside

SQL = "SELECT V.vID, W.usrID FROM V JOIN W ON V.vID = W.vID WINDOW TUMBLING (SIZE 1 SECOND)"
WAIT = 600.0
FLAGS = (
    "--set",
    "executor=spark",
    "--master",
    "local[2]",
    "--epoch-interval",
    "0.5",
    "--batch-interval",
    "1",
    "--set",
    "log_format=json",
)


@contextmanager
def running(store: str | None, heartbeat: float) -> Iterator[tuple[Standing, list[str]]]:
    """A place for platforms, and the flags of each."""
    with tempfile.TemporaryDirectory(prefix="ajoin-standby-") as folder:
        uri = f"{store.rstrip('/')}/{Path(folder).name}" if store else None
        with beside(Path(folder), uri) as standing:
            yield standing, [*FLAGS, "--set", f"heartbeat_interval={heartbeat}"]


def busy(client: Client) -> None:
    """A join that has rows, some epochs later."""
    client.create_query(SQL, id="q")
    client.results("q", limit=100, timeout=WAIT)
    first = client.status().epoch
    until(client, first + 5)


def until(client: Client, epoch: int) -> None:
    """The call goes on at the other address when this one is gone."""
    deadline = time.monotonic() + WAIT
    while client.status().epoch < epoch:
        if time.monotonic() > deadline:
            raise SystemExit(f"epoch {epoch} was not committed in {WAIT:g} s")
        time.sleep(0.02)


def said_at(served: Served, words: str) -> float:
    """When its log said so, in seconds of the wall clock."""
    lines = [json.loads(line) for line in served.log.splitlines() if line.startswith("{")]
    return next(datetime.fromisoformat(line["time"]).timestamp() for line in lines if words in line["message"])


def with_standby(store: str | None, heartbeat: float, rng: Random) -> dict[str, float]:
    with running(store, heartbeat) as (standing, flags):
        primary = standing.serve("--demo-streams", *flags)
        primary.until_said("listening")
        standby = standing.serve("--standby", *flags)
        standby.until_said("standby")
        with Client([primary.address, standby.address], timeout=WAIT) as client:
            busy(client)
            time.sleep(rng.uniform(0, heartbeat))
            last = client.status().epoch
            primary.kill()
            killed, wall = time.monotonic(), time.time()
            until(client, last + 1)
            total = time.monotonic() - killed
        heard = said_at(standby, "taking over") - wall
        return {"total": total, "silence": heard, "take-over": total - heard}


def with_restart(store: str | None, heartbeat: float) -> dict[str, float]:
    with running(store, heartbeat) as (standing, flags):
        primary = standing.serve("--demo-streams", *flags)
        primary.until_said("listening")
        with Client(primary.address, timeout=WAIT) as client:
            busy(client)
            last = client.status().epoch
        primary.kill()
        killed = time.monotonic()
        again = standing.serve(*flags)
        again.until_said("listening")
        with Client(again.address, timeout=WAIT) as client:
            until(client, last + 1)
        return {"total": time.monotonic() - killed}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.standby", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--heartbeat", type=float, default=2.0, help="seconds between two heartbeats")
    parser.add_argument("--store", help="URI below which the stores are made; default: a path")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    rng = Random(asked.seed)
    lives = {
        "standby": [with_standby(asked.store, asked.heartbeat, rng) for _ in range(asked.runs)],
        "restart": [with_restart(asked.store, asked.heartbeat) for _ in range(asked.runs)],
    }
    print("seconds from kill -9 to the next committed epoch, as a client sees it: median (least to greatest)")
    for name, runs in lives.items():
        for part in runs[0]:
            values = [run[part] for run in runs]
            print(f"{name:8} {part:10} {statistics.median(values):6.1f} ({min(values):.1f} to {max(values):.1f})")


if __name__ == "__main__":
    main()
