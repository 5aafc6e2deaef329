"""LIKE, in time linear in the text whatever the pattern.

A pattern is cut at its `%` into pieces of fixed length. The first piece must stand at the beginning of the text, the
last one at its end, and each piece between them is looked for from where the one before it ended. Taking the first
place where a piece fits is never wrong: it leaves the most text for the pieces after it. So nothing is ever tried
again, which is what makes a regular expression with several `.*` take exponentially long.

Cost: at most (length of the text) x (length of the longest piece) comparisons; without `_` in it, a piece is found in
one walk over the text.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class _Piece(NamedTuple):
    """The text between two `%`; as an expression it has no repetitions, so there is one way to match it."""

    expression: re.Pattern[str]
    length: int


class LikePattern:
    """`%` any run of characters, `_` any one character (line breaks too); after `escape` a character means itself."""

    def __init__(self, pattern: str, escape: str | None) -> None:
        pieces = [_Piece(re.compile("".join(p), re.DOTALL), len(p)) for p in _cut(pattern, escape)]
        self._first, self._last, self._between = pieces[0], pieces[-1], pieces[1:-1]
        self._whole = len(pieces) == 1

    def matches(self, text: str) -> bool:
        if self._whole:
            return self._first.expression.fullmatch(text) is not None
        if self._first.expression.match(text) is None:
            return False
        at, end = self._first.length, len(text) - self._last.length
        for piece in self._between:
            found = piece.expression.search(text, at)
            if found is None:
                return False
            at = found.end()
        return at <= end and self._last.expression.match(text, end) is not None


def _cut(pattern: str, escape: str | None) -> list[list[str]]:
    """The pieces, as one expression per character."""
    pieces: list[list[str]] = [[]]
    characters = iter(pattern)
    for c in characters:
        escaped = next(characters, None) if c == escape else None
        if escaped is not None:
            pieces[-1].append(re.escape(escaped))
        elif c == "%":
            pieces.append([])
        else:
            pieces[-1].append("." if c == "_" else re.escape(c))
    return pieces
