"""Is a store whole? Every object its log lists is read and checked, as `ajoin state verify` does with files.

The store may be in use meanwhile, and its owner deletes what it no longer needs. So what looks wrong is looked at again
against the log as it is then. Nothing is claimed, written or repaired. The cost is reading all state once, over the
network if there is one.
"""

from __future__ import annotations

from collections.abc import Iterator

from optimizer.errors import AJoinError, InternalError
from runtime.buckets.file import verify_bytes
from runtime.control.state import State
from runtime.state_tools.consequences import MADE_AGAIN, folded_again, read_again
from runtime.state_tools.verify import Problem, Verification, lost_rows, segment_problem
from runtime.store.contents import StoreContents, read_store
from runtime.store.objects import shown


def verify(uri: str) -> Verification:
    try:
        contents = read_store(uri)
    except AJoinError as e:
        stop = Problem(shown(uri), e.reason, e.message, "the platform does not start with this store")
        return Verification(shown(uri), False, 0, 0, 0, (stop,), ())
    problems = list(_problems(contents))
    if problems:
        still = _listed(read_store(uri).state)
        problems = [problem for problem in problems if problem.file in still]
    sizes = [contents.objects[name] for name in _listed(contents.state) if name in contents.objects]
    return Verification(
        shown(uri), False, contents.state.epoch, len(sizes), sum(sizes), tuple(problems), _notes(contents.state)
    )


def _listed(s: State) -> set[str]:
    return {f"buckets/{file}" for file in s.bucket_files} | {f"results/{file}" for file in s.segment_files}


def _notes(s: State) -> tuple[str, ...]:
    if s.planned is None:
        return ()
    return (f"epoch {s.planned.epoch} is planned and not committed; its owner, or the next start, runs it",)


def _problems(contents: StoreContents) -> Iterator[Problem]:
    s = contents.state
    files = [(f, read_again(s, ref)) for ref in s.sources.values() for f in sorted(ref.files)]
    files += [(ref.file, MADE_AGAIN) for ref in s.joined.values()]
    files += [(ref.file, folded_again(s, ref)) for ref in s.partials.values()]
    for file, consequence in files:
        try:
            _check(contents, file)
        except InternalError as e:
            yield Problem(f"buckets/{file}", e.reason, e.message, consequence)
    for epoch, segments in sorted(s.segments.items()):
        for segment in segments:
            name = f"results/{segment.file}"
            data = contents.store.get(name)
            if what := "there is no such object" if data is None else segment_problem(data, segment):
                yield Problem(name, "RESULTS_DAMAGED", what, lost_rows(epoch, segment))


def _check(contents: StoreContents, file: str) -> None:
    name = f"buckets/{file}"

    def take(at: int, length: int) -> bytes:
        try:
            return contents.store.read(name, at, length)
        except FileNotFoundError as e:
            raise InternalError("there is no such object", reason="BUCKET_MISSING") from e

    verify_bytes(file, contents.state.platform, contents.objects.get(name), take)
