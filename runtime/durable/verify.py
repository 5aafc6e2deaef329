"""Is a durable tier whole? Every object its log lists is read and checked, as `ajoin state verify` does with files.

The tier may be in use meanwhile, and its owner deletes what it no longer needs. So what looks wrong is looked at again
against the log as it is then. Nothing is claimed, written or repaired. The cost is reading all state once, over the
network if there is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from optimizer.errors import AJoinError
from runtime.buckets.file import parse
from runtime.durable.keeper import listed
from runtime.durable.look import Seen, look
from runtime.state_tools.verify import MADE_AGAIN, Problem, Verification, lost_rows, read_again, segment_problem

_LOCAL = "while the state directory has a whole copy that is used; else "


def with_tier(local: Verification, uri: str) -> Verification:
    """What was found in the state directory, and what is found in its durable tier."""
    try:
        seen = look(uri)
    except AJoinError as e:
        stop = Problem(uri, e.reason, e.message, "the platform does not start with this durable tier")
        return replace(local, problems=(*local.problems, stop))
    found = list(_problems(seen))
    if found:
        still = set(listed(look(uri).state))
        found = [(name, problem) for name, problem in found if name in still]
    objects = [seen.places[name] for name in listed(seen.state) if name in seen.places]
    return replace(
        local,
        epoch=max(local.epoch, seen.state.epoch),
        files=local.files + len(objects),
        bytes=local.bytes + sum(place.size for place in objects),
        problems=(*local.problems, *(problem for _, problem in found)),
    )


def _problems(seen: Seen) -> Iterator[tuple[str, Problem]]:
    s = seen.state
    files = [(f, read_again(s, ref)) for ref in s.sources.values() for f in sorted(ref.files)]
    files += [(ref.file, MADE_AGAIN) for ref in s.joined.values()]
    for file, again in files:
        name = f"buckets/{file}"
        if what := _bucket_problem(seen, name):
            reason = "BUCKET_DAMAGED" if name in seen.places else "BUCKET_MISSING"
            yield name, Problem(_object(seen, name), reason, what, _LOCAL + again)
    for epoch, segments in sorted(s.segments.items()):
        for segment in segments:
            name = f"results/{segment.file}"
            data = _get(seen, name)
            if what := "there is no such object" if data is None else segment_problem(data, segment):
                yield name, Problem(_object(seen, name), "RESULTS_DAMAGED", what, _LOCAL + lost_rows(epoch, segment))


def _bucket_problem(seen: Seen, name: str) -> str:
    data = _get(seen, name)
    if data is None:
        return "there is no such object"
    try:
        arrays = parse(name, memoryview(data)).arrays
        for key in arrays:
            arrays[key]  # checked by looking
    except AJoinError as e:
        return e.message
    return ""


def _get(seen: Seen, name: str) -> bytes | None:
    place = seen.places.get(name)
    return None if place is None else seen.tier.get(place.object)


def _object(seen: Seen, name: str) -> str:
    return f"{seen.tier.uri}/{seen.places[name].object if name in seen.places else name}"
