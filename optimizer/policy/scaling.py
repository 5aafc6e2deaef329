"""Scaling: more or fewer workers for the partitions that need it. Up before out, down before in.

Scaling **up** splits one slow partition k ways on the same node: the join distributes over union, so one side's
buckets go to all k tasks and the other side's are dealt out. It needs spare cores and moves nothing. Scaling **out**
adds partitions: the overloaded hash range is cut in two. It is used when there are no spare cores on the node, or
when everything is slow and splitting one partition would only move the queue.

A partition is *slow* when its busy share of the epoch is above `high`, or when a query's latency is above
`latency_s` (default 5 s) and the partition is the busiest. It is *skewed* when it is `skew` times as busy as the
average. Scaling **down** (ways - 1) and **in** (the two neighbouring ranges with the least load become one) need the
load to stay low for `patience` decisions in a row; the count is a value that goes in and comes out, so the function
is pure.

One call changes at most one thing: the next statistics show what it did. The decision is a new partition function; its
changelog entries come from the plan diff like all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from optimizer.model.plan import Partitioning


@dataclass(frozen=True, slots=True)
class ScalingConfig:
    """Utilisations are busy seconds per second of epoch and task: 1.0 is a task that never rests."""

    latency_s: float = 5.0
    high: float = 0.8
    low: float = 0.3
    skew: float = 1.5
    patience: int = 3
    max_ways: int = 8
    min_partitions: int = 1
    max_partitions: int = 256


@dataclass(frozen=True)
class Load:
    """What one epoch (or a smoothed one) looked like.

    - `busy`: per partition, busy seconds of all its tasks per second of epoch (a partition split 2 ways can reach 2.0).
    - `latency_s`: the worst event-time latency of each query.
    - `cores`: cores the cluster has; `reachable`: cores it could have with more nodes (scale out).
    - `node_of`, `cores_of`: where partitions run and how many cores each node has. Empty: one node.
    """

    busy: Mapping[int, float]
    cores: int
    latency_s: Mapping[str, float] = field(default_factory=dict)
    reachable: int = 0
    node_of: Mapping[int, str] = field(default_factory=dict)
    cores_of: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Quiet:
    """How many decisions in a row each partition (those with none are left out), and the whole, had little to do."""

    partitions: tuple[tuple[int, int], ...] = ()
    whole: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    """`action` is '' (nothing), 'up', 'down', 'out' or 'in'."""

    partitioning: Partitioning
    action: str
    reason: str
    quiet: Quiet


def decide(config: ScalingConfig, at: Partitioning, load: Load, quiet: Quiet) -> Decision:
    """The partition function to run with from now on, and why."""
    busy = {p: load.busy.get(p, 0.0) for p in range(at.count)}
    each = {p: busy[p] / at.ways(p) for p in busy}
    mean = sum(each.values()) / len(each)
    late = {q: s for q, s in load.latency_s.items() if s > config.latency_s}
    hottest = min(each, key=lambda p: (-each[p], p))
    after = _count(config, at, each, busy, load, quiet, bool(late))
    slow = each[hottest] > config.high or (bool(late) and each[hottest] > config.low)
    if slow:
        why = _why(config, hottest, each[hottest], mean, late)
        if _spare(at, load, hottest) and at.ways(hottest) < config.max_ways:
            ways = at.ways(hottest) + 1
            return Decision(at.with_split(hottest, ways), "up", f"{why}: it runs {ways} ways now", after)
        tasks = sum(at.ways(p) for p in busy)
        if at.count < config.max_partitions and (load.reachable > tasks or at.ways(hottest) > 1):
            # an unsplit half runs on the cores the split used, or on new ones
            return Decision(_cut(at, hottest), "out", f"{why}, and no core is free next to it", Quiet())
        return Decision(at, "", f"{why}, but there are no more cores", after)
    rested = [p for p, n in after.partitions if n >= config.patience and at.ways(p) > 1]
    if rested:
        p = min(rested, key=lambda p: (each[p], p))
        ways = at.ways(p) - 1
        reason = f"partition {p} was busy less than {config.low:.0%} for {config.patience} times"
        return Decision(at.with_split(p, ways), "down", f"{reason}: it runs {ways} ways now", Quiet())
    if after.whole >= config.patience and at.count > config.min_partitions:
        left = min(range(at.count - 1), key=lambda p: (busy[p] + busy[p + 1], p))
        if busy[left] + busy[left + 1] < config.high / 2:
            reason = f"partitions {left} and {left + 1} together are busy {busy[left] + busy[left + 1]:.0%}"
            return Decision(_unite(at, left), "in", f"{reason}: they become one", Quiet())
    return Decision(at, "", "the load fits", after)


def _count(
    config: ScalingConfig,
    at: Partitioning,
    each: Mapping[int, float],
    busy: Mapping[int, float],
    load: Load,
    quiet: Quiet,
    late: bool,
) -> Quiet:
    # a split partition rests when it would still be below `high` with one way less
    rests = {p: not late and each[p] < config.low and busy[p] < config.high * max(at.ways(p) - 1, 1) for p in each}
    so_far = dict(quiet.partitions)
    counts = tuple((p, so_far.get(p, 0) + 1) for p, r in rests.items() if r)
    return Quiet(counts, quiet.whole + 1 if all(rests.values()) else 0)


def _spare(at: Partitioning, load: Load, partition: int) -> bool:
    """Is a core free on the partition's node? The busiest task could use it; idle partitions leave theirs free."""
    node = load.node_of.get(partition, "")
    here = [p for p in range(at.count) if load.node_of.get(p, "") == node]
    cores = load.cores_of.get(node, load.cores)
    used = sum(min(load.busy.get(p, 0.0), at.ways(p)) for p in here)
    return used + 0.5 <= cores and at.ways(partition) < cores


def _why(config: ScalingConfig, partition: int, busy: float, mean: float, late: Mapping[str, float]) -> str:
    if mean and busy >= config.skew * mean:
        text = f"partition {partition} is skewed: busy {busy:.0%}, the average {mean:.0%}"
    else:
        text = f"partition {partition} is busy {busy:.0%}"
    if late:
        worst = min(late, key=lambda q: (-late[q], q))
        text += f", and {worst} is {late[worst]:.1f} s late (allowed {config.latency_s:g} s)"
    return text


def _cut(at: Partitioning, partition: int) -> Partitioning:
    """The range becomes two halves; partitions above it move up by one. The halves start unsplit."""
    low, high = at.bounds[partition], at.bounds[partition + 1]
    bounds = (*at.bounds[: partition + 1], (low + high) // 2, *at.bounds[partition + 1 :])
    splits = tuple((p + (p > partition), w) for p, w in at.splits if p != partition)
    return Partitioning(bounds, splits)


def _unite(at: Partitioning, left: int) -> Partitioning:
    bounds = (*at.bounds[: left + 1], *at.bounds[left + 2 :])
    splits = tuple((p - (p > left), w) for p, w in at.splits if p not in (left, left + 1))
    return Partitioning(bounds, splits)
