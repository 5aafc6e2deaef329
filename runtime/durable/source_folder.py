"""What one stream's source keeps, as a folder of the durable tier (runtime.connectors.base.Mirror)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from runtime.crashpoints import reach
from runtime.durable.cached_folder import CachedFolder, StoredObject
from runtime.durable.claim import Claim


class SourceFolder:
    """`discarded`: objects of the tier that wait to be deleted, shared with the object that deletes them."""

    def __init__(self, claim: Claim, sources: CachedFolder, name: str, discarded: dict[str, None]) -> None:
        self._claim, self._tier, self._sources, self._name = claim, claim.tier, sources, name
        self._discarded = discarded

    def names(self) -> list[str]:
        start = f"{self._name}/"
        return sorted(n.removeprefix(start) for n in self._sources.objects if n.startswith(start))

    def put(self, name: str, data: bytes) -> None:
        self._put(name, lambda object: self._tier.put(object, data))

    def put_file(self, name: str, path: Path) -> None:
        self._put(name, lambda object: self._tier.put_file(object, path))

    def get(self, name: str) -> bytes:
        data = self._tier.get(self._object(name))
        if data is None:
            raise FileNotFoundError(name)
        return data

    def fetch(self, name: str, path: Path) -> None:
        if not self._tier.fetch(self._object(name), path):
            raise FileNotFoundError(name)

    def discard(self, names: Iterable[str]) -> None:
        gone = self._sources.release([f"{self._name}/{name}" for name in names])
        self._discarded.update(dict.fromkeys(gone))

    def _object(self, name: str) -> str:
        return self._sources.objects[f"{self._name}/{name}"].name

    def _put(self, name: str, put: Callable[[str], int]) -> None:
        file = f"{self._name}/{name}"
        object = f"{self._claim.term}/sources/{file}"
        self._discarded.pop(object, None)
        size = put(object)
        reach("tier.source")
        self._claim.check()
        self._sources.hold({file: StoredObject(object, size)})
