"""Partial buckets seen from outside: what each holds, as its own header says it.

`keeps` answers what people ask of aggregation: are tuples kept? `partials` are a few numbers per group, piece of time
and query set; `values` are sorted runs or sketches of a column's values (MEDIAN, COUNT(DISTINCT), ...), whose size
follows the data; `tuples` is one entry per tuple (count windows).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from optimizer.errors import InternalError
from optimizer.model.aggregates import LISTS
from runtime.buckets.refs import PartialRef
from runtime.control.state import State
from runtime.execution.folding import Tuples


@dataclass(frozen=True, slots=True)
class PartialReport:
    """`of`: the stream it was folded from, or `join`. `cut`: how time is cut (Slices, Pieces, Times, Tuples).
    `cut`, `components` and `keeps` are empty if the file cannot be read."""

    file: str
    fold: str
    of: str
    epoch: int
    cut: str
    components: tuple[str, ...]
    keeps: str
    entries: int
    bytes: int
    carried: bool


def partial_reports(meta_of: Callable[[str], Mapping[str, Any]], s: State) -> tuple[PartialReport, ...]:
    """`meta_of` reads the header of a file; InternalError if it cannot be read."""
    refs = sorted(s.partials.values(), key=lambda r: (r.fold, r.epoch, r.file))
    return tuple(_report(meta_of, s, ref) for ref in refs)


def _report(meta_of: Callable[[str], Mapping[str, Any]], s: State, ref: PartialRef) -> PartialReport:
    try:
        meta = meta_of(ref.file)
        cut, components = str(meta["cut"]), tuple(meta["components"])
    except InternalError:
        cut, components = "", ()
    keeps = "tuples" if cut == Tuples.__name__ else "values" if LISTS.intersection(components) else "partials"
    stream = ref.stream or _stream_of(s, ref.fold)
    return PartialReport(
        ref.file,
        ref.fold,
        stream,
        ref.epoch,
        cut,
        components,
        keeps if cut else "",
        ref.entries,
        ref.bytes,
        ref.carried,
    )


def _stream_of(s: State, fold: str) -> str:
    """Of what was carried."""
    for record in s.queries.values():
        if record.fold == fold:
            streams = record.query.query.streams
            return min(streams) if len(record.query.query.sources) == 1 else "join"
    return "join"
