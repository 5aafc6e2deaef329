"""The scenario file: one JSON object a line, turned into steps or refused with one message naming the line.

Two kinds of wrong are kept apart:

- *Malformed*: not JSON, no or two leading keys, an unknown key, a value of the wrong kind. Always refused,
  and before the engine starts, so that a missing comma is reported without waiting for Spark.
- *Rejected*: well formed, but the platform says no (bad SQL, unknown stream, missing data file). A line with
  `"expect_error": true` may be rejected, so these are decided step by step while the scenario runs. The two
  that the file alone can tell, an undeclared stream and a missing data file, are reported early when no
  error is expected.

The row of an `event` line is data, not scenario: whatever it holds goes to the engine, which counts what it
cannot decode as dead letters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ajoin.replay.grammar import Malformed, parse_line
from ajoin.replay.steps import Declare, Feed, FeedFile, Punctuate, Step
from optimizer.errors import InvalidRequest


class ScenarioError(InvalidRequest):
    """The scenario cannot be run. `line` counts from 1; 0 when the file as a whole is the problem."""

    default_reason = "SCENARIO_INVALID"

    def __init__(self, message: str, *, line: int = 0, reason: str | None = None, hint: str = "") -> None:
        super().__init__(f"line {line}: {message}" if line else message, reason=reason, hint=hint)
        self.line = line


@dataclass(frozen=True, slots=True)
class Scenario:
    path: Path
    steps: tuple[Step, ...]


def read(path: Path) -> Scenario:
    """Parse and check the whole file, or raise ScenarioError for its first wrong line."""
    try:
        with path.open("rb") as file:
            scenario = Scenario(path, tuple(parse(file, path.parent)))
    except OSError as failure:
        raise ScenarioError(f"cannot read the scenario {path}: {failure.strerror}") from None
    check(scenario)
    return scenario


def parse(lines: Iterable[bytes], folder: Path) -> Iterator[Step]:
    """Steps of the non-empty lines. Data files are relative to `folder`."""
    for number, raw in enumerate(lines, 1):
        try:
            text = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip()
            if text:
                yield parse_line(number, text, folder)
        except UnicodeDecodeError:
            raise ScenarioError("not UTF-8 text", line=number) from None
        except Malformed as wrong:
            raise ScenarioError(wrong.message, line=number, hint=wrong.hint) from None


def check(scenario: Scenario) -> None:
    """What the file alone can tell: streams are declared before their data, data files exist."""
    declared: set[str] = set()
    for step in scenario.steps:
        match step.action:
            case Declare(name=name):
                declared.add(name)
            case Feed(stream=name) | FeedFile(stream=name) | Punctuate(stream=name):
                if name not in declared and not step.expect_error:
                    raise ScenarioError(
                        f"stream {name!r} is not declared",
                        line=step.line,
                        hint='declare it on an earlier line: {"stream": ..., "schema": ..., "time": ...}',
                    )
        if isinstance(step.action, FeedFile) and not step.expect_error and not step.action.path.is_file():
            raise ScenarioError(
                f"there is no file {step.action.path}",
                line=step.line,
                hint="paths are relative to the scenario file",
            )
