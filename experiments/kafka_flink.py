"""The same query in Flink, reading the same topics: the other side of `experiments.kafka_throughput`.

Flink reads JSON only: it has no Arrow format. The connector (flink-sql-connector-kafka) is fetched with Maven into
Flink's virtual environment; the newest one is built for Flink 2.2 and works with 2.3.

What is counted is in Flink's favour. The rows are counted first, over all messages, which warms its code up. Then a
short pair of topics is read, and its messages and seconds are subtracted from those of the long pair: planning,
starting tasks and finding the topics' ends are no throughput. Its rows go to a blackhole; ours are written to the
result log.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.systems.base import System, Unavailable
from experiments.systems.registry import FLINK_VENV, install_flink

CONNECTOR = "5.0.0-2.2"
TIME_LIMIT = 900.0


@dataclass(frozen=True, slots=True)
class FlinkResult:
    """`status` is 'ok' or says why there are no numbers; `seconds` belong to `messages`, fixed costs are taken off."""

    status: str
    messages: int = 0
    seconds: float = 0.0
    rows: int = 0

    @property
    def rate(self) -> float:
        return self.messages / self.seconds if self.seconds > 0 else 0.0


class FlinkKafka(System):
    def command(self) -> list[str]:
        return [str(FLINK_VENV / "bin" / "python"), "-m", "experiments.systems.flink_kafka_worker"]


def connector() -> Path:
    """The connector's jar; fetched once."""
    install_flink()
    folder = FLINK_VENV / "kafka"
    jar = folder / f"flink-sql-connector-kafka-{CONNECTOR}.jar"
    if not jar.exists():
        if shutil.which("mvn") is None:
            raise Unavailable("Flink's Kafka connector is fetched with mvn, which is not installed")
        artifact = f"-Dartifact=org.apache.flink:flink-sql-connector-kafka:{CONNECTOR}"
        command = ["mvn", "-q", "-B", "dependency:copy", artifact, f"-DoutputDirectory={folder}"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=FLINK_VENV.parent)
        if done.returncode != 0:
            raise Unavailable(f"Maven could not fetch Flink's Kafka connector: {(done.stdout + done.stderr)[-300:]}")
    return jar


def measure(
    bootstrap: str,
    short: Mapping[str, str],
    long: Mapping[str, str],
    sizes: tuple[int, int],
    columns: Sequence[str],
    delay_ms: int,
    log: Path,
) -> FlinkResult:
    """`short` and `long`: topics by stream; `sizes`: messages in each pair."""
    try:
        jar = connector()
    except Unavailable as why:
        return FlinkResult(f"not available: {why}")
    system = FlinkKafka("flink-kafka", log)
    common = {"op": "run", "bootstrap": bootstrap, "columns": list(columns), "delay_ms": delay_ms, "jar": jar.as_uri()}
    try:
        counted = system.ask({**common, "topics": dict(long), "count": True}, TIME_LIMIT)
        if not counted.finished:
            return FlinkResult(counted.status)
        fixed = system.ask({**common, "topics": dict(short), "count": False}, TIME_LIMIT)
        timed = system.ask({**common, "topics": dict(long), "count": False}, TIME_LIMIT)
    finally:
        system.stop()
    for answer in (fixed, timed):
        if not answer.finished:
            return FlinkResult(answer.status)
    rows = dict(counted.rows or {}).get("q", 0)
    seconds = timed.seconds - fixed.seconds
    if seconds <= 0:
        return FlinkResult("too few messages: the fixed costs take longer than reading them", rows=rows)
    return FlinkResult("ok", sizes[1] - sizes[0], seconds, rows)
