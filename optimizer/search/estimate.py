"""What the cost model says about a running plan: numbers for explain, and lessons from what was observed.

`estimate` prices a plan as it is: Crd of every join, the cost of the plan, and for each query the cost it would have
alone against its share of what it uses together with others (each thing divided by the queries that use it, as in
Figure 7b).

`learn` goes the other way: what joins were observed to give corrects the selectivities. A join of two leaves corrects
that of its key. A join of more leaves says something about all its keys together, because keys may depend on each
other: users who watch many videos may also write many comments. So what is left to explain, after everything that is
known of smaller joins, is remembered for the set of keys. An exception is a key that no running join of two leaves has:
then the simplest explanation is that this key was misjudged, and the next join with it profits, in any order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from optimizer.cost.cardinality import Cardinalities, causes
from optimizer.cost.model import CostModel, Member, Shared, Sink
from optimizer.model.plan import JoinNode, Plan
from optimizer.search.assemble import trees_of
from optimizer.search.clusters import Singles
from optimizer.search.refine import Alone
from optimizer.statistics.model import Cause, EpochObservation


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
    """Feeds observed outputs of joins back into the statistics the model reads from, smaller joins first."""
    shapes, stats = model.shapes, model.cardinalities.stats
    known = [n for n, users in plan.nodes.items() if n.name in report.outputs and all(u in singles for u in users)]
    for _, nodes in groupby(sorted(known, key=_size), _size):
        card = Cardinalities(shapes, stats)  # with what the smaller joins have just taught
        lessons: list[tuple[Cause, float]] = []
        for node in nodes:
            number = shapes.tree(singles[plan.nodes[node][0]].shape, node)
            expected = _expected(model, card, number, [singles[u] for u in plan.nodes[node]], report)
            observed = report.outputs[node.name]
            if max(expected, observed) >= 1.0:  # below that a ratio is noise
                cause = _cause(card, number)
                lessons.append((cause, stats.ratio(cause) * (observed + 0.5) / (expected + 0.5)))
        stats.learn_ratios(lessons)


def _size(node: JoinNode) -> int:
    return len(node.leaves)


def _expected(
    model: CostModel, card: Cardinalities, number: int, members: Sequence[Member], report: EpochObservation
) -> float:
    """Combinations in the epoch, as the statistics have it."""
    leaves = model.shapes.joins[number].leaves
    bits = [0] * len(leaves)
    for m in members:
        for i, leaf in enumerate(leaves):
            bits[i] |= m.bits[m.shape.leaves.index(leaf)]
    streams = [report.streams.get(model.shapes.leaf_of(leaf).stream) for leaf in leaves]
    epoch_s = min((s.seconds for s in streams if s is not None), default=0.0)
    longest = max(m.seconds for m in members)
    return float(card.combinations(number, model.fractions(number, bits), longest)) * epoch_s


def _cause(card: Cardinalities, number: int) -> Cause:
    """What to blame for a difference between the estimate of a join and what was observed."""
    shapes, stats = card.shapes, card.stats
    join = shapes.joins[number]
    names = causes(join.edges)
    if len(names) == 1:
        return names
    below = [shapes.joins[n].edges for n in (join.left.input, join.right.input) if n in shapes.joins]
    crossing = set(names).difference(*(causes(edges) for edges in below))
    if len(crossing) == 1 and not stats.knows(names):
        (key,) = crossing
        if not stats.knows((key,)):
            return ("", key)
    return names
