"""What the cost model says about a running plan: numbers for explain, and lessons from what was observed.

`estimate` prices a plan as it is: Crd of every join, the cost of the plan, and for each query the cost it would have
alone against its share of what it uses together with others (each thing divided by the queries that use it, as in
Figure 7b).

`learn` goes the other way: joins of two leaves whose output was observed correct the selectivity of their key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from optimizer.cost.cardinality import ratio_key
from optimizer.cost.model import CostModel, Shared, Sink
from optimizer.model.plan import Plan, SourceNode
from optimizer.search.assemble import trees_of
from optimizer.search.clusters import Singles
from optimizer.search.refine import Alone
from optimizer.statistics.model import EpochObservation


@dataclass(frozen=True, slots=True)
class Estimate:
    """`combinations`: Crd per second of every join, by node name. `alone`, `shared`: cost per query (uid)."""

    cost: float
    combinations: Mapping[str, float]
    alone: Mapping[str, float]
    shared: Mapping[str, float]

    @property
    def unshared(self) -> float:
        """What the queries would cost if nothing were shared."""
        return sum(self.alone.values())


def estimate(model: CostModel, plan: Plan, singles: Singles) -> Estimate:
    shapes = model.shapes
    alone = Alone(model, singles)
    combinations: dict[str, float] = {}
    shared: dict[str, float] = {}
    total = 0.0
    for group, placements in plan.groups.items():
        trees = trees_of(shapes, placements, singles)
        one = Shared(model, trees)
        total += one.cost()
        users: dict[object, int] = {}
        for member, root in trees:
            for thing in _things(model, Sink(root, member.shape.fold)):
                users[thing] = users.get(thing, 0) + len(member.uids)
        for member, root in trees:
            sink = Sink(root, member.shape.fold)
            cost = one.made(sink) / users["sink", sink]
            for number in shapes.subtree(root):
                join = shapes.joins[number]
                cost += one.intersection(number) / users["join", number]
                cost += sum(one.index(i) / users["index", i] for i in join.indexes)
                cost += sum(one.exchange(e) / users["exchange", e] for e in join.exchanges)
            shared.update({uid: cost + model.closing(singles[uid]) for uid in member.uids})
        for number in one.joins:
            combinations[shapes.plan_node(number, group).name] = one.combinations(number)
    uids = sorted(shared)
    return Estimate(total, combinations, {u: alone(u).cost for u in uids}, {u: shared[u] for u in uids})


def _things(model: CostModel, sink: Sink) -> list[tuple[str, object]]:
    """What a tree uses, each once."""
    things: dict[tuple[str, object], None] = {("sink", sink): None}
    for number in model.shapes.subtree(sink.root):
        join = model.shapes.joins[number]
        things["join", number] = None
        things.update((("index", i), None) for i in join.indexes)
        things.update((("exchange", e), None) for e in join.exchanges)
    return list(things)


def learn(model: CostModel, plan: Plan, singles: Singles, report: EpochObservation) -> None:
    """Feeds observed outputs of joins of two leaves back into the statistics the model reads from."""
    shapes, card = model.shapes, model.cardinalities
    ratios: list[tuple[str, float]] = []
    for node, users in plan.nodes.items():
        if not (isinstance(node.left, SourceNode) and isinstance(node.right, SourceNode)):
            continue
        observed = report.outputs.get(node.name)
        if observed is None or any(u not in singles for u in users):
            continue
        members = [singles[u] for u in users]
        number = shapes.tree(members[0].shape, node)
        bits = [0, 0]
        for m in members:
            for i, leaf in enumerate(shapes.joins[number].leaves):
                bits[i] |= m.bits[m.shape.leaves.index(leaf)]
        streams = [report.streams.get(leaf.stream) for leaf in node.leaves]
        epoch_s = min((s.seconds for s in streams if s is not None), default=0.0)
        edges = shapes.joins[number].edges
        longest = max(m.seconds for m in members)
        expected = card.combinations(number, model.fractions(number, bits), longest) * epoch_s
        expected *= card.selectivity(edges, corrected=False) / max(card.selectivity(edges), 1e-300)
        if expected >= 1.0:  # below that a ratio is noise
            ratios.append((ratio_key(edges), (observed + 0.5) / (expected + 0.5)))
    card.stats.learn_ratios(ratios)
