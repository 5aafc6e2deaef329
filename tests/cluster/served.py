"""Platforms that are served on one cluster, with their state in one S3 server: processes of `ajoin serve`, each with a
Spark application of its own. What one of them does can be held up (tests/cluster/traps.py)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ajoin.client.client import Client
from runtime.spark.standalone import Daemon, Standalone
from tests.ajoin.followed import until
from tests.ajoin.standing import Served, Standing, beside
from tests.cluster.processes import HERE, SMALL
from tests.cluster.traps import GATE, TRAP, at_gate
from tests.tools.minio import MinIO

PARTITIONS = 6
INTERVAL = 3.0
"""Between two heartbeats: drivers share few cores with executors here."""


class Cluster:
    def __init__(self, folder: Path, spark: Standalone, standing: Standing) -> None:
        self._folder, self.spark, self._standing = folder, spark, standing

    def serve(self, cores: int, *flags: str, trapped: bool = False) -> Served:
        """With at most so many executors of one core."""
        conf = SMALL | HERE | self.spark.options | {"spark.cores.max": str(cores), "spark.executor.cores": "1"}
        return self._standing.serve(
            *("--set", "executor=spark", "--master", self.spark.url, "--partitions", str(PARTITIONS)),
            *("--set", "spark_conf=" + ",".join(f"{key}={value}" for key, value in conf.items())),
            *("--set", f"heartbeat_interval={INTERVAL}"),
            *flags,
            **({"program": ("-m", "tests.cluster.traps", str(self._folder))} if trapped else {}),
        )

    def pair(self, cores: int, standby_cores: int) -> tuple[Served, Served]:
        """One that can be held up, and one that stands by for it."""
        primary, standby = self.serve(cores, trapped=True), self.serve(standby_cores, "--standby")
        primary.until_said("listening")
        standby.until_said("standby")
        return primary, standby

    def workers(self, client: Client) -> list[str]:
        """On which its executors are that have a cache; one name for each."""
        found = [e.cache for e in client.status().executors if e.cache]
        return sorted(Path(cache).relative_to(self.spark.directory).parts[0] for cache in found)

    # -- holding up ---------------------------------------------------------------------------------------------

    def trap(self, worker: Daemon) -> Path:
        """Join tasks that get there stay there; the file that says that one has."""
        (self._folder / TRAP).write_text(str(worker.log.parent))
        return worker.log.parent / "trapped"

    def kill_trapped(self, worker: Daemon) -> None:
        self.spark.kill(worker)
        (self._folder / TRAP).unlink()

    def close_gate(self) -> None:
        (self._folder / GATE).touch()

    def until_gated(self) -> None:
        until(lambda: at_gate(self._folder), "no task gets to the gate")

    def open_gate(self) -> None:
        (self._folder / GATE).unlink()


@contextmanager
def served(folder: Path, s3: MinIO, workers: int = 3) -> Iterator[Cluster]:
    """Every worker has two cores."""
    with (
        Standalone(folder / "cluster", workers, cores=2, memory="2g") as spark,
        beside(folder, s3.uri(s3.new_bucket())) as standing,
    ):
        yield Cluster(folder, spark, standing)
