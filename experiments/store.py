"""What does a store cost, and what does it take off the driver?

    python -m experiments.store [C1 C2 C4 C5 C6 C8] [--quick] [--folder DIRECTORY]

    C1  bytes through the driver per epoch, when tuples grow a hundredfold            needs root
    C2  bytes that executors fetch, with 1, 2 and 4 of them; with C3, the largest share of open state in one cache
    C4  throughput with a store on the same machine over the state directory
    C5  throughput with the driver's link at 10 Mbit/s over a free one                needs root
    C6  requests per epoch, with more and more open buckets
    C8  bytes that are sent with stages per epoch, with more and more open buckets

Every experiment compares its rows first, runs in a process of its own, because a process has only one Spark context,
and is a count or a ratio within one run. Prints a Markdown table. Modules of experiments/stores say how each is done.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from experiments.stores import cluster, links, local
from experiments.stores.life import Line
from tests.cluster.hosts import DRIVER, CannotMake, Hosts
from tests.cluster.several import WORKERS

ON_THIS_HOST: dict[str, Callable[[Path, bool], list[Line]]] = {
    "C2": cluster.executors,
    "C4": local.throughput,
    "C6": local.per_epoch,
    "C8": cluster.shipped,
}
ON_HOSTS: dict[str, Callable[[Path, bool, Hosts], list[Line]]] = {
    "C1": links.bytes_per_epoch,
    "C5": links.slow_link,
}
NAMES = sorted({*ON_THIS_HOST, *ON_HOSTS})
MARK = "lines: "
"""How the line begins with which an experiment's own process reports."""


def alone(name: str, folder: Path, quick: bool, hosts: str | None) -> list[Line]:
    """In this process."""
    if name in ON_THIS_HOST:
        return ON_THIS_HOST[name](folder, quick)
    return ON_HOSTS[name](folder, quick, Hosts.with_workers(WORKERS, hosts))


def measure(name: str, folder: Path, quick: bool) -> list[Line]:
    """In a process of its own, on a host of its own if it needs several."""
    if name in ON_THIS_HOST:
        return _child((), name, folder, quick)
    try:
        with Hosts.with_workers(WORKERS) as hosts:
            return _child(hosts.host(DRIVER).through, name, folder, quick, "--hosts", hosts.prefix)
    except CannotMake as why:
        return [Line(name, f"not measured: {why}")]


def _child(through: tuple[str, ...], name: str, folder: Path, quick: bool, *more: str) -> list[Line]:
    command = [*through, sys.executable, "-m", "experiments.store", name, "--alone", "--folder", str(folder), *more]
    process = subprocess.Popen([*command, *(["--quick"] if quick else [])], stdout=subprocess.PIPE, text=True)
    try:
        out, _ = process.communicate()
    except BaseException:
        process.terminate()  # it stops what it has started
        process.wait(60)
        raise
    if process.returncode:
        raise SystemExit(f"{name} failed")
    report = next(line for line in out.splitlines() if line.startswith(MARK))
    return [Line(*row) for row in json.loads(report.removeprefix(MARK))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=NAMES, default=NAMES, metavar="EXPERIMENT")
    parser.add_argument("--quick", action="store_true", help="a minute or two each")
    parser.add_argument("--folder", type=Path, help="where states and stores go")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--hosts", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # through the context managers, which stop everything
    with tempfile.TemporaryDirectory(prefix="ajoin-store-", dir=asked.folder) as folder:
        if asked.alone:
            print(MARK + json.dumps(alone(asked.names[0], Path(folder), asked.quick, asked.hosts)), flush=True)
            return
        print("| measured | value | target | met |\n|---|---|---|---|", flush=True)
        for name in asked.names:
            for what, value, target, met in measure(name, Path(folder), asked.quick):
                answer = {None: "", True: "yes", False: "**no**"}[met]
                print(f"| {what} | {value} | {target} | {answer} |", flush=True)


if __name__ == "__main__":
    main()
