"""A Spark executor whose join tasks stop where a test wants them; `python -m tests.cluster.traps FOLDER ...` is `ajoin
...` with such an executor.

Two files in a folder say what is wanted, to whoever owns the folder, also from another process:

    trap    holds the directory of a worker: join tasks that get there stay, until the worker is dead, and leave the
            file `trapped` there
    gate    join tasks wait wherever they are, as long as it is there, and leave a file that names their executor

They are looked at when a stage begins. Everything else is the product's own.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runtime.spark import executor
from tests.cluster.tasks import gated, trapped

TRAP, GATE = "trap", "gate"


def at_gate(folder: Path) -> set[str]:
    """Executors of which a task has come to the gate, since it was first closed."""
    return {path.name.rpartition("-")[2] for path in folder.glob(f"{GATE}-reached-*")}


class Trapping(executor.SparkExecutor):
    folder: Path

    def run(self, name: str, stage: Any, shared: Any, tasks: Sequence[Any]) -> Any:
        if "join" not in name:
            return super().run(name, stage, shared, tasks)
        if (gate := self.folder / GATE).exists():
            return super().run(name, gated, (str(gate), stage, shared), tasks)
        try:
            home = (self.folder / TRAP).read_text()
        except FileNotFoundError:
            return super().run(name, stage, shared, tasks)
        return super().run(name, trapped, (home, stage, shared), tasks)


def main() -> None:
    from ajoin.cli import main as ajoin

    Trapping.folder = Path(sys.argv.pop(1))
    executor.SparkExecutor = Trapping  # type: ignore[misc]
    ajoin()


if __name__ == "__main__":
    main()
