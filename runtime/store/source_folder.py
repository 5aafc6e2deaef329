"""What one stream's source keeps, as a folder of the store (runtime.connectors.base.Mirror).

    <term>/sources/<stream>/<name>      the owner's; of a name that is in several terms, the newest counts

The driver reads its own local files, so what is here is a second copy; the local ones are made from it on opening.
Tasks on other machines read the objects (`KeptFile`). Objects may be put on several threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from optimizer.errors import InternalError
from runtime.crashpoints import reach
from runtime.files import write_atomically
from runtime.store.claim import Claim
from runtime.store.objects import objects_at

FOLDER = "sources"


class SourceFolders:
    """Of all streams: which object holds which file ("stream/name"). `discard`: deletes objects, later. `for_tasks`:
    tasks see the store and not the local files."""

    def __init__(
        self, claim: Claim, discard: Callable[[str], None], keep: Callable[[str], None], for_tasks: bool
    ) -> None:
        self.claim, self.discard, self.keep, self.for_tasks = claim, discard, keep, for_tasks
        self.objects: dict[str, str] = _newest(claim)

    def of(self, stream: str) -> SourceFolder:
        return SourceFolder(self, stream)

    def only(self, streams: Iterable[str]) -> None:
        """Forget all others."""
        wanted = set(streams)
        self.objects = {file: object for file, object in self.objects.items() if file.partition("/")[0] in wanted}


class SourceFolder:
    def __init__(self, all: SourceFolders, name: str) -> None:
        self._all, self._name = all, name
        self._store = all.claim.store

    def names(self) -> list[str]:
        start = f"{self._name}/"
        everything = list(self._all.objects)  # at once, because another thread may add to it
        return sorted(n.removeprefix(start) for n in everything if n.startswith(start))

    def put(self, name: str, data: bytes) -> None:
        file = f"{self._name}/{name}"
        object = f"{self._all.claim.term}/{FOLDER}/{file}"
        self._all.keep(object)
        self._store.put(object, data)
        reach("store.source")
        self._all.claim.check()
        self._all.objects[file] = object

    def put_file(self, name: str, path: Path) -> None:
        self.put(name, path.read_bytes())

    def get(self, name: str) -> bytes:
        data = self._store.get(self._all.objects[f"{self._name}/{name}"])
        if data is None:
            raise FileNotFoundError(name)
        return data

    def fetch(self, name: str, path: Path) -> None:
        write_atomically(path, self.get(name))

    @property
    def for_tasks(self) -> bool:
        return self._all.for_tasks

    def kept(self, name: str) -> KeptFile:
        where = self._store.path("")  # a relative path means something else on another machine
        return KeptFile(self._store.uri if where is None else str(where), self._all.objects[f"{self._name}/{name}"])

    def discard(self, names: Iterable[str]) -> None:
        for name in names:
            object = self._all.objects.pop(f"{self._name}/{name}", None)
            if object is not None:
                self._all.discard(object)


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A file of a source as tasks read it. The URI may hold credentials."""

    uri: str = field(repr=False)
    object: str

    def get(self) -> bytes:
        data = objects_at(self.uri).get(self.object)
        if data is None:
            raise InternalError(f"{self.object}, which a source keeps in the store, is gone, but a task still needs it")
        return data


def _newest(claim: Claim) -> dict[str, str]:
    """Of every file the newest copy: a term's objects are newer than those of all terms before it."""
    if claim.truth is None:
        return {}  # nothing was ever acknowledged
    return newest_copies(claim.objects, claim.truth)


def newest_copies(objects: Mapping[str, int], truth: str) -> dict[str, str]:
    newest: dict[str, str] = {}
    for name in sorted(objects, key=lambda n: (n[:10], n.startswith(truth), n)):
        term, _, rest = name.partition("/")
        folder, _, file = rest.partition("/")
        hidden = file.rpartition("/")[2].startswith(".")  # left by a put that was cut short
        if folder == FOLDER and file and not hidden and term[:10] <= truth[:10]:
            newest[file] = name
    return newest
