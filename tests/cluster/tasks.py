"""What the story runs on executors; in a module of its own, because tasks travel by name."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any


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
