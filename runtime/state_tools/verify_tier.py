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
from runtime.durable.contents import TierContents, read_tier
from runtime.durable.listed import files_of_state
from runtime.durable.shown import shown
from runtime.state_tools.consequences import MADE_AGAIN, folded_again, read_again
from runtime.state_tools.verify import Problem, Verification, lost_rows, segment_problem

_LOCAL = "while the state directory has a whole copy that is used; else "


def with_tier(local: Verification, uri: str) -> Verification:
    """What was found in the state directory, and what is found in its durable tier."""
    try:
        contents = read_tier(uri)
    except AJoinError as e:
        stop = Problem(shown(uri), e.reason, e.message, "the platform does not start with this durable tier")
        return replace(local, problems=(*local.problems, stop))
    problems = list(_problems(contents))
    if problems:
        still = set(files_of_state(read_tier(uri).state))
        problems = [(name, problem) for name, problem in problems if name in still]
    objects = [contents.objects[name] for name in files_of_state(contents.state) if name in contents.objects]
    return replace(
        local,
        epoch=max(local.epoch, contents.state.epoch),
        files=local.files + len(objects),
        bytes=local.bytes + sum(stored.size for stored in objects),
        problems=(*local.problems, *(problem for _, problem in problems)),
    )


def _problems(contents: TierContents) -> Iterator[tuple[str, Problem]]:
    s = contents.state
    files = [(f, read_again(s, ref)) for ref in s.sources.values() for f in sorted(ref.files)]
    files += [(ref.file, MADE_AGAIN) for ref in s.joined.values()]
    files += [(ref.file, folded_again(s, ref)) for ref in s.partials.values()]
    for file, again in files:
        name = f"buckets/{file}"
        if what := _bucket_problem(contents, name):
            reason = "BUCKET_DAMAGED" if name in contents.objects else "BUCKET_MISSING"
            yield name, Problem(_object(contents, name), reason, what, _LOCAL + again)
    for epoch, segments in sorted(s.segments.items()):
        for segment in segments:
            name = f"results/{segment.file}"
            data = _get(contents, name)
            if what := "there is no such object" if data is None else segment_problem(data, segment):
                yield (
                    name,
                    Problem(_object(contents, name), "RESULTS_DAMAGED", what, _LOCAL + lost_rows(epoch, segment)),
                )


def _bucket_problem(contents: TierContents, name: str) -> str:
    data = _get(contents, name)
    if data is None:
        return "there is no such object"
    try:
        arrays = parse(name.partition("/")[2], contents.state.platform, memoryview(data)).arrays
        for key in arrays:
            arrays[key]  # checked by looking
    except AJoinError as e:
        return e.message
    return ""


def _get(contents: TierContents, name: str) -> bytes | None:
    stored = contents.objects.get(name)
    return None if stored is None else contents.tier.get(stored.name)


def _object(contents: TierContents, name: str) -> str:
    return f"{contents.tier.shown}/{contents.objects[name].name if name in contents.objects else name}"
