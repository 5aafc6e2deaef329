"""References of open buckets as they travel with a stage: in pieces that executors keep.

A stage needs the references of everything that is open, because items of joined buckets point anywhere. Few of them are
new: a piece (runtime.execution.shipped) has those of one epoch, so a stage brings the pieces of epochs whose open
buckets have changed, and of the others a number. Buckets of an epoch mostly come together and go together.

On one machine references travel as they are, in a dictionary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from runtime.execution.shipped import ShippedOnce


class Reference(Protocol):
    @property
    def id(self) -> int: ...

    @property
    def epoch(self) -> int: ...


R = TypeVar("R", bound=Reference)
Carried = Callable[[Mapping[int, R]], Mapping[int, R]]
"""From references by bucket id to the same ones as they travel with a stage."""


class _Piece(NamedTuple, Generic[R]):
    refs: tuple[R, ...]
    shipped: ShippedOnce[tuple[R, ...]]


class Pieces(Generic[R]):
    """Mutable; owned by the engine's thread: the pieces of the references that it shipped last."""

    def __init__(self) -> None:
        self._by_epoch: dict[int, _Piece[R]] = {}

    def of(self, refs: Mapping[int, R]) -> References[R]:
        return References(refs, self)

    def cut(self, refs: Mapping[int, R]) -> tuple[ShippedOnce[tuple[R, ...]], ...]:
        """References are values and never change, so the same objects are the same piece."""
        by_epoch: dict[int, list[R]] = {}
        for ref in refs.values():
            by_epoch.setdefault(ref.epoch, []).append(ref)
        self._by_epoch = {epoch: self._piece(epoch, tuple(mine)) for epoch, mine in by_epoch.items()}
        return tuple(piece.shipped for piece in self._by_epoch.values())

    def _piece(self, epoch: int, refs: tuple[R, ...]) -> _Piece[R]:
        known = self._by_epoch.get(epoch)
        if known is None or len(known.refs) != len(refs):
            return _Piece(refs, ShippedOnce(refs))
        same = all(a is b for a, b in zip(known.refs, refs, strict=True))
        return known if same else _Piece(refs, ShippedOnce(refs))


class References(dict[int, R]):
    """A copy of a mapping from bucket ids; it arrives as a plain dictionary."""

    def __init__(self, refs: Mapping[int, R], pieces: Pieces[R]) -> None:
        super().__init__(refs)
        self._pieces = pieces

    def __reduce__(self) -> tuple[Any, ...]:
        return _put_together, (self._pieces.cut(self),)


def _put_together(pieces: tuple[ShippedOnce[tuple[R, ...]], ...]) -> dict[int, R]:
    return {ref.id: ref for piece in pieces for ref in piece.value}
