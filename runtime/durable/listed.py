"""Which files events and states list, by name as in the state directory: "buckets/b7.bucket", "results/...segment"."""

from __future__ import annotations

from runtime.buckets.refs import BucketRef, PartialRef
from runtime.control.events import BucketsRepaired, EpochCommitted, Event
from runtime.control.state import State


def files_of_event(event: Event) -> list[str]:
    """The files that a record lists, so that they must be there before it."""
    refs: list[BucketRef | PartialRef]
    if isinstance(event, EpochCommitted):
        refs = [*event.sources, *event.joined, *event.partials]
        views = [v.file for bucket in event.views for v in bucket.views]
        segments = [f"results/{s.file}" for s in event.segments]
    elif isinstance(event, BucketsRepaired):
        replaced = (bucket.by for bucket in event.sources if bucket.by is not None)
        refs = [*replaced, *event.joined, *event.partials]
        views, segments = [], []
    else:
        return []
    files = {file for ref in refs for file in ref.files} | set(views)
    return [f"buckets/{file}" for file in sorted(files)] + segments


def files_of_state(state: State) -> list[str]:
    """Oldest epoch first."""
    refs: list[BucketRef | PartialRef] = [*state.sources.values(), *state.joined.values(), *state.pins.values()]
    refs += state.partials.values()
    refs.sort(key=lambda ref: ref.epoch)
    buckets = list(dict.fromkeys(f"buckets/{file}" for ref in refs for file in sorted(ref.files)))
    return buckets + [f"results/{s.file}" for epoch in sorted(state.segments) for s in state.segments[epoch]]
