"""A folder as a store that cannot be mapped: `opaque:///some/folder`. A plug-in, so that Spark's workers know it."""

from __future__ import annotations

from runtime.store.arrow import ArrowObjects
from runtime.store.objects import KINDS

SCHEME = "opaque"


class Opaque(ArrowObjects):
    def __init__(self, uri: str) -> None:
        super().__init__(uri.replace(f"{SCHEME}://", "file://", 1))
        self.uri = uri

    def path(self, name: str) -> None:
        return None


KINDS[SCHEME] = Opaque
