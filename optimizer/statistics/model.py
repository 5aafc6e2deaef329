"""What the runtime measured, smoothed: rates, query-set samples, distinct keys, join selectivities, times.

`EpochObservation` is the report of one epoch, a frozen value. `StatisticsModel` keeps what follows from all reports: a
mutable object with one owner, which calls `observe` once per epoch. There is no clock in here; a report says when it
was made.

Smoothing is exponential with weight `alpha` for the newest report. Every entry keeps a confidence, 1 - (1-alpha)^n
after n reports, and the time of the last one; an entry that was not reported for `stale_s` seconds is forgotten, and
the defaults apply again: 1,000 tuples/s, an epoch a second, selectivity 0.3 per selection, 100 distinct keys. So an
optimizer without any statistics works too, and its decisions follow the shape of the queries alone.

Joined cardinalities are reported per node of the running plan. Node names change with groups and orders, so what is
learned is not the number but its cause: a factor by which the estimate was wrong, kept per join key, and where keys
depend on each other per set of keys, on top of the factors of its subsets. Every plan that joins the same attributes
benefits, whatever its groups and orders.

The model can be copied and written as JSON, and gives the same answers after that: optimizer runs can be replayed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from optimizer.model.plan import Leaf
from optimizer.statistics.samples import DEFAULT_SELECTIVITY, ROWS, QuerySetSample, Sample, guess

DEFAULT_RATE = 1000.0
DEFAULT_KEYS = 100.0
DEFAULT_PERIOD = 1.0
GUESSED_ROWS = 512

Cause = tuple[str, ...]
"""Join keys by name: one, or several that depend on each other. One after an empty name: not counted by itself, but
concluded from larger joins; what is counted counts more."""


@dataclass(frozen=True, slots=True)
class StreamObservation:
    """Tuples accepted on a stream, and the seconds over which they arrived."""

    tuples: int
    seconds: float


@dataclass(frozen=True, slots=True)
class FoldObservation:
    """What a fold made of its tuples in one epoch: `entries` of equal group, piece of time and query set. `groups`,
    `pieces` and `query_sets`: how many of each, in the task that had most. `by_query`: 1 if query sets were so many
    that every query was folded for itself, 0 if not."""

    tuples: float
    entries: float
    groups: float
    pieces: float
    query_sets: float
    by_query: float = 0.0


_FOLDED = ("tuples", "entries", "groups", "pieces", "query_sets", "by_query")


@dataclass(frozen=True)
class EpochObservation:
    """One epoch's report. Everything but `at` may be missing.

    - `at`: seconds on the caller's clock, never going back.
    - `samples`: per leaf, query sets of sampled tuples over all queries of that leaf, from any group.
    - `keys`: distinct keys among the epoch's tuples per (leaf, key columns in hashing order).
    - `outputs`: per join node (its name) the combinations its result stands for, over `seconds` of `streams`.
    - `folds`: per (node, name of the fold) what was folded there.
    - `period`: seconds since the epoch before.
    - `stage_seconds`: busy seconds per (stage, partition).
    """

    at: float
    streams: Mapping[str, StreamObservation] = field(default_factory=dict)
    samples: Mapping[Leaf, QuerySetSample] = field(default_factory=dict)
    keys: Mapping[tuple[Leaf, tuple[str, ...]], float] = field(default_factory=dict)
    outputs: Mapping[str, float] = field(default_factory=dict)
    folds: Mapping[tuple[str, str], FoldObservation] = field(default_factory=dict)
    stage_seconds: Mapping[tuple[str, int], float] = field(default_factory=dict)
    period: float | None = None


@dataclass(frozen=True, slots=True)
class Smoothed:
    """A smoothed number, how much it can be trusted (0 to 1), and when it was reported last."""

    value: float
    confidence: float
    seen: float

    def plus(self, value: float, alpha: float, at: float) -> Smoothed:
        return Smoothed(self.value + alpha * (value - self.value), self.confidence + alpha * (1 - self.confidence), at)


class StatisticsModel:
    """Mutable; owned by the one object that feeds it.

    Another thread may read meanwhile: every report makes new tables of frozen values and puts them in the place of the
    old ones, which are never changed.
    """

    def __init__(self, alpha: float = 0.3, stale_s: float = 120.0) -> None:
        self.alpha = alpha
        self.stale_s = stale_s
        self.version = 0
        self.at = 0.0
        self._values: dict[tuple[str, ...], Smoothed] = {}
        self._samples: dict[Leaf, tuple[float, Sample]] = {}
        self._joint: Mapping[str, tuple[Cause, ...]] = {}

    # -- writing -------------------------------------------------------------------------------------------------

    def observe(self, report: EpochObservation) -> None:
        self.version += 1
        self.at = max(self.at, report.at)
        self._take_in(_numbers(report))
        samples = dict(self._samples)
        fresh = max(1, round(ROWS * self.alpha))
        for leaf, report_sample in report.samples.items():
            known = samples.get(leaf)
            before = known[1] if known else Sample()
            samples[leaf] = (self.at, before.pushed(report_sample, fresh))
        oldest = self.at - self.stale_s
        self._values = {k: v for k, v in self._values.items() if v.seen >= oldest}
        self._samples = {leaf: s for leaf, s in samples.items() if s[0] >= oldest}
        self._joint = _joint(self._values)

    def learn_ratios(self, ratios: Iterable[tuple[Cause, float]]) -> None:
        """Observed over estimated output, relative to the estimate without the factor of this cause.

        Smoothed as a logarithm, because twice too many and half as many are equally wrong.
        """
        self._take_in((("ratio", *cause), math.log(min(max(ratio, 1e-9), 1e9))) for cause, ratio in ratios)
        self._joint = _joint(self._values)

    def _take_in(self, numbers: Iterable[tuple[tuple[str, ...], float]]) -> None:
        values = dict(self._values)
        for key, value in numbers:
            if math.isfinite(value):
                known = values.get(key)
                values[key] = (
                    Smoothed(value, self.alpha, self.at) if known is None else known.plus(value, self.alpha, self.at)
                )
        self._values = values

    # -- reading -------------------------------------------------------------------------------------------------

    def rate(self, stream: str) -> float:
        """Tuples per second."""
        return self._get(("rate", stream), DEFAULT_RATE)

    def distinct_keys(self, leaf: Leaf, columns: tuple[str, ...]) -> float:
        """Distinct keys among one epoch's tuples.

        A later occurrence of a stream falls back to the first, an unknown composite key to its parts (taken as
        independent, and never more keys than tuples).
        """
        for at in (leaf, Leaf(leaf.stream)):
            counted = self._values.get(("keys", str(at), *columns))
            if counted is not None:
                return max(1.0, counted.value)
        if len(columns) == 1:
            return DEFAULT_KEYS
        product = math.prod(self.distinct_keys(leaf, (c,)) for c in columns)
        return min(product, max(self.tuples(leaf.stream), 1.0))

    def tuples(self, stream: str) -> float:
        """Tuples per epoch: what `distinct_keys` was counted over."""
        return self._get(("tuples", stream), DEFAULT_RATE)

    @property
    def epochs_a_second(self) -> float:
        return 1 / self._get(("period",), DEFAULT_PERIOD)

    def ratio(self, cause: Cause) -> float:
        concluded = self._get(("ratio", "", *cause), 0.0)
        return math.exp(self._get(("ratio", *cause), concluded))

    def knows(self, cause: Cause) -> bool:
        return ("ratio", *cause) in self._values

    def joint(self, keys: Collection[str]) -> float:
        """The factor by which combinations that have all these keys are more than each key by itself says."""
        factor = 1.0
        for key in keys:
            for cause in self._joint.get(key, ()):
                if all(k in keys for k in cause):
                    factor *= self.ratio(cause)
        return factor

    def output(self, node: str) -> float | None:
        """Observed combinations per epoch of a node of the running plan."""
        smoothed = self._values.get(("output", node))
        return None if smoothed is None else smoothed.value

    def fold(self, node: str, fold: str) -> FoldObservation | None:
        """What a fold at a node of the running plan makes of an epoch."""
        values = [self._values.get(("fold", node, fold, what)) for what in _FOLDED]
        return FoldObservation(*(v.value for v in values if v is not None)) if all(values) else None

    def groups(self, fold: str) -> float:
        """Groups a fold has in an epoch, wherever it runs."""
        return self._get(("groups", fold), DEFAULT_KEYS)

    def stage_seconds(self, stage: str) -> Mapping[int, float]:
        return {int(k[2]): v.value for k, v in sorted(self._values.items()) if k[0] == "seconds" and k[1] == stage}

    def rows(self, leaf: Leaf) -> int:
        sample = self._samples.get(leaf)
        return sample[1].rows if sample else GUESSED_ROWS

    def columns(self, leaf: Leaf) -> tuple[Mapping[str, int], int]:
        """The sampled bits of the queries on a leaf by uid, and the number of rows; not to be kept."""
        sample = self._samples.get(leaf)
        return (sample[1].columns, sample[1].rows) if sample else ({}, GUESSED_ROWS)

    def column(self, leaf: Leaf, uid: str, selection: str) -> int:
        """The bits of one query on a leaf; without a sample a guess with the default selectivity."""
        columns, rows = self.columns(leaf)
        known = columns.get(uid)
        return known if known is not None else guess(selection, DEFAULT_SELECTIVITY, rows)

    @property
    def confidence(self) -> float:
        """0 without statistics, towards 1 with every report: the mean confidence of the rates."""
        rates = [v.confidence for k, v in self._values.items() if k[0] == "rate"]
        return sum(rates) / len(rates) if rates else 0.0

    def _get(self, key: tuple[str, ...], default: float) -> float:
        smoothed = self._values.get(key)
        return default if smoothed is None else smoothed.value

    # -- copies --------------------------------------------------------------------------------------------------

    def view(self) -> StatisticsModel:
        """What is known now, for another thread: later reports put other tables in their place, they change none."""
        return copy(self)

    def copy(self) -> StatisticsModel:
        return StatisticsModel.from_json(self.to_json())

    def to_json(self) -> dict[str, Any]:
        return {
            "alpha": self.alpha,
            "stale_s": self.stale_s,
            "version": self.version,
            "at": self.at,
            "values": [[list(k), v.value, v.confidence, v.seen] for k, v in sorted(self._values.items())],
            "samples": [
                [leaf.stream, leaf.occurrence, seen, sample.to_json()]
                for leaf, (seen, sample) in sorted(self._samples.items(), key=lambda s: s[0])
            ],
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> StatisticsModel:
        model = StatisticsModel(data["alpha"], data["stale_s"])
        model.version, model.at = data["version"], data["at"]
        for key, value, confidence, seen in data["values"]:
            model._values[tuple(key)] = Smoothed(value, confidence, seen)
        for stream, occurrence, seen, sample in data["samples"]:
            model._samples[Leaf(stream, occurrence)] = (seen, Sample.from_json(sample))
        model._joint = _joint(model._values)
        return model


def _joint(values: Mapping[tuple[str, ...], Smoothed]) -> dict[str, tuple[Cause, ...]]:
    """The causes of several keys that something is known of, each under its first key."""
    found: dict[str, tuple[Cause, ...]] = {}
    for what, *cause in values:
        if what == "ratio" and len(cause) > 1 and cause[0]:
            found[cause[0]] = (*found.get(cause[0], ()), tuple(cause))
    return found


def _numbers(report: EpochObservation) -> Iterator[tuple[tuple[str, ...], float]]:
    """Everything in a report that is one number, with its name in the model."""
    for stream, s in report.streams.items():
        if s.seconds > 0:
            yield ("rate", stream), s.tuples / s.seconds
            yield ("tuples", stream), float(s.tuples)
    for (leaf, columns), distinct in report.keys.items():
        yield ("keys", str(leaf), *columns), float(distinct)
    for name, rows in report.outputs.items():
        yield ("output", name), float(rows)
    for (node, fold), folded in report.folds.items():
        for what in _FOLDED:
            yield ("fold", node, fold, what), float(getattr(folded, what))
    for fold in {fold for _, fold in report.folds}:
        yield ("groups", fold), max(f.groups for (_, name), f in report.folds.items() if name == fold)
    for (stage, partition), seconds in report.stage_seconds.items():
        yield ("seconds", stage, str(partition)), seconds
    if report.period:
        yield ("period",), report.period
