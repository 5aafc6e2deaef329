"""What a hostile kind is: a name, what it does, how it must end, and the attack itself.

An attack is a generator. It runs between two steps of a life; each `yield` lets the life go on by one step, with the
tuples that the attack has handed over. What it returns is how it ended, as its victim's clients see it, and that must
be what the kind says: the same word, the same gRPC status, the same reason. An attack that finds anything else out of
order (a row too many, a connection that stays open) raises AssertionError.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from ajoin.wire import status
from optimizer.errors import AJoinError

if TYPE_CHECKING:
    from tests.poison.scene import Scene


class How(StrEnum):
    REFUSED = "refused"
    SUSPENDED = "suspended"
    LIMITED = "limited"
    DEAD_LETTER = "dead letter"
    DISCONNECTED = "disconnected"
    ALONE = "fails alone"
    SERVED = "served exactly"


@dataclass(frozen=True, slots=True)
class Ending:
    """`code`: the gRPC status, where there is one; `reason`: the stable code, or how the message begins."""

    how: How
    code: str = ""
    reason: str = ""

    def __str__(self) -> str:
        why = " ".join(word for word in (self.code, self.reason) if word)
        return f"{self.how}: {why}" if why else str(self.how)


SERVED = Ending(How.SERVED)
"""Nothing is wrong with it but its size or its looks: it gets exactly its rows, and nobody notices."""

Attack = Callable[["Scene"], Generator[None, None, Ending]]


@dataclass(frozen=True, slots=True)
class Kind:
    """`slow`: the platform has to search for it. `stage_timeout`: seconds after which the watchdog ends a stage in a
    life with this kind; 0: as usual. `last`: between two steps it goes on after all others, because it makes results
    expire."""

    name: str
    does: str
    ends: Ending
    attack: Attack
    slow: bool = False
    stage_timeout: float = 0.0
    last: bool = False


def refused(code: str, reason: str) -> Ending:
    return Ending(How.REFUSED, code, reason)


def invalid(reason: str) -> Ending:
    return refused("INVALID_ARGUMENT", reason)


def ending_of(how: How, error: AJoinError) -> Ending:
    return Ending(how, status.code_of(error).name, error.reason)


def one_call(name: str, does: str, ends: Ending, call: Callable[[Scene], object]) -> Kind:
    """A kind that makes one call, which must be refused."""

    def attack(scene: Scene) -> Generator[None, None, Ending]:
        yield from ()
        return scene.refusal(lambda: call(scene))

    return Kind(name, does, ends, attack)
