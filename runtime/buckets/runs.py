"""What one run of a stage writes has names of its own, where attempts of different runs may meet.

A stage may be run again: its epoch met an outage, or damage, or was planned anew without a query. Tasks of the earlier
run may still be at work on some machine and write late. In a state directory they have ended before the next run
begins; in a store nobody can know that. So there the names given out for a stage get the owner's term (runtime.store.
claim) and the number of the run within it:

    b7.bucket  ──►  0000000003-5e1d0c2a/b7.12.bucket

Attempts of the same task in the same run have the same names and write the same bytes: whichever comes last is right.
A late writer of another run hits nothing that counts; what it writes is debris. References carry the whole name, so
the commit record says which run's file counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt

from runtime.buckets.file import BucketFile, Written


@dataclass(frozen=True, slots=True)
class Run:
    term: str
    number: int

    def named(self, name: str) -> str:
        stem, dot, kind = name.rpartition(".")
        return f"{self.term}/{stem}.{self.number}{dot}{kind}"


def run_of(file: str) -> Run | None:
    """Which run wrote a file; None: its name does not say."""
    term, slash, name = file.partition("/")
    number = name.rpartition(".")[0].rpartition(".")[2]
    return Run(term, int(number)) if slash and number.isdecimal() else None


class BucketFiles(Protocol):
    """All bucket files there are, as the driver sees them. Picklable; processes share open files by it."""

    @property
    def platform(self) -> str: ...

    def open(self, name: str) -> BucketFile: ...

    def write(self, name: str, meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Written: ...

    def verify(self, name: str) -> None:
        """Read the whole file: BUCKET_MISSING or BUCKET_DAMAGED if it is not what was written under this name."""
        ...

    def forget(self, name: str) -> None:
        """Trust no copy of this file that is open or cached; the file itself stays."""
        ...

    def let_go(self, gone: Sequence[Gone]) -> None:
        """Keep no copies of these files on this machine."""
        ...

    def close(self) -> None:
        """The files stay; open ones may be used for as long as they are referenced."""
        ...


class Gone(Protocol):
    """Names of files that were dropped together. Numbers ascend."""

    @property
    def number(self) -> int: ...

    @property
    def value(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class RunBuckets:
    """What the tasks of one run open and write buckets with. `gone`: what was dropped lately."""

    files: BucketFiles
    run: Run
    gone: tuple[Gone, ...] = ()

    def open(self, name: str) -> BucketFile:
        self.files.let_go(self.gone)
        return self.files.open(name)

    def write(self, name: str, meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Written:
        return self.files.write(self.run.named(name), meta, arrays)
