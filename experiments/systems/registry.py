"""All systems by name, and how each is started."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.systems.base import ROOT, System, Unavailable
from experiments.template import TemplateQuery

FLINK_VERSION = "2.3.0"
FLINK_VENV = ROOT / "experiments" / ".venv-flink"


class PlatformSystem(System):
    """This platform; `sharing` is the engine's mode: 'cost', 'off' (one plan per query) or 'astream'; 'eager' is 'cost'
    without the optimizer."""

    def __init__(self, name: str, log: Path, sharing: str, executor: str) -> None:
        super().__init__(name, log)
        self.sharing, self.executor = sharing, executor

    def command(self) -> list[str]:
        return [sys.executable, "-m", "experiments.systems.platform_worker"]

    def environment(self) -> Mapping[str, str]:
        return {"AJOIN_BENCH_EXECUTOR": self.executor, "AJOIN_BENCH_SHARING": self.sharing}

    def settling(self, count: bool) -> int:
        adhoc = self._options.get("engine.submit") == "adhoc"
        return 0 if count or adhoc else int(self._options.get("run.settle_epochs", 0))


class KernelSystem(System):
    def command(self) -> list[str]:
        return [sys.executable, "-m", "experiments.systems.kernel_worker"]

    def refuses(self, queries: Sequence[TemplateQuery]) -> str:
        if len(queries) != 1 or len(queries[0].sources) != 2:
            return "not applicable: the plain loop knows one two-way query"
        return ""


class SparkSystem(System):
    pays_for_starting = True

    def command(self) -> list[str]:
        return [sys.executable, "-m", "experiments.systems.spark_worker"]


class FlinkSystem(System):
    layout = "readers"
    pays_for_starting = True

    def command(self) -> list[str]:
        install_flink()
        return [str(FLINK_VENV / "bin" / "python"), "-m", "experiments.systems.flink_worker"]


PLATFORMS = ("ajoin", "eager", "unshared", "astream")
SYSTEMS = (*PLATFORMS, "flink", "spark", "kernels")


def make_system(name: str, logs: Path, executor: str = "spark") -> System:
    log = logs / f"{name}.log"
    match name:
        case "ajoin":
            return PlatformSystem(name, log, "cost", executor)
        case "eager":
            return PlatformSystem(name, log, "eager", executor)
        case "unshared":
            return PlatformSystem(name, log, "off", executor)
        case "astream":
            return PlatformSystem(name, log, "astream", executor)
        case "flink":
            return FlinkSystem(name, log)
        case "spark":
            return SparkSystem(name, log)
        case "kernels":
            return KernelSystem(name, log)
    raise Unavailable(f"there is no system {name!r}; there are {', '.join(SYSTEMS)}")


def flink_installed() -> bool:
    return (FLINK_VENV / ".installed").exists()


def install_flink() -> None:
    """Flink in a virtual environment of its own (its pins clash with ours): about 850 MB, once.

    The Parquet format is not in the wheel; it comes from Maven, and the Hadoop classes it needs are those that
    PySpark ships.
    """
    if flink_installed():
        return
    if shutil.which("mvn") is None:
        raise Unavailable("Flink's Parquet format is fetched with mvn, which is not installed")
    import pyspark

    python = FLINK_VENV / "bin" / "python"
    if not python.exists():
        _must([sys.executable, "-m", "venv", str(FLINK_VENV)])
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _must([*install, f"apache-flink=={FLINK_VERSION}"])
    (lib,) = FLINK_VENV.glob("lib/python*/site-packages/pyflink/lib")
    artifact = f"-Dartifact=org.apache.flink:flink-sql-parquet:{FLINK_VERSION}"
    _must(["mvn", "-q", "-B", "dependency:copy", artifact, f"-DoutputDirectory={lib}"])
    for jar in (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-*.jar"):
        shutil.copy(jar, lib)
    (FLINK_VENV / ".installed").touch()


def _must(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, cwd=FLINK_VENV.parent)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()[-500:]
        raise Unavailable(f"{' '.join(command[:4])} ... failed: {said}")
