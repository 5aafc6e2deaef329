"""What the story runs on executors; in a module of its own, because tasks travel by name."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from runtime.spark.executors import own_id


def where(shared: None, task: int) -> str:
    """An executor works in a directory of its worker."""
    return str(Path.cwd())


def trapped(shared: tuple[str, Any, Any], task: Any) -> Any:
    """On the worker that lives in `home`: say so and stay, until the worker is dead. Elsewhere: work."""
    home, stage, inner = shared
    if Path.cwd().is_relative_to(home):
        (Path(home) / "trapped").touch()
        threading.Event().wait()
    return stage(inner, task)


def gated(shared: tuple[str, Any, Any], task: Any) -> Any:
    """As long as there is this file: say on which executor, and wait. Then work."""
    gate, stage, inner = shared
    Path(f"{gate}-reached-{own_id()}").touch()
    while Path(gate).exists():
        time.sleep(0.05)
    return stage(inner, task)


def ready_to_die(shared: tuple[str, Any, Any], task: Any) -> Any:
    """On the worker that lives in `home`, once: kill the executor this task runs in. Elsewhere, and again: work."""
    home, stage, inner = shared
    if Path.cwd().is_relative_to(home):
        try:
            (Path(home) / "killed").touch(exist_ok=False)
        except FileExistsError:
            return stage(inner, task)
        os.kill(executor_of(os.getpid()), signal.SIGKILL)
        threading.Event().wait()  # the executor's end is the end of its Python workers
    return stage(inner, task)


def executor_of(pid: int) -> int:
    """The JVM above a Python worker and the process that forked it."""
    while "java" not in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


def environment(name: str, task: int) -> str:
    """What a variable says where the task runs."""
    return os.environ.get(name, "")
