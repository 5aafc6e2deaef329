"""`python -m tests.cluster.on_yarn FOLDER`: the platform with `--master yarn`, on executors in YARN's containers.

A process of its own, because a process can have only one Spark context. The store cannot be mapped, as on machines
without a shared disk. The last line printed is a JSON report.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pyspark

from runtime.spark.executor import SparkExecutor
from tests.cluster.processes import HERE
from tests.cluster.story import Inputs, begun, store_in
from tests.cluster.tasks import where
from tests.cluster.yarn import Yarn, jars

EPOCHS = 4
OPTIONS = HERE | {
    "spark.executor.instances": "2",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.yarn.am.memory": "512m",
    "spark.yarn.jars": f"local:{Path(pyspark.__file__).parent}/jars/*",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
"""`spark.yarn.jars`: Spark is here already, and need not be uploaded."""


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # through the context managers, which stop YARN
    folder = Path(sys.argv[1])
    with Yarn(jars(), folder / "yarn") as yarn:
        os.environ["HADOOP_CONF_DIR"] = str(yarn.conf)
        try:
            executor = SparkExecutor.start("yarn", local_dir=folder / "driver", options=OPTIONS)
            try:
                inputs = Inputs.opaque(folder / "in")
                rig = begun(folder / "state", executor, store_in(folder), inputs)
                for epoch in range(EPOCHS):
                    rig.epoch(inputs.bring(epoch))
                report = {
                    "epochs": EPOCHS,
                    "rows": {id: rig.rows(id) for id in ("pair", "chain")},
                    "homes": executor.run("where", where, None, range(4)),
                    "caches": [told.cache for told in executor.executors(4)],
                }
                rig.engine.close()
            finally:
                executor.stop()
        except BaseException:
            print(yarn.said(), file=sys.stderr)
            raise
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
