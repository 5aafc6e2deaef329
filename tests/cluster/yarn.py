"""YARN on this machine: Hadoop's own resource manager and node manager, a process each, on loopback.

Maven brings their jars (yarn.xml). `conf` is what HADOOP_CONF_DIR must name for whoever wants to run something there.
Processes are known by their id and stopped by it; containers are children of the node manager's scripts, which it kills
when their application ends or it is stopped.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any
from xml.sax.saxutils import escape

from tests.tools import maven
from tests.tools.ports import free_port

POM = Path(__file__).with_name("yarn.xml")
JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
START_S = 300.0
DAEMONS = {"rm": "resourcemanager.ResourceManager", "nm": "nodemanager.NodeManager"}
LOGGING = """log4j.rootLogger=INFO,out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{ISO8601} %p %c{1}: %m%n
"""


def jars() -> Path:
    """The directory with the daemons' jars (about 110 MB)."""
    return maven.jars(POM, "ajoin-yarn")


class Yarn:
    """A context manager; entered, an application can be submitted."""

    def __init__(self, classpath: Path, directory: Path, *, memory_mb: int = 4096, cores: int = 4) -> None:
        self.conf, self._directory = directory / "conf", directory
        self._classpath = f"{self.conf}:{classpath}/*"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.web = f"127.0.0.1:{free_port()}"
        self.conf.mkdir(parents=True)
        (self.conf / "log4j.properties").write_text(LOGGING)
        core = {"fs.defaultFS": "file:///", "hadoop.tmp.dir": str(directory / "tmp")}
        queues = {"root.queues": "default", "root.default.capacity": "100", "maximum-am-resource-percent": "1.0"}
        self._configure("core-site", core)
        self._configure("capacity-scheduler", {f"yarn.scheduler.capacity.{k}": v for k, v in queues.items()})
        self._configure("yarn-site", self._yarn_site(memory_mb, cores))

    def _yarn_site(self, memory_mb: int, cores: int) -> dict[str, str]:
        manager = ("address", "scheduler.address", "resource-tracker.address", "admin.address")
        node = ("address", "localizer.address", "webapp.address")
        return (
            {f"yarn.resourcemanager.{name}": f"127.0.0.1:{free_port()}" for name in manager}
            | {f"yarn.nodemanager.{name}": f"127.0.0.1:{free_port()}" for name in node}
            | {
                "yarn.resourcemanager.hostname": "127.0.0.1",
                "yarn.resourcemanager.webapp.address": self.web,
                "yarn.nodemanager.hostname": "127.0.0.1",
                "yarn.nodemanager.local-dirs": str(self._directory / "local"),
                "yarn.nodemanager.log-dirs": str(self._directory / "logs"),
                "yarn.nodemanager.resource.memory-mb": str(memory_mb),
                "yarn.nodemanager.resource.cpu-vcores": str(cores),
                "yarn.nodemanager.vmem-check-enabled": "false",
                "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
                "yarn.scheduler.minimum-allocation-mb": "128",
            }
        )

    def _configure(self, name: str, settings: dict[str, str]) -> None:
        lines = [f"<property><name>{k}</name><value>{escape(v)}</value></property>\n" for k, v in settings.items()]
        (self.conf / f"{name}.xml").write_text(f"<configuration>\n{''.join(lines)}</configuration>\n")

    def __enter__(self) -> Yarn:
        try:
            for name in DAEMONS:
                self._start(name)
            deadline = time.monotonic() + START_S
            while self.metrics().get("activeNodes") != 1:
                ended = [name for name, process in self._processes.items() if process.poll() is not None]
                if ended or time.monotonic() > deadline:
                    raise AssertionError(f"YARN did not start; {ended or 'nothing'} has ended\n{self.said()}")
                time.sleep(0.2)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self, name: str) -> None:
        command = ["java", *JVM, "-cp", self._classpath, f"org.apache.hadoop.yarn.server.{DAEMONS[name]}"]
        with open(self._directory / f"{name}.log", "wb") as out:
            self._processes[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )

    def metrics(self) -> dict[str, Any]:
        """Of the cluster; empty while the resource manager does not answer."""
        try:
            with urllib.request.urlopen(f"http://{self.web}/ws/v1/cluster/metrics", timeout=10) as answer:
                told: dict[str, Any] = json.load(answer)["clusterMetrics"]
                return told
        except (urllib.error.URLError, OSError):
            return {}

    def said(self) -> str:
        """The ends of all logs, containers' included."""
        logs = [*self._directory.glob("*.log"), *self._directory.glob("logs/*/*/*")]
        return "\n".join(f"-- {path.name}\n{path.read_text(errors='replace')[-2000:]}" for path in logs)

    def stop(self) -> None:
        """The node manager first: it kills its containers."""
        for name in reversed(DAEMONS):
            process = self._processes.pop(name, None)
            if process is None:
                continue
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
