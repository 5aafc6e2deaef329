"""The process Spark forks Python workers from, with everything heavy loaded beforehand.

Spark starts `python -m runtime.spark.daemon` once per executor. Importing numpy, pyarrow and numba and loading the
compiled kernels takes seconds; done here, every forked worker has them at once and shares the memory.

A worker collects garbage after every task. What was loaded here is frozen, so that the collector does not walk through
all of it each time: that took a tenth of a second a task, more than many tasks themselves, and unshared the memory.
"""

from __future__ import annotations

import gc

from pyspark.daemon import manager


def load() -> None:
    """Load all that tasks need, by running a few tuples through the operators."""
    import runtime.operators.join
    import runtime.operators.rebuild
    import runtime.operators.source  # noqa: F401
    from runtime.machine.memory import keep_freed
    from runtime.machine.warm import warm_up

    keep_freed()
    warm_up()
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    load()
    manager()
