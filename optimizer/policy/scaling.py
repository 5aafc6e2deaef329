"""Scaling: more or fewer tasks for the partitions that need it, and more or fewer machines for the tasks.

Scaling **out** adds partitions: a range of hashes with too much to do is cut into several. Each part reads and joins
only its own hashes, so this is what an even load wants, on one machine as on many. Scaling **up** splits a partition:
several tasks work on one range, one side of every join is dealt out among them and the other side is read by all. It
costs more, and it is the only thing that helps where a single *key* has more to do than a task can: no cut separates a
key from itself. So a partition is split if its heaviest key alone would keep a task busy, and cut otherwise, also if it
was split before.

A partition has too much to do when its tasks are busy more than `high` of the time, or more than `low` of it while a
query is late: while its rows are older than it allows. Lateness alone is no reason: where nothing is busy,
more tasks would not help. All partitions that have too much to do are relieved in the same call, into as many parts as
their load asks for. A load that is not met is not seen, so where rows are k times as old as they may be, it is taken
for k times as much, up to four. What partitions get together is bounded by the cores that there are or that can be
had, and divided fairly.

Scaling **down** (fewer ways) and **in** (ranges of quiet neighbours become one) need the load to stay low for
`patience` decisions in a row; the count is a value that goes in and comes out, so the function is pure. They
too go as far as the load allows.

`cores` says how many are wanted: asked for with the decision that adds tasks, and given back only by a later decision
that finds everything quiet with fewer tasks already running. Then no range has to move because a machine goes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from optimizer.model.plan import Partitioning

MOST_HURRY = 4


@dataclass(frozen=True, slots=True)
class ScalingConfig:
    """Busy shares are seconds of work per second and task: 1.0 is a task that never rests. `skew`: a partition so many
    times as busy as the average is called skewed."""

    latency_s: float = 5.0
    high: float = 0.8
    low: float = 0.3
    skew: float = 1.5
    patience: int = 3
    max_ways: int = 8
    min_partitions: int = 1
    max_partitions: int = 256

    @property
    def aim(self) -> float:
        """How busy a task is to be after a change: as far from being too busy as from being quiet."""
        return (self.high + self.low) / 2


@dataclass(frozen=True, slots=True)
class Machines:
    """`cores`: tasks that can run at the same time now; `reachable`: with as many machines as may be asked for.
    `nodes`: the hosts that are there and how many cores each has."""

    cores: int = 1
    reachable: int = 0
    nodes: tuple[tuple[str, int], ...] = ()

    @property
    def most(self) -> int:
        return max(self.cores, self.reachable)


@dataclass(frozen=True)
class Load:
    """What the last while looked like.

    - `busy`: per partition, seconds of all its tasks per second (a partition split 2 ways can reach 2.0). Empty: no
      epoch has run with this partition function yet.
    - `hottest`: per partition, which part of its combinations is of one key.
    - `others`: seconds per second of tasks that belong to no partition: reading, tagging, indexing.
    - `latency_s`: how old each query's rows were; `allowed_s`: how old they may be, where the query says so itself.
    """

    busy: Mapping[int, float]
    machines: Machines
    latency_s: Mapping[str, float] = field(default_factory=dict)
    allowed_s: Mapping[str, float] = field(default_factory=dict)
    hottest: Mapping[int, float] = field(default_factory=dict)
    others: float = 0.0


@dataclass(frozen=True, slots=True)
class Quiet:
    """How many decisions in a row each partition (those with none are left out), and the whole, had little to do."""

    partitions: tuple[tuple[int, int], ...] = ()
    whole: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    """`action` is '' (nothing), 'up', 'down', 'out' (perhaps some partitions were split as well) or 'in'. `cores`: so
    many are wanted; 0: as many as there are."""

    partitioning: Partitioning
    action: str
    reason: str
    quiet: Quiet
    cores: int = 0


def decide(config: ScalingConfig, at: Partitioning, load: Load, quiet: Quiet) -> Decision:
    """The partition function to run with from now on, and why."""
    if not load.busy:
        return Decision(at, "", "nothing has been measured yet", quiet)
    busy = {p: load.busy.get(p, 0.0) for p in range(at.count)}
    each = {p: busy[p] / at.ways(p) for p in busy}
    late = _late(config, load)
    after = _onwards(quiet, _count(config, at, each, busy, bool(late)))
    limit = config.low if late else config.high
    slow = sorted((p for p in each if each[p] > limit), key=lambda p: (-each[p], p))
    if slow:
        return _relieve(config, at, load, busy, each, late, slow, after)
    return _rest(config, at, load, busy, each, after)


def _late(config: ScalingConfig, load: Load) -> dict[str, float]:
    """By how many times a query's rows are older than they may be."""
    late = {}
    for query, age in load.latency_s.items():
        allowed = load.allowed_s.get(query, config.latency_s)
        if age > allowed:
            late[query] = age / allowed
    return late


# -- more ---------------------------------------------------------------------------------------------------------


