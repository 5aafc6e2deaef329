"""Several hosts on one machine: network namespaces that hang on one switch, each with an address and a link of its own.

    switch ──── bridge ──┬── driver     10.213.0.1
                         ├── store      10.213.0.2
                         ├── worker-1   10.213.0.3 …

What runs on a host sees no network but this one, so whatever it gets has come over its link; the kernel counts the
bytes, and `limit` bounds them in both directions. The bridge is in a namespace too: the machine's own network is not
touched, and nothing of it can be reached. Disks and cores are the machine's. Links have no delay (that takes `netem`,
which not every kernel has).

Only root may make namespaces: `unable` says why it does not work here. Names carry the id of the process that made
them; leaving the context removes all of them, and with a namespace its links. Processes on hosts are children of
whoever started them, which has to stop them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from runtime.spark.standalone import Host

LINK, BRIDGE, NETWORK = "up0", "bridge0", "10.213.0"
DRIVER, STORE, SWITCH = "driver", "store", "switch"
BURST, QUEUE = "32kb", "200ms"
"""Of a limited link: what may pass at once, and how long packets wait before one is dropped."""


class CannotMake(Exception):
    """There are no such hosts on this machine; says why."""


class Hosts:
    """A context manager. `prefix`: hosts that another process has made, and removes."""

    def __init__(self, names: Sequence[str], prefix: str | None = None) -> None:
        self.names = tuple(names)
        self._made = prefix is None
        self.prefix = prefix or f"ajoin-{os.getpid()}-{uuid.uuid4().hex[:4]}"

    @classmethod
    def with_workers(cls, workers: int, prefix: str | None = None) -> Hosts:
        return cls([DRIVER, STORE, *(f"worker-{n + 1}" for n in range(workers))], prefix)

    @property
    def workers(self) -> int:
        return sum(name.startswith("worker-") for name in self.names)

    def host(self, name: str) -> Host:
        """Spark's master is with the driver."""
        name = DRIVER if name == "master" else name
        return Host(f"{NETWORK}.{self.names.index(name) + 1}", ("ip", "netns", "exec", self._namespace(name)))

    def limit(self, name: str, mbit: float | None) -> None:
        """Of the host's link, both ways, from now on; None: as fast as it goes."""
        for namespace, device in ((name, LINK), (SWITCH, f"to-{self.names.index(name)}")):
            if mbit is None:
                _run(*self._in(namespace), "tc", "qdisc", "del", "dev", device, "root", check=False)
            else:
                rate = ["tbf", "rate", f"{mbit}mbit", "burst", BURST, "latency", QUEUE]
                _run(*self._in(namespace), "tc", "qdisc", "replace", "dev", device, "root", *rate)

    def passed(self, name: str) -> tuple[int, int]:
        """Bytes that came over the host's link so far, and bytes that left."""
        device = f"to-{self.names.index(name)}"
        lines = _run(*self._in(SWITCH), "cat", "/proc/net/dev").splitlines()
        counts = next(line.split(":")[1].split() for line in lines if line.strip().startswith(f"{device}:"))
        return int(counts[8]), int(counts[0])  # what the switch sends, the host receives

    def program(self, name: str, program: Path, folder: Path) -> Path:
        """A script that runs a program on a host, for those who start programs by their path."""
        script = folder / f"{program.name}-on-{name}"
        script.write_text(f'#!/bin/sh\nexec {" ".join(self.host(name).through)} {program} "$@"\n')
        script.chmod(0o700)
        return script

    def __enter__(self) -> Hosts:
        if self._made:
            _able()
            try:
                self._make()
            except BaseException:
                self.remove()
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._made:
            self.remove()

    def remove(self) -> None:
        for name in (*self.names, SWITCH):
            _run("ip", "netns", "delete", self._namespace(name), check=False)

    def _make(self) -> None:
        for name in (SWITCH, *self.names):
            _run("ip", "netns", "add", self._namespace(name))
            _run(*self._in(name), "ip", "link", "set", "lo", "up")
        _run(*self._in(SWITCH), "ip", "link", "add", BRIDGE, "type", "bridge")
        _run(*self._in(SWITCH), "ip", "link", "set", "dev", BRIDGE, "up")
        for number, name in enumerate(self.names):
            port, far = f"to-{number}", self._namespace(name)
            switch = self._in(SWITCH)
            _run(*switch, "ip", "link", "add", port, "type", "veth", "peer", "name", LINK, "netns", far)
            _run(*switch, "ip", "link", "set", "dev", port, "master", BRIDGE, "up")
            _run(*self._in(name), "ip", "address", "add", f"{self.host(name).address}/24", "dev", LINK)
            _run(*self._in(name), "ip", "link", "set", "dev", LINK, "up")

    def _namespace(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    def _in(self, name: str) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self._namespace(name))


def unable() -> str | None:
    """Why there can be no hosts here; None: there can."""
    try:
        with Hosts(["probe"]) as hosts:
            hosts.limit("probe", 10)
    except CannotMake as why:
        return str(why)
    return None


def _able() -> None:
    if os.geteuid() != 0:
        raise CannotMake("only root can make network namespaces")
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing:
        raise CannotMake(f"iproute2 is not installed: no {' and no '.join(missing)}")


def _run(*command: str, check: bool = True) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if check and done.returncode != 0:
        raise CannotMake(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout
