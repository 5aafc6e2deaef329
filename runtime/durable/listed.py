"""Which files events and states list, by name as in the state directory: "buckets/b7.bucket", "results/...segment"."""

from __future__ import annotations

from runtime.buckets.refs import BucketRef
from runtime.control.events import BucketsRepaired, EpochCommitted, Event
from runtime.control.state import State


def files_of_event(event: Event) -> list[str]:
    """The files that a record lists, so that they must be there before it."""
    refs: list[BucketRef]
    if isinstance(event, EpochCommitted):
        refs = [*event.sources, *event.joined]
        views = [v.file for replaced in event.views for v in replaced.views]
        segments = [f"results/{s.file}" for s in event.segments]
    elif isinstance(event, BucketsRepaired):
        refs = [*(replaced.by for replaced in event.sources if replaced.by is not None), *event.joined]
        views, segments = [], []
    else:
        return []
    files = {file for ref in refs for file in ref.files} | set(views)
    return [f"buckets/{file}" for file in sorted(files)] + segments


def files_of_state(state: State) -> list[str]:
    """Oldest epoch first."""
    refs: list[BucketRef] = [*state.sources.values(), *state.joined.values(), *state.pins.values()]
    refs.sort(key=lambda ref: ref.epoch)
    buckets = list(dict.fromkeys(f"buckets/{file}" for ref in refs for file in sorted(ref.files)))
    return buckets + [f"results/{s.file}" for epoch in sorted(state.segments) for s in state.segments[epoch]]
