"""State that a plan lacks, made from what is open: views with other bits and indexes, and joined buckets.

A plan change needs what `plan_transition` lists; a repair needs all joined buckets anew. Both deliver nothing: every
row that the rebuilt state could lead to was delivered in an earlier epoch. What has been prepared of a plan change
(runtime.engine.preparation) is given and need not be made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from runtime.buckets.refs import JoinedRef, ViewRef
from runtime.control.events import ReplacedViews
from runtime.crashpoints import reach
from runtime.engine.join_stage import JoinStage, Output
from runtime.engine.open_buckets import OpenBuckets
from runtime.engine.stage_context import StageContext
from runtime.execution.transition import Transition
from runtime.operators.rebuild import RebuildShared, ViewRebuild, run_rebuild


@dataclass(frozen=True, slots=True)
class Given:
    """All that a transition asks for, made before. `views`: by bucket."""

    views: Mapping[int, Sequence[ViewRef]]
    joined: tuple[JoinedRef, ...]


@dataclass(frozen=True)
class RebuildStage:
    """`mark`: in the names of files with views, unlike that of any other rebuild; without one, the plan's version."""

    context: StageContext
    buckets: OpenBuckets
    epoch: int
    mark: str = ""

    def run(self, transition: Transition, given: Given | None = None) -> tuple[ReplacedViews, ...]:
        """Views first, because joined buckets are made from them."""
        for bucket in transition.stale:
            del self.buckets.joined[bucket]
        if given is not None:
            self.buckets.joined.update({ref.id: ref for ref in given.joined})
            return self._replaced(given.views)
        replaced = self._views(transition.views)
        self.buckets.all_new()
        self._joins(transition.outputs)
        return replaced

    def portion(self, views: Sequence[ViewRebuild], outputs: frozenset[Output], new: Iterable[int]) -> None:
        """These views, and what joins make of these buckets and those that were new before."""
        self._views(views)
        self.buckets.new = set(new)
        self._joins(outputs)

    def all_joined(self) -> tuple[JoinedRef, ...]:
        """Every joined bucket anew, instead of those there are."""
        self.buckets.joined.clear()
        self.buckets.all_new()
        self._joins(frozenset(self.context.physical.uses))
        return tuple(self.buckets.joined.values())

    def _views(self, tasks: Sequence[ViewRebuild]) -> tuple[ReplacedViews, ...]:
        if not tasks:
            return ()
        exchange, version = self.context.exchange, self.context.physical.version
        made: dict[int, list[ViewRef]] = {}
        shared = RebuildShared(exchange.for_tasks(), version, self.mark or f"v{version}")
        for bucket, view in exchange.run(f"epoch {self.epoch}: rebuild views", run_rebuild, shared, tasks):
            made.setdefault(bucket, []).append(view)
        reach("epoch.views")
        return self._replaced(made)

    def _replaced(self, made: Mapping[int, Sequence[ViewRef]]) -> tuple[ReplacedViews, ...]:
        for bucket, mine in made.items():
            views = {(v.leaf, v.group): v for v in (*self.buckets.sources[bucket].views, *mine)}
            self.buckets.replace_views(bucket, tuple(views.values()))
        return tuple(ReplacedViews(bucket, self.buckets.sources[bucket].views) for bucket in sorted(made))

    def _joins(self, outputs: frozenset[Output]) -> None:
        for together in self.context.physical.stages:
            if any((j.name, o.key) in outputs for j in together for o in j.outputs):
                JoinStage(self.context, self.buckets, self.epoch, together, outputs).run("rebuild joins")
        self.buckets.is_old()
