"""A failure a person can work with: what differs, the life as a file, and the command that does it again."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from runtime.execution.executor import Executor
from runtime.execution.sharing import SharingName
from tests.lives.engine import Paced, Stored, differences
from tests.lives.life import make_life
from tests.lives.runner import describe

SHOWN = 12


def live(
    profile: str,
    seed: int,
    executor: Executor | None = None,
    partitions: int = 2,
    sharing: SharingName = "cost",
    flags: str = "",
    stored: Stored | None = None,
    rotting: int | None = None,
    paced: Paced | None = None,
) -> None:
    """Play one life and fail with everything needed when engine and oracle disagree, or the engine breaks."""
    life = make_life(Random(seed), profile)
    options = f"--partitions {partitions} --sharing {sharing} {flags}".rstrip()
    if stored is not None:
        kind = "failing" if stored.fails else "objects" if stored.objects else "path"
        options += f" --store {kind}" + (" --killed" if stored.killed else "") + ("" if stored.lost else " --kept")
        options += f" --cache-bytes {stored.cache_bytes}" if stored.cache_bytes else ""
    options += "" if rotting is None else f" --rotting {rotting}"
    if paced is not None:
        options += f" --paced {paced.rows}" + (" --at-once" if paced.at_once else "")
    command = f"python -m tests.lives.reproduce {profile} {seed} {options}"
    try:
        found = differences(life, executor, partitions, sharing, stored, rotting, paced)
    except Exception as error:
        error.add_note(_where(profile, seed, life, command))
        raise
    if found:
        told = "\n".join(found[:SHOWN])
        more = f"\n... {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        pytest.fail(f"{told}{more}\n{_where(profile, seed, life, command)}", pytrace=False)


def _where(profile: str, seed: int, life: Sequence[dict[str, Any]], command: str) -> str:
    path = Path(tempfile.gettempdir()) / f"ajoin-life-{profile}-{seed}.jsonl"
    path.write_text(describe(life), encoding="utf-8")
    return f"{profile} life {seed}: {path}\nreproduce: {command}"
