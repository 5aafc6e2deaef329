"""An offset outside its source: a value that can be compared, hashed and written down, but not interpreted.

Only the source that made an offset understands it (a number, a list, an object: any JSON value). The rest of the
platform asks one question, whether two offsets are the same. So a position holds the value's canonical JSON text,
which makes equal offsets equal and hashable, and gives the value back to its source on demand. In the log it stands
as the value itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from runtime.connectors.base import Offset


@dataclass(frozen=True, slots=True)
class Position:
    """Build with `Position.of`."""

    text: str

    @staticmethod
    def of(offset: Offset) -> Position:
        return Position(json.dumps(offset, sort_keys=True, separators=(",", ":")))

    @property
    def offset(self) -> Offset:
        return json.loads(self.text)

    def __str__(self) -> str:
        return self.text