def _relieve(
    config: ScalingConfig,
    at: Partitioning,
    load: Load,
    busy: Mapping[int, float],
    each: Mapping[int, float],
    late: Mapping[str, float],
    slow: Sequence[int],
    after: Quiet,
) -> Decision:
    limit = config.low if late else config.high
    room = load.machines.most - _tasks(at)
    partitions = config.max_partitions - at.count
    hurry = min(max(late.values(), default=1.0), MOST_HURRY)
    ways: dict[int, int] = {}
    cuts: dict[int, int] = {}
    for i, p in enumerate(slow):
        has, fair = at.ways(p), math.ceil(room / (len(slow) - i))
        wanted = max(math.ceil(hurry * busy[p] / config.aim), has + 1)
        if busy[p] * load.hottest.get(p, 0.0) > limit:
            wanted = min(wanted, config.max_ways, has + fair)
            if wanted > has:
                ways[p] = wanted
        else:
            width = at.bounds[p + 1] - at.bounds[p]
            wanted = min(wanted, has + fair, partitions + 1, width)
            if wanted > has or (wanted > 1 and wanted == has):  # ranges instead of ways: the same cores do less work
                cuts[p] = wanted
                partitions -= wanted - 1
        room -= max(ways.get(p, has), cuts.get(p, has)) - has
    why = _why(config, load, slow[0], each, late)
    if not ways and not cuts:
        return Decision(at, "", f"{why}, but there are no more cores", after)
    split = at
    for p, count in ways.items():
        split = split.with_split(p, count)
    made = _cut(split, cuts)
    done = [f"partition {p} runs {count} ways now" for p, count in sorted(ways.items())]
    done += [f"partition {p} is cut into {count}" for p, count in sorted(cuts.items())]
    cores = max(_tasks(made), math.ceil((sum(busy.values()) + load.others) / config.aim))
    return Decision(made, "out" if cuts else "up", f"{why}: {', '.join(done)}", Quiet(), cores)


def _why(
    config: ScalingConfig, load: Load, partition: int, each: Mapping[int, float], late: Mapping[str, float]
) -> str:
    mean, busy, key = sum(each.values()) / len(each), each[partition], load.hottest.get(partition, 0.0)
    if mean and busy >= config.skew * mean:
        text = f"partition {partition} is skewed: busy {busy:.0%}, the average {mean:.0%}, one key has {key:.0%} of it"
    else:
        text = f"partition {partition} is busy {busy:.0%}"
    if late:
        worst = min(late, key=lambda q: (-late[q], q))
        allowed = load.allowed_s.get(worst, config.latency_s)
        text += f", and {worst} is {load.latency_s[worst]:.1f} s late (allowed {allowed:g} s)"
    return text


def _cut(at: Partitioning, cuts: Mapping[int, int]) -> Partitioning:
    """These ranges become so many equal parts, which start unsplit; the partitions above them move up."""
    bounds, splits = [at.bounds[0]], []
    for p in range(at.count):
        low, high, parts = at.bounds[p], at.bounds[p + 1], cuts.get(p, 1)
        if p not in cuts and at.ways(p) > 1:
            splits.append((len(bounds) - 1, at.ways(p)))
        bounds += [low + (high - low) * i // parts for i in range(1, parts + 1)]
    return Partitioning(tuple(bounds), tuple(splits))


# -- less ---------------------------------------------------------------------------------------------------------


def _rest(
    config: ScalingConfig,
    at: Partitioning,
    load: Load,
    busy: Mapping[int, float],
    each: Mapping[int, float],
    after: Quiet,
) -> Decision:
    rested = {p for p, n in after.partitions if n >= config.patience and at.ways(p) > 1}
    if rested:
        made = at
        for p in rested:
            made = made.with_split(p, min(at.ways(p) - 1, max(1, math.ceil(busy[p] / config.aim))))
        told = ", ".join(f"partition {p} runs {made.ways(p)} ways now" for p in sorted(rested))
        reason = f"busy less than {config.low:.0%} for {config.patience} times: {told}"
        return Decision(made, "down", reason, Quiet())
    if after.whole < config.patience:
        return Decision(at, "", "the load fits", after)
    if at.count > config.min_partitions:
        made = _unite(config, at, busy)
        if made != at:
            reason = f"all partitions together are busy {sum(busy.values()):.0%}: {at.count} become {made.count}"
            return Decision(made, "in", reason, Quiet())
    cores = max(_tasks(at), math.ceil((sum(busy.values()) + load.others) / config.aim))
    return Decision(at, "", "the load fits", after, cores if cores < load.machines.cores else 0)


def _unite(config: ScalingConfig, at: Partitioning, busy: Mapping[int, float]) -> Partitioning:
    """Neighbours become one where that is far from being too much; the quietest first, each at most once."""
    fewest = config.min_partitions
    pairs = sorted(range(at.count - 1), key=lambda p: (busy[p] + busy[p + 1], p))
    gone: set[int] = set()  # inner bounds
    taken: set[int] = set()
    for left in pairs:
        both = {left, left + 1}
        unsplit = at.ways(left) == at.ways(left + 1) == 1
        if unsplit and not both & taken and busy[left] + busy[left + 1] < config.high / 2:
            if at.count - len(gone) <= fewest:
                break
            taken |= both
            gone.add(left + 1)
    bounds = tuple(bound for i, bound in enumerate(at.bounds) if i not in gone)
    splits = tuple((p - sum(g <= p for g in gone), w) for p, w in at.splits)
    return Partitioning(bounds, splits)


def _count(
    config: ScalingConfig, at: Partitioning, each: Mapping[int, float], busy: Mapping[int, float], late: bool
) -> dict[int, bool]:
    """Which partitions have little to do: a split one would still be below `high` with a way less. While a query is
    late, only those that hardly do anything: it is not them it waits for."""
    low = config.low / 2 if late else config.low
    return {p: each[p] < low and busy[p] < config.high * max(at.ways(p) - 1, 1) for p in each}


def _onwards(quiet: Quiet, rests: Mapping[int, bool]) -> Quiet:
    so_far = dict(quiet.partitions)
    counts = tuple((p, so_far.get(p, 0) + 1) for p, r in rests.items() if r)
    return Quiet(counts, quiet.whole + 1 if all(rests.values()) else 0)


def _tasks(at: Partitioning) -> int:
    return sum(at.ways(p) for p in range(at.count))
