"""Makes a failing life small: fewer lines that still fail.

Delta debugging over the removable pieces of a scenario. A query goes together with every line that speaks of
it, a stream stays as long as anything uses it, and a split of a partition that no longer exists goes too; so
every smaller life is a valid one and a failure keeps its meaning. Cost: about n log n runs for n pieces; a
run is whatever `fails` does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

Line = dict[str, Any]
Removal = Callable[[Line], Line | None]
"""What is left of a line when one piece of the life is taken away: the line, a part of it, or nothing."""


def shrink(scenario: Sequence[Line], fails: Callable[[list[Line]], bool]) -> list[Line]:
    """A life for which `fails` still holds and no single removal keeps it so; `fails(scenario)` must hold."""
    life = list(scenario)
    size = len(life) + 1
    while len(life) < size:
        size = len(life)
        pieces = removals(life)
        chunk = max(1, len(pieces) // 2)
        while chunk:
            at = 0
            while at < len(pieces):
                candidate = without(life, pieces[at : at + chunk])
                if candidate != life and fails(candidate):
                    life = candidate
                    del pieces[at : at + chunk]
                else:
                    at += chunk
            chunk //= 2
    return life


def removals(life: Sequence[Line]) -> list[Removal]:
    """Everything that can be taken away on its own: queries first, then single lines."""
    queries = [line["create"] for line in life if "create" in line and not line.get("expect_error")]
    free = [line for line in life if "create" not in line and not _needed(line, life)]
    return [*(_query_removal(id) for id in queries), *(_line_removal(line) for line in free)]


def without(life: Iterable[Line], pieces: Sequence[Removal]) -> list[Line]:
    """Pieces in the order of `removals`. Single lines go first: they are known by identity, and a query's
    removal may put a shortened copy in the place of a line."""
    for remove in reversed(pieces):
        life = [kept for line in life if (kept := remove(line)) is not None]
    return _without_lost_splits(life)


def _query_removal(id: str) -> Removal:
    def remove(line: Line) -> Line | None:
        force = line.get("force", {})
        if id in (line.get("create"), line.get("delete"), force.get("query")):
            return None
        if id in force.get("groups", {}):
            groups = {q: g for q, g in force["groups"].items() if q != id}
            return {**line, "force": {"groups": groups}} if groups else None
        return line

    return remove


def _line_removal(gone: Line) -> Removal:
    """By identity: two equal tuples are different lines."""
    return lambda line: None if line is gone else line


def _needed(line: Line, life: Sequence[Line]) -> bool:
    """Is this a stream that another line still names?"""
    if "stream" not in line or line.get("expect_error"):
        return False
    name = line["stream"]
    return any(
        name in (other.get("event"), other.get("events"), other.get("watermark"), other.get("stream"))
        or re.search(rf"\b{re.escape(name)}\b", other.get("sql", ""))
        for other in life
        if other is not line
    )


def _without_lost_splits(life: Iterable[Line]) -> list[Line]:
    kept, partitions = [], 1
    for line in life:
        scale = line.get("scale", {})
        partitions = scale.get("partitions", partitions)
        if scale.get("split", {"partition": 0})["partition"] < partitions:
            kept.append(line)
    return kept
