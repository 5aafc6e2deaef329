"""A Spark cluster and an S3 server on several hosts (tests/cluster/hosts.py): whoever uses it runs on the driver's.

    python -m tests.cluster.several FOLDER HOSTS

tells a short life of the platform there, at first with a free link to the driver, then with a slow one, and prints a
JSON report as its last line. HOSTS is the prefix of hosts that another process has made.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from runtime.spark.executor import SparkExecutor
from runtime.spark.standalone import Standalone
from tests.cluster.hosts import DRIVER, STORE, Hosts
from tests.cluster.processes import HERE, SMALL, stopping_on_sigterm
from tests.cluster.story import Inputs, begun
from tests.tools import minio

WORKERS, PORT, SLOW = 2, 9000, 10.0


class Several(NamedTuple):
    hosts: Hosts
    executor: SparkExecutor
    server: minio.MinIO

    def store(self) -> str:
        """A new one."""
        return self.server.uri(self.server.new_bucket())


@contextmanager
def several(folder: Path, hosts: Hosts) -> Iterator[Several]:
    """As many workers as there are hosts for them."""
    with ExitStack() as stack:
        server = minio.MinIO(hosts.program(STORE, minio.binary(), folder), folder)
        server.address = f"{hosts.host(STORE).address}:{PORT}"
        stack.callback(server.stop)
        server.start()
        cluster = stack.enter_context(Standalone(folder, hosts.workers, host=hosts.host))
        here = hosts.host(DRIVER).address
        options = {"spark.driver.host": here, "spark.driver.bindAddress": here}
        options |= SMALL | HERE | cluster.options
        executor = SparkExecutor.start(cluster.url, local_dir=folder / "driver", options=options)
        stack.callback(executor.stop)
        yield Several(hosts, executor, server)


def main() -> None:
    stopping_on_sigterm()
    folder, hosts = Path(sys.argv[1]), Hosts.with_workers(WORKERS, sys.argv[2])
    with several(folder, hosts) as place:
        bucket = place.server.new_bucket()

        def put(name: str, data: bytes) -> None:
            with place.server.files().open_output_stream(f"{bucket}/in/{name}") as out:
                out.write(data)

        inputs = Inputs(folder / "files", place.server.uri(bucket, "in"), put)
        rig = begun(folder / "state", place.executor, place.store(), inputs)
        for epoch in range(4):
            hosts.limit(DRIVER, None if epoch < 2 else SLOW)
            rig.epoch(inputs.bring(epoch))
        report = {
            "epochs": 4,
            "rows": {id: rig.rows(id) for id in ("pair", "chain")},
            "executors": len(place.executor.executors(4)),
            "passed": {name: hosts.passed(name) for name in hosts.names},
        }
        rig.engine.close()
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
