"""Source 'generator': an endless stream made up from a seed, for demos, tests and measurements.

Tuple i is a pure function of (seed, stream name, i): see distributions.py. So a range of offsets can be read
again, in other pieces, in another process or after a crash, and brings the same tuples; nothing has to be
stored.

An offset is {"n": tuples before it, "t0": processing time of the first plan}. With a `rate`, tuple i is due
at t0 + i / rate; t0 travels in the offset because it comes from the clock, and a restart must not ask the
clock again. At most `batch` tuples are read per epoch: after a pause the stream catches up in steps of that
size.

Event time of tuple i: start_ms + i / event_rate, then moved back by a uniform 0..disorder_ms, and with
probability `late_fraction` by another late_ms. It is therefore never above the orderly time and at most
disorder_ms + late_ms below it; with a watermark delay of disorder_ms only those can be late.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pyarrow as pa

from optimizer.model.types import StreamSchema
from runtime.connectors.base import ARROW_TYPES, Loaded, Offset, Read, Source, arrow_schema, seek_number
from runtime.connectors.column_spec import DEFAULTS, parse
from runtime.connectors.distributions import I64, Distribution, below, derive_key, unit
from runtime.connectors.options import Option, Settings, bad_option, nearest

OPTIONS = (
    Option("rate", "tuples per second of processing time; 0 or max: as fast as possible (default 1000)"),
    Option("seed", "any whole number (default 0)"),
    Option("start_ms", "event time of tuple 0 in ms, or now: when the stream is first read (default 0)"),
    Option("event_rate", "tuples per second of event time (default: rate, or 1000)"),
    Option("disorder_ms", "each tuple is moved back in event time by a random 0 to this many ms (default 0)"),
    Option("late_fraction", "share of tuples that are moved back by late_ms (default 0)"),
    Option("late_ms", "how far those are moved back"),
    Option("limit", "the stream ends after so many tuples (default: never)"),
    Option("partitions", "parallel reads per epoch (default 1)"),
    Option("batch", "most tuples per epoch (default 200000)"),
    Option("column.", "what a column holds, e.g. column.userID = zipf(10000,1.1)"),
)

_LARGEST = 2**53


@dataclass(frozen=True, slots=True)
class GeneratorConfig:
    """`rate` None: as fast as possible; `start_ms` None: the time of the first plan; `columns`: as given."""

    rate: Fraction | None
    seed: int
    start_ms: int | None
    event_rate: Fraction
    disorder_ms: int
    late_fraction: float
    late_ms: int
    limit: int | None
    partitions: int
    batch: int
    columns: tuple[tuple[str, Distribution], ...]


def parse_config(options: Mapping[str, str], schema: StreamSchema | None) -> GeneratorConfig:
    """Without a schema the `column.` options are not looked at."""
    s = Settings("generator", options)
    rate = None if s.text("rate", "") in ("0", "max") else _rate(s, "rate", Fraction(1000))
    late_fraction = s.number("late_fraction", 0.0, 0.0, 1.0)
    if late_fraction > 0 and not s.given("late_ms"):
        raise bad_option("connector generator has late_fraction but no late_ms", "give both, or none")
    return GeneratorConfig(
        rate=rate,
        seed=s.integer("seed", 0, -(2**63), 2**63 - 1),
        start_ms=None if s.text("start_ms", "0") == "now" else s.integer("start_ms", 0, -_LARGEST, _LARGEST),
        event_rate=_rate(s, "event_rate", rate or Fraction(1000)),
        disorder_ms=s.integer("disorder_ms", 0, 0, 2**40),
        late_fraction=late_fraction,
        late_ms=s.integer("late_ms", 0, 0, 2**40),
        limit=s.integer("limit", 0, 0, _LARGEST) if s.given("limit") else None,
        partitions=s.integer("partitions", 1, 1, 1024),
        batch=s.integer("batch", 200_000, 1, 100_000_000),
        columns=_columns(s, schema) if schema is not None else (),
    )


def _rate(s: Settings, name: str, default: Fraction) -> Fraction:
    if not s.given(name):
        return default
    # Small denominators keep i * 1000 * denominator inside 64 bits for 10^12 tuples and more.
    value = Fraction(s.number(name, 0.0, 0.001, 1e9)).limit_denominator(1000)
    return value or Fraction(1, 1000)


def _columns(s: Settings, schema: StreamSchema) -> tuple[tuple[str, Distribution], ...]:
    columns: list[tuple[str, Distribution]] = []
    for name, text in s.family("column.").items():
        column = schema.column(name)
        if column is None:
            raise bad_option(
                f"option column.{name}: stream {schema.name} has no column {name!r}",
                nearest(name, (c.name for c in schema.columns if c.name != schema.time)),
            )
        if name == schema.time:
            raise bad_option(
                f"option column.{name}: this is the event time of {schema.name}, it follows the offset",
                "use start_ms, event_rate, disorder_ms and late_ms",
            )
        try:
            columns.append((name, parse(text, column.type)))
        except ValueError as why:
            raise bad_option(f"option column.{name} is {text!r}", str(why)) from why
    return tuple(sorted(columns, key=lambda f: f[0]))


class GeneratorSource(Source):
    """Stateless: everything is in the configuration and the offsets."""

    unit = "tuples"

    def __init__(self, config: GeneratorConfig) -> None:
        self._config = config

    def initial(self) -> Offset:
        return {"n": 0, "t0": None}

    def latest(self, start: Offset, now_ms: int) -> Offset:
        n = int(start["n"])
        t0 = now_ms if start["t0"] is None else int(start["t0"])
        end = min(n + self._config.batch, self._due(start, now_ms))
        return {"n": end, "t0": t0} if end > n else start

    def backlog(self, start: Offset, now_ms: int) -> int:
        """A stream without a rate is read as fast as possible: its tuples are due when they are read."""
        if self._config.rate is None:
            return 0
        return max(0, self._due(start, now_ms) - int(start["n"]) - self._config.batch)

    def _due(self, start: Offset, now_ms: int) -> int:
        """How many tuples of the stream may have been read by now."""
        c, n = self._config, int(start["n"])
        due = n + c.batch
        if c.rate is not None:
            t0 = now_ms if start["t0"] is None else int(start["t0"])
            # Tuple 0 is due at once, so the very first plan already moves the offset and t0 gets recorded.
            due = max(n, int(max(0, now_ms - t0) * c.rate / 1000) + 1)
        return due if c.limit is None else min(due, c.limit)

    def seek(self, where: str, stands: Offset, now_ms: int) -> Offset:
        """The time of the first plan stays: the same offset means the same tuples."""
        latest = int(stands["n"]) if self._config.rate is None else self._due(stands, now_ms)
        return {"n": seek_number(where, 0, latest, "tuples"), "t0": stands["t0"]}

    def reads(self, start: Offset, end: Offset) -> Sequence[Read]:
        first, last = int(start["n"]), int(end["n"])
        start_ms = self._config.start_ms if self._config.start_ms is not None else int(end["t0"] or 0)
        pieces = min(self._config.partitions, last - first)
        edges = [first + (last - first) * i // pieces for i in range(pieces + 1)] if pieces > 0 else []
        return [GeneratorRead(self._config, start_ms, a, b, self._due_ms(end, a)) for a, b in pairwise(edges)]

    def _due_ms(self, end: Offset, n: int) -> int | None:
        """When tuple n was due; None: whenever it is read."""
        rate = self._config.rate
        return None if rate is None else int(end["t0"] or 0) + int(n * 1000 / rate)


@dataclass(frozen=True, slots=True)
class GeneratorRead:
    """Tuples [first, last), of which the first was due at `due_ms`."""

    config: GeneratorConfig
    start_ms: int
    first: int
    last: int
    due_ms: int | None = None

    @property
    def place(self) -> str:
        return f"tuples {self.first} to {self.last - 1}"

    def load(self, schema: StreamSchema) -> Loaded:
        given = dict(self.config.columns)
        times = self.event_times(schema.name)
        arrays: list[pa.Array] = []
        for column in schema.columns:
            spec = given.get(column.name) or DEFAULTS.get(column.type)
            if column.name == schema.time or spec is None:
                arrays.append(pa.array(times).cast(ARROW_TYPES[column.type]))
            else:
                key = derive_key(self.config.seed, schema.name, "column", column.name)
                arrays.append(spec.draw(key, self.first, self.last, column.type))
        return Loaded(pa.Table.from_arrays(arrays, schema=arrow_schema(schema)), arrived_ms=self.due_ms)

    def event_times(self, stream: str) -> I64:
        c, a, b = self.config, self.first, self.last
        step = 1000 / c.event_rate
        times = np.arange(a, b, dtype=np.int64) * step.numerator // step.denominator + self.start_ms
        if c.disorder_ms:
            times -= below(derive_key(c.seed, stream, "disorder"), a, b, c.disorder_ms + 1)
        if c.late_fraction:
            times -= (unit(derive_key(c.seed, stream, "late"), a, b) < c.late_fraction) * np.int64(c.late_ms)
        return np.asarray(times, dtype=np.int64)
