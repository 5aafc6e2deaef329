"""One archive with everything an executor's Python needs: the platform's packages and what they import.

Tools that pack a virtual environment refuse one in which a package is installed in place (as here, during
development), and bring along all that a driver needs but a task never imports. So this walks the requirements of what
tasks import and packs just that: pure copies of installed files under one folder, to be put on PYTHONPATH. Spark
itself is not in it; executors bring their own. The machines need the same Python minor version and the same kind of
processor and C library, because some of these packages are compiled.
"""

from __future__ import annotations

import importlib.metadata as metadata
import re
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import optimizer
import runtime
from optimizer.errors import FailedPrecondition

FOLDER = "ajoin-env"
OURS = (optimizer, runtime)
IMPORTED = ("numpy", "pyarrow", "numba", "kafka-python")
"""What tasks import beside Spark; what those require in turn is found by itself."""


@dataclass(frozen=True, slots=True)
class Packed:
    packages: tuple[str, ...]
    bytes: int
    python: str


def pack_environment(out: Path) -> Packed:
    found = sorted(_closure(IMPORTED))
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(f".{out.name}.tmp")
    # Level 1: the archive is read as often as it is written, and the network is rarely the slowest part.
    with tarfile.open(temporary, "w:gz", compresslevel=1) as archive:
        for package in OURS:
            root = Path(str(package.__file__)).parent
            for path in sorted(root.rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    archive.add(path, str(Path(root.name) / path.relative_to(root)))
        for name in found:
            for path, at in _files(name):
                archive.add(path, at)
    temporary.replace(out)
    ours = tuple(package.__name__ for package in OURS)
    return Packed((*ours, *found), out.stat().st_size, f"{sys.version_info.major}.{sys.version_info.minor}")


def _closure(names: tuple[str, ...]) -> set[str]:
    """These distributions and all that they require without extras."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        for required in metadata.requires(name) or ():
            if "extra ==" not in required and "extra==" not in required:
                needed = re.split(r"[^A-Za-z0-9._-]", required, maxsplit=1)[0]
                if _installed(needed):
                    waiting.append(metadata.metadata(needed)["Name"].lower())
    return found


def _installed(name: str) -> bool:
    """A requirement for another platform or an older Python is not there, and not needed."""
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _files(name: str) -> Iterator[tuple[Path, str]]:
    """(file, path in the archive) of an installed distribution; scripts outside of site-packages stay behind."""
    distribution = metadata.distribution(name)
    if distribution.files is None:
        raise FailedPrecondition(f"package {name} does not say which files it has", reason="CANNOT_PACK")
    for entry in distribution.files:
        path = Path(str(distribution.locate_file(entry)))
        if ".." not in entry.parts and "__pycache__" not in entry.parts and path.is_file():
            yield path, str(entry)
