"""Which packages some modules of ours need, read from their import statements.

Imports inside functions and in branches count as well, so what is found may be more than a process really loads, but
never less: whatever an import statement names is there. Nothing is imported to find out.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path


def imported_packages(modules: Iterable[str], ours: Mapping[str, Path]) -> frozenset[str]:
    """Top-level names of everything outside the standard library that these modules import, directly or through others
    of our own packages. `ours`: the folders of those, by name."""
    waiting, seen, others = list(modules), set[str](), set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        package, _, inner = name.partition(".")
        if package not in ours:
            others.add(package)
            continue
        if inner:
            waiting.append(name.rpartition(".")[0])  # a package is imported before what is in it
        place = ours[package].joinpath(*inner.split(".")) if inner else ours[package]
        for file in (place.with_suffix(".py"), place / "__init__.py"):
            if file.is_file():
                waiting += _imports(ast.parse(file.read_bytes()))
    return frozenset(others - sys.stdlib_module_names)


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)  # what is no module has no file
