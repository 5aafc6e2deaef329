"""The steps of a scenario, as values.

What the engine already has a word for (DeleteQuery, ScaleTo, ...) is used as is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime.api import DeleteQuery, ForceGroups, ForceOrder, Optimize, ScaleTo, SplitPartition, Unpin


@dataclass(frozen=True, slots=True)
class Declare:
    """Column types stay text here: an unknown type is a rejection, not a malformed line."""

    name: str
    columns: tuple[tuple[str, str], ...]
    time: str
    watermark_delay_ms: int = 0
    allowed_lateness_ms: int = 0
    max_ahead_ms: int | None = None
    max_jump_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CreateSql:
    id: str
    sql: str


@dataclass(frozen=True, slots=True)
class Feed:
    stream: str
    row: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FeedFile:
    stream: str
    path: Path


@dataclass(frozen=True, slots=True)
class Punctuate:
    """An explicit watermark, effective when the current epoch ends."""

    stream: str
    ts: int


@dataclass(frozen=True, slots=True)
class EndEpoch:
    pass


@dataclass(frozen=True, slots=True)
class Restart:
    graceful: bool


Planned = DeleteQuery | ForceOrder | ForceGroups | ScaleTo | SplitPartition | Unpin | Optimize
Action = Declare | CreateSql | Feed | FeedFile | Punctuate | EndEpoch | Restart | Planned


@dataclass(frozen=True, slots=True)
class Step:
    line: int
    action: Action
    expect_error: bool = False
