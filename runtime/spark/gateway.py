"""Starts the JVM of the Spark driver without forking this process.

PySpark starts its JVM with a `preexec_fn` that makes it ignore Ctrl-C. For that Python must fork: copy this process
with all locks as its other threads happen to hold them, and run Python code in the copy. If gRPC threads are at work at
that moment, the copy can hang or die, and Spark does not start. Without `preexec_fn` Python uses vfork, which copies
nothing and calls no fork handlers; that is safe whatever the other threads do.

So the JVM gets a session of its own instead: Ctrl-C in a terminal reaches the driver alone, which stops Spark in order.
And it still ends with its driver, however that dies: its standard input is a pipe that the operating system closes.

`launch_gateway` with `popen_kwargs`, and SparkContext's parameter `gateway`, are PySpark's public way to do this
(tests/cluster/test_driver.py fails if a later PySpark forks all the same).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

_gateway: Any = None
"""The JVM of this process. PySpark, too, keeps one and uses it again for the next context."""


class _WithoutFork(dict[str, Any]):
    """Arguments for Popen among which there is never a `preexec_fn`, even if PySpark sets one."""

    def __setitem__(self, name: str, value: Any) -> None:
        if name != "preexec_fn":
            super().__setitem__(name, value)


def gateway(conf: Any, log: Path | None) -> Any:
    """The JVM of this process; started with `conf` if there is none yet. `log`: where its standard error goes."""
    global _gateway
    if _gateway is not None:
        return _gateway
    from pyspark.java_gateway import launch_gateway

    arguments = _WithoutFork(start_new_session=True)
    if log is None:
        _gateway = launch_gateway(conf, arguments)
    else:
        log.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "ab") as errors:
            arguments["stderr"] = errors
            _gateway = launch_gateway(conf, arguments)
    return _gateway
