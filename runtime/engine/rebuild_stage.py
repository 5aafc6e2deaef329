"""State that a plan lacks, made from what is open: views with other bits and indexes, and joined buckets.

A plan change needs what `plan_transition` lists; a repair needs all joined buckets anew. Both deliver nothing: every
row that the rebuilt state could lead to was delivered in an earlier epoch.
"""

from __future__ import annotations

from dataclasses import dataclass

from optimizer.model.plan import Leaf
from runtime.buckets.refs import JoinedRef, ViewRef
from runtime.control.events import ReplacedViews
from runtime.crashpoints import reach
from runtime.engine.join_stage import JoinStage, Output
from runtime.engine.open_buckets import OpenBuckets
from runtime.engine.stage_context import StageContext
from runtime.execution.transition import Transition
from runtime.operators.rebuild import RebuildShared, ViewRebuild, run_rebuild


@dataclass(frozen=True)
class RebuildStage:
    context: StageContext
    buckets: OpenBuckets
    epoch: int

    def run(self, transition: Transition) -> tuple[ReplacedViews, ...]:
        """Views first, because joined buckets are made from them."""
        for bucket in transition.stale:
            del self.buckets.joined[bucket]
        replaced = self._views(transition.views)
        self._joins(transition.outputs)
        return replaced

    def all_joined(self) -> tuple[JoinedRef, ...]:
        """Every joined bucket anew, instead of those there are."""
        self.buckets.joined.clear()
        self._joins(frozenset(self.context.physical.uses))
        return tuple(self.buckets.joined.values())

    def _views(self, tasks: tuple[ViewRebuild, ...]) -> tuple[ReplacedViews, ...]:
        if not tasks:
            return ()
        exchange, version = self.context.exchange, self.context.physical.version
        views: dict[int, dict[tuple[Leaf, int], ViewRef]] = {}
        shared = RebuildShared(exchange.for_tasks(), version)
        for bucket, view in exchange.run(f"epoch {self.epoch}: rebuild views", run_rebuild, shared, tasks):
            before = {(v.leaf, v.group): v for v in self.buckets.sources[bucket].views}
            views.setdefault(bucket, before)[(view.leaf, view.group)] = view
        reach("epoch.views")
        for bucket, mine in views.items():
            self.buckets.replace_views(bucket, tuple(mine.values()))
        return tuple(ReplacedViews(bucket, tuple(mine.values())) for bucket, mine in sorted(views.items()))

    def _joins(self, outputs: frozenset[Output]) -> None:
        for together in self.context.physical.stages:
            if any((j.name, o.key) in outputs for j in together for o in j.outputs):
                JoinStage(self.context, self.buckets, self.epoch, together, outputs).run("rebuild joins")
        self.buckets.is_old()
