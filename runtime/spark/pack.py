"""One archive with everything an executor's Python needs: the platform's packages and what they import.

Tools that pack a virtual environment refuse one in which a package is installed in place (as here, during
development), and bring along all that a driver needs but a task never imports. So this looks at what the modules that
run on executors import (runtime.spark.imports), adds what those packages require, and packs just that: pure copies of
installed files under one folder, to be put on PYTHONPATH. Spark itself is not in it; executors bring their own. The
machines need the same Python minor version and the same kind of processor and C library, because some of these packages
are compiled.

Plug-ins are packed as the files that they are here, with what they import; and because they import `ajoin.plugins`, the
whole of `ajoin` with them, of which they use no more than that.
"""

from __future__ import annotations

import importlib.metadata as metadata
import importlib.util
import re
import sys
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import optimizer
import runtime
from optimizer.errors import FailedPrecondition
from runtime.files import write_atomically
from runtime.spark.imports import imported_packages

FOLDER = "ajoin-env"
OURS = {package.__name__: Path(str(package.__file__)).parent for package in (optimizer, runtime)}
ON_EXECUTORS = ("runtime.spark.daemon", "runtime.spark.executor")
"""Where an executor's Python enters: the process that forks workers, and what a Spark task calls."""
FACADE = "ajoin"
"""The package through which plug-ins see us."""
BROUGHT_BY_EXECUTORS = {"pyspark", "py4j"}


@dataclass(frozen=True, slots=True)
class Environment:
    """`files`: where each file is here, and where it belongs below the archive's folder."""

    packages: tuple[str, ...]
    files: tuple[tuple[Path, Path], ...]


@dataclass(frozen=True, slots=True)
class PackedEnvironment:
    """An archive that was written: its packages, its size, and the Python version it is for."""

    packages: tuple[str, ...]
    bytes: int
    python: str


def pack_environment(out: Path, plugins: Sequence[str] = ()) -> PackedEnvironment:
    environment = task_environment(plugins)

    def write(file: BinaryIO) -> None:
        # Level 1: the archive is read as often as it is written, and the network is rarely the slowest part.
        with tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as archive:
            for path, name in environment.files:
                archive.add(path, str(name))

    size = write_atomically(out, write)
    return PackedEnvironment(environment.packages, size, f"{sys.version_info.major}.{sys.version_info.minor}")


def task_environment(plugins: Sequence[str] = ()) -> Environment:
    """What the archive holds."""
    theirs = {package: _place(package) for package in {module.partition(".")[0] for module in plugins} - {FACADE}}
    looked_at = [*ON_EXECUTORS, *(module for module in plugins if module.partition(".")[0] != FACADE)]
    imported = imported_packages(looked_at, OURS | theirs) - BROUGHT_BY_EXECUTORS - {FACADE}
    others = sorted(_with_requirements(_distributions(imported)))
    whole = OURS | theirs | ({FACADE: _place(FACADE)} if plugins else {})
    files = [file for root in whole.values() for file in _source_files(root)]
    files += [file for name in others for file in _installed_files(name)]
    return Environment((*whole, *others), tuple(files))


def _place(package: str) -> Path:
    """The folder of a package; of a single module, its file without the ending."""
    spec = importlib.util.find_spec(package)
    if spec is None or not (spec.origin or spec.submodule_search_locations):
        raise FailedPrecondition(
            f"there is no module {package} to pack",
            reason="CANNOT_PACK",
            hint="name plug-ins that Python can import here",
        )
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    return Path(str(spec.origin)).with_suffix("")


def _distributions(packages: Iterable[str]) -> Iterator[str]:
    """A package is imported under one name and can be installed under another: kafka is in kafka-python."""
    known = metadata.packages_distributions()
    for package in packages:
        if package not in known:
            raise FailedPrecondition(
                f"tasks import {package}, which is not installed",
                reason="CANNOT_PACK",
                hint="install the platform with all its requirements where `ajoin pack` runs",
            )
        yield from (name.lower() for name in known[package])


def _with_requirements(names: Iterable[str]) -> set[str]:
    """These distributions and all that they require without extras."""
    needed: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in needed:
            continue
        needed.add(name)
        for requirement in metadata.requires(name) or ():
            if "extra ==" not in requirement and "extra==" not in requirement:
                required = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
                if _installed(required):
                    waiting.append(metadata.metadata(required)["Name"].lower())
    return needed


def _installed(name: str) -> bool:
    """A requirement for another platform or an older Python is not there, and not needed."""
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _source_files(root: Path) -> Iterator[tuple[Path, Path]]:
    if not root.is_dir():
        yield root.with_suffix(".py"), Path(f"{root.name}.py")
    for path in sorted(root.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path, path.relative_to(root.parent)


def _installed_files(name: str) -> Iterator[tuple[Path, Path]]:
    """Of an installed distribution; scripts outside of site-packages stay behind."""
    distribution = metadata.distribution(name)
    if distribution.files is None:
        raise FailedPrecondition(f"package {name} does not say which files it has", reason="CANNOT_PACK")
    for entry in distribution.files:
        path = Path(str(distribution.locate_file(entry)))
        if ".." not in entry.parts and "__pycache__" not in entry.parts and path.is_file():
            yield path, Path(entry)
