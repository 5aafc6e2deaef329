"""`python -m tests.cluster.blind FOLDER URI`: executors that do not see what the driver sees.

URI: a bucket of an S3 server, without credentials; these come on standard input, and get into the driver's environment
only after the worker was started. With root, the worker also has another disk in the
place of FOLDER/mount. The last line printed is a JSON report of what opening a platform says.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from optimizer.errors import AJoinError
from runtime.engine.config import EngineConfig
from runtime.engine.engine import Engine
from runtime.spark.executor import SparkExecutor
from runtime.spark.standalone import LOOPBACK, Host, Standalone
from tests.cluster.processes import HERE


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder, uri = Path(sys.argv[1]), sys.argv[2]
    mount = folder / "mount"
    mount.mkdir(parents=True)
    covered = ("unshare", "-m", "sh", "-c", f'mount -t tmpfs none {mount} && exec "$@"', "sh")
    able = os.geteuid() == 0
    stores = {"keyless": uri} | ({"path": str(mount / "store")} if able else {})
    with Standalone(
        folder, host=lambda name: LOOPBACK if name == "master" or not able else Host("127.0.0.1", covered)
    ) as cluster:
        os.environ |= json.loads(sys.stdin.readline())
        options = HERE | {"spark.executor.memory": "512m"} | cluster.options
        executor = SparkExecutor.start(cluster.url, local_dir=folder / "driver", options=options)
        report: dict[str, list[str] | None] = {}
        try:
            for name, store in stores.items():
                try:
                    Engine.open(folder / name, executor, EngineConfig(store=store)).close()
                    report[name] = None
                except AJoinError as failure:
                    report[name] = [failure.reason, failure.message, failure.hint]
        finally:
            executor.stop()
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
