"""A replay scenario cut into epochs.

Lines come in any order, but they act in a fixed one: within an epoch first its control lines, in their
order, then its tuples, then its explicit watermarks when it ends. An epoch is everything up to an `epoch`
line; what follows the last one is one more epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.oracle.decode import rows_of_file

Line = Mapping[str, Any]
CONTROLS = ("stream", "create", "delete", "optimize", "force", "unpin", "scale", "restart")
LEADING_KEYS = (*CONTROLS, "event", "events", "epoch", "watermark")


@dataclass(slots=True)
class Epoch:
    """`controls` pairs a line with its number, counted from 1; `tuples` a stream with a raw row."""

    controls: list[tuple[int, Line]] = field(default_factory=list)
    tuples: list[tuple[str, Any]] = field(default_factory=list)
    watermarks: list[tuple[str, int]] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        return not (self.controls or self.tuples or self.watermarks)


def epochs_of(scenario: Sequence[Line], base_dir: Path | None = None) -> Iterator[Epoch]:
    epoch = Epoch()
    for number, line in enumerate(scenario, 1):
        match leading_key(line):
            case "epoch":
                yield epoch
                epoch = Epoch()
            case "event":
                epoch.tuples.append((line["event"], line["row"]))
            case "events":
                rows: Iterable[Any] = rows_of_file((base_dir or Path()) / line["file"])
                epoch.tuples.extend((line["events"], row) for row in rows)
            case "watermark":
                epoch.watermarks.append((line["watermark"], line["ts"]))
            case _:
                epoch.controls.append((number, line))
    if not epoch.empty:
        yield epoch


def leading_key(line: Line) -> str:
    keys = [k for k in LEADING_KEYS if k in line]
    if len(keys) != 1:
        raise ValueError(f"a scenario line has exactly one of {', '.join(LEADING_KEYS)}: {dict(line)!r}")
    return keys[0]
