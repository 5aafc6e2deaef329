"""What the platform will do about a bucket file that is damaged or missing, said to people (runtime.engine.repair)."""

from __future__ import annotations

from runtime.buckets.refs import Origin, PartialRef, SourceRef
from runtime.control.state import State

MADE_AGAIN = "the next epoch makes it again from source buckets"


def read_again(s: State, ref: SourceRef) -> str:
    return _from_source(s, ref.stream, ref.rows, ref.origin)


def folded_again(s: State, ref: PartialRef) -> str:
    if ref.carried:
        uids = s.slots[ref.version].get(ref.group, {}).values()
        lost = sorted(s.running[uid].id for uid in uids if uid in s.running and s.queries[uid].fold == ref.fold)
        return f"its tuples are gone: the next epoch that needs it suspends {', '.join(lost) or 'nobody'}"
    if ref.origin is None or ref.stream is None:
        return f"the next epoch that needs it runs the joins of epoch {ref.epoch} again to fold their rows"
    return _from_source(s, ref.stream, ref.origin.tuples, ref.origin)


def _from_source(s: State, stream: str, tuples: int, origin: Origin) -> str:
    kind = s.streams[stream].source.kind if stream in s.streams else "deleted"
    return (
        f"the next epoch reads its {tuples:,} tuples again from source {kind} of stream {stream} (offsets "
        f"{origin.start} to {origin.end}); if they are not there any more, the platform stops (BUCKET_LOST)"
    )
