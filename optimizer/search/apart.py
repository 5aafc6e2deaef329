"""Moving heavy queries into groups of their own, and keeping the search away from them.

A query that is to be apart leaves its group when somebody else is there who is not: that is whom it would protect. It
moves with its tree as it is; the others keep their group, their bits and their orders, so nothing of theirs is rebuilt.
Queries that are all to be apart and share a group stay together: there is nobody to protect, and to run them one by one
would be more work for the same machine.

From then on the search sees neither these queries nor their groups, so it can give them no company. Only their own
order may still become a better one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from optimizer.model.plan import Plan, RunningQuery
from optimizer.search.clusters import Cluster
from optimizer.search.forced import MAX_GROUP, force_groups
from optimizer.search.refine import Alone


def must_leave(plan: Plan, apart: Collection[str]) -> dict[str, int]:
    """Queries that are in a group with others they are to be kept away from, and how many share that group."""
    leaving: dict[str, int] = {}
    for members in plan.groups.values():
        heavy = [p.uid for p in members if p.uid in apart]
        if len(heavy) < len(members):
            leaving |= {uid: len(members) - 1 for uid in heavy}
    return leaving


def move_apart(plan: Plan, queries: Mapping[str, RunningQuery], leaving: Iterable[str]) -> Plan:
    """The plan with a group for each of these queries, as far as there are numbers; one version up if any moves."""
    uids = sorted(leaving)
    numbers = range(min(len(plan.groups) + len(uids), MAX_GROUP + 1))
    free = (g for g in numbers if g not in plan.groups)
    return force_groups(plan, queries, dict(zip(uids, free, strict=False)))


def why_apart(
    leaving: Mapping[str, int], behind: Mapping[str, int], queries: Mapping[str, RunningQuery]
) -> Iterator[str]:
    """For people, one sentence per query that leaves."""
    for uid, others in sorted(leaving.items()):
        epochs = behind.get(uid, 0)
        late = f"it is {epochs:,} epoch{'s' if epochs > 1 else ''} behind" if epochs else "it was behind not long ago"
        share = "another query shares" if others == 1 else f"{others:,} queries share"
        yield f"{queries[uid].id} gets a group of its own: {late} and {share} its group"


def in_best_order(clusters: Iterable[Cluster], alone: Alone) -> list[Cluster]:
    """Clusters that the search left out: a single query in its best order, anything else as it is."""
    return [_cheaper(c, alone(c.uids[0])) if len(c.uids) == 1 else c for c in clusters]


def _cheaper(running: Cluster, other: Cluster) -> Cluster:
    return other if other.cost < running.cost else running
