"""Reading a connector's options: text in, checked values out, one kind of error.

Everything a user can get wrong here becomes InvalidRequest with reason BAD_CONNECTOR_OPTION and a message
that names the option, the value and what would be right. A path option can be confined to `allowed_roots`: it
is resolved first (links and '..' included), so what is checked is the place that will really be used.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeVar

from optimizer.errors import InvalidRequest
from runtime.store.objects import shown

T = TypeVar("T")


Root = Path | str
"""A folder that requests may name things in: a path, or a URI of an object store."""

NOWHERE: tuple[Root, ...] = (Path("/dev/null/nowhere"),)
"""Roots that contain nothing: every path is refused. (No roots at all means that every path is allowed.)"""


@dataclass(frozen=True, slots=True)
class Option:
    """One known option. A name that ends in '.' is a family: 'column.' stands for column.<name>."""

    name: str
    help: str
    required: bool = False

    def covers(self, name: str) -> bool:
        if self.name.endswith("."):
            return name.startswith(self.name) and len(name) > len(self.name)
        return name == self.name


def bad_option(message: str, hint: str = "") -> InvalidRequest:
    return InvalidRequest(message, reason="BAD_CONNECTOR_OPTION", hint=hint)


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint: the names that look like `name`, else the first few there are."""
    names = {n.lower(): n for n in sorted(known)}
    close = difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.6)
    if close:
        return "did you mean " + " or ".join(names[c] for c in close) + "?"
    some = list(names.values())[:20]
    return "known: " + ", ".join(some) + (", ..." if len(names) > len(some) else "") if some else "it takes none"


class Settings:
    """Typed access to a connector's options; `kind` only serves the messages."""

    def __init__(self, kind: str, options: Mapping[str, str]) -> None:
        self.kind = kind
        self._options = options

    def refuse(self, name: str, expected: str) -> NoReturn:
        raise bad_option(
            f"option {name} of connector {self.kind} is {self._options.get(name, '')!r}",
            f"expected {expected}",
        )

    def given(self, name: str) -> bool:
        return name in self._options

    def text(self, name: str, default: str) -> str:
        return self._options.get(name, default).strip()

    def family(self, prefix: str) -> dict[str, str]:
        return {k[len(prefix) :]: v for k, v in self._options.items() if k.startswith(prefix)}

    def _parsed(self, name: str, default: T, parse: Callable[[str], T], ok: Callable[[T], bool], expected: str) -> T:
        if name not in self._options:
            return default
        try:
            value = parse(self.text(name, ""))
        except ValueError:
            self.refuse(name, expected)
        return value if ok(value) else self.refuse(name, expected)

    def integer(self, name: str, default: int, low: int, high: int) -> int:
        return self._parsed(name, default, int, lambda v: low <= v <= high, f"a whole number from {low} to {high}")

    def number(self, name: str, default: float, low: float, high: float) -> float:
        return self._parsed(
            name,
            default,
            float,
            lambda v: math.isfinite(v) and low <= v <= high,
            f"a number from {low:g} to {high:g}",
        )

    def choice(self, name: str, default: str, allowed: Sequence[str]) -> str:
        value = self.text(name, default).lower()
        return value if value in allowed else self.refuse(name, "one of " + ", ".join(allowed))

    def path(self, name: str, allowed_roots: Sequence[Root] = ()) -> Path:
        text = self.text(name, "")
        if not text or "\0" in text:
            self.refuse(name, "a path on the machine that runs the platform")
        self._check_some(name, allowed_roots)
        path = Path(text).expanduser().resolve()
        roots = [root for root in allowed_roots if isinstance(root, Path)]
        if allowed_roots and not any(path.is_relative_to(root.resolve()) for root in roots):
            self.refuse(name, "a path inside " + " or ".join(str(r) for r in roots))
        return path

    def uri(self, name: str, allowed_roots: Sequence[Root] = ()) -> str:
        """Of a folder of an object store. Whoever may name any URI reaches any server, with the platform's credentials;
        so an allowed root must be its beginning, word for word, with the same options (`?...`)."""
        text = self.text(name, "")
        self._check_some(name, allowed_roots)
        place, _, options = text.partition("?")
        steps = place.partition("://")[2].split("/")
        if text.startswith("file:") or not any(steps) or not {".", ".."}.isdisjoint(steps) or not place.isprintable():
            raise bad_option(
                f"option {name} of connector {self.kind} is {shown(text)!r}", "expected a path, or s3://bucket/folder"
            )
        roots = [root.partition("?") for root in allowed_roots if isinstance(root, str)]
        if allowed_roots and not any(
            options == asked and f"{place.rstrip('/')}/".startswith(f"{root.rstrip('/')}/") for root, _, asked in roots
        ):
            raise bad_option(
                f"option {name} of connector {self.kind} is {shown(text)!r}, which this platform does not allow",
                "an operator can allow the beginning of a URI with the setting allowed_roots",
            )
        return text

    def _check_some(self, name: str, allowed_roots: Sequence[Root]) -> None:
        if tuple(allowed_roots) == NOWHERE:
            raise bad_option(
                f"option {name} of connector {self.kind} names a path, and this platform allows none",
                "an operator can allow folders with the setting allowed_roots",
            )


def check_names(kind: str, given: Sequence[tuple[str, str]], known: Sequence[Option]) -> None:
    """Every given name is known and given once; every required one is there."""
    seen: set[str] = set()
    for name, _ in given:
        if not any(o.covers(name) for o in known):
            raise bad_option(f"connector {kind} has no option {name!r}", nearest(name, (o.name for o in known)))
        if name in seen:
            raise bad_option(f"option {name} of connector {kind} is given twice", "give it once")
        seen.add(name)
    for option in known:
        if option.required and option.name not in seen:
            raise bad_option(f"connector {kind} needs the option {option.name}", option.help)
