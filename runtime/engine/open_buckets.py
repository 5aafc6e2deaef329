"""The buckets an epoch works with: those that are open in the state, and those its own stages add.

Bucket ids are handed out in a fixed order before tasks run, so running the same planned epoch again (after a crash)
writes the same files. Source buckets have even ids and joined ones odd ids, because the next epoch's source stage may
run at the same time as this epoch's joins.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from runtime.buckets.refs import JoinedRef, SourceRef, ViewRef
from runtime.control.state import State


class OpenBuckets:
    """Mutable; owned by one running epoch, repair or preparation. `new`: ids of buckets that have met no others yet.
    `aside`: of those that meet nobody now, but others refer to them. `next_bucket`: numbers below it are given away."""

    def __init__(self, state: State, next_bucket: int = 0) -> None:
        self.sources: dict[int, SourceRef] = dict(state.sources)
        self.joined: dict[int, JoinedRef] = dict(state.joined)
        self.new: set[int] = set()
        self.aside: frozenset[int] = frozenset()
        self.next_bucket, self.next_source = max(state.next_bucket, next_bucket), state.next_source

    def joined_id(self) -> int:
        self.next_bucket += 1
        return 2 * self.next_bucket - 1

    def add_source(self, ref: SourceRef) -> None:
        self.sources[ref.id] = ref
        self.new.add(ref.id)

    def add_joined(self, refs: Iterable[JoinedRef]) -> None:
        for ref in refs:
            self.joined[ref.id] = ref
            self.new.add(ref.id)

    def replace_views(self, bucket: int, views: tuple[ViewRef, ...]) -> None:
        self.sources[bucket] = replace(self.sources[bucket], views=views)

    def all_new(self) -> None:
        """Every pair of buckets is to meet, as if all had come now."""
        self.new = {*self.sources, *self.joined}

    def is_old(self) -> None:
        """Buckets made until now count as old: they were rebuilt, and their rows were delivered in earlier epochs."""
        self.new.clear()

    def before(self, epoch: int) -> OpenBuckets:
        """Source buckets as they were before an epoch, without anything joined. Numbers are handed out from here on."""
        past = OpenBuckets(State(next_bucket=self.next_bucket, next_source=self.next_source))
        past.sources = {id: ref for id, ref in self.sources.items() if ref.epoch < epoch}
        return past


def source_id(number: int) -> int:
    return 2 * number
