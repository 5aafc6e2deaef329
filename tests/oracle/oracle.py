"""What the platform owes its users for a scenario: the meaning of a query, as slowly as possible.

The oracle keeps the accepted tuples of every stream in a list and answers each query at the end, alone, by
nested loops over that list (`join.py`). Time is the only subtle part, and it lives here:

    epoch e:   |-- controls, in order --|-- tuples, one by one --|-- end --|
                 create: T = 1 + max       late? judged by the     watermark = max of itself,
                 accepted so far           watermark epoch e-1     (max accepted - delay) and the
                 delete: until = minimum   left behind             explicit ones of this epoch
                 of the watermarks

Deletion. A deleted query owes the rows of every window with end <= active_until, made from the tuples that
had arrived by then (`rows`). Rows of later windows made from those same tuples may have been delivered
(`optional`); anything else may not. With no watermark on one of its streams it owes nothing.

COUNT(*). What such a query delivers depends on when its windows close, which is known exactly, also for a query
that is deleted later (`counts.py`): its `rows` carry their revision, and nothing is optional. It is taken for
granted that watermarks go to infinity at the end, as in `ajoin replay`. EMIT FACTORIZED changes no row.

`force`, `scale`, `optimize` and `restart` lines never change a row: here they do not exist.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from optimizer.errors import AJoinError, AlreadyExists, NotFound
from optimizer.model.query import JoinQuery
from optimizer.model.types import Column, ColumnType, StreamSchema
from tests.oracle.counts import count_rows
from tests.oracle.decode import DeadLetter, decode
from tests.oracle.join import Tuple, arrivals, windowed_join
from tests.oracle.rows import ResultRow
from tests.oracle.scenario import Epoch, Line, epochs_of

Parser = Callable[[str, Mapping[str, StreamSchema]], JoinQuery]


@dataclass(frozen=True, slots=True)
class ExpectedQuery:
    """`rows` must be delivered, each exactly as often as counted; `optional` may be, at most as often."""

    id: str
    sql: str
    state: str
    active_from: int | None
    active_until: int | None
    rows: Counter[ResultRow]
    optional: Counter[ResultRow]
    counts: bool = False
    """Are these rows of a COUNT(*) query, frozen with their revision?"""


@dataclass(frozen=True, slots=True)
class ExpectedStream:
    tuples: int
    late_dropped: int
    dead_letter: int


@dataclass(frozen=True, slots=True)
class Expected:
    """`errors`: line number and reason of every line that was expected to fail and did."""

    queries: Mapping[str, ExpectedQuery]
    streams: Mapping[str, ExpectedStream]
    errors: tuple[tuple[int, str], ...] = ()


def run_oracle(scenario: Sequence[Line], base_dir: Path | None = None, parse: Parser | None = None) -> Expected:
    """`parse` turns SQL into a bound query; by default the product's own front end."""
    world = _World(parse or _product_parser())
    for number, epoch in enumerate(epochs_of(scenario, base_dir), 1):
        world.run(number, epoch)
    return Expected(
        queries={life.id: world.expected(life) for life in world.queries.values()},
        streams={n: ExpectedStream(len(s.accepted), s.late, s.dead) for n, s in world.streams.items()},
        errors=tuple(world.errors),
    )


def _product_parser() -> Parser:
    from ajoin.sql import parse_query

    return parse_query


@dataclass(slots=True)
class _Stream:
    schema: StreamSchema
    now: int = 0
    """The clock, which stands still."""
    accepted: list[Tuple] = field(default_factory=list)
    watermark: int | None = None
    late: int = 0
    dead: int = 0

    @property
    def max_accepted(self) -> int | None:
        return max((t.time for t in self.accepted), default=None)

    def ingest(self, epoch: int, raw: object) -> None:
        """`watermark` does not move before `end`, so it still is what the previous epoch left."""
        try:
            row = decode(raw, self.schema)
        except DeadLetter:
            self.dead += 1
            return
        time = row[self.schema.time]
        if self.schema.max_ahead_ms is not None and time > self.now + self.schema.max_ahead_ms:
            self.dead += 1
        elif self.watermark is not None and time < self.watermark - self.schema.allowed_lateness_ms:
            self.late += 1
        else:
            self.accepted.append(Tuple(epoch, time, row))

    def end(self, explicit: Sequence[int]) -> None:
        candidates = list(explicit)
        if self.watermark is not None:
            candidates.append(self.watermark)
        if self.max_accepted is not None:
            candidates.append(self.max_accepted - self.schema.watermark_delay_ms)
        self.watermark = max(candidates, default=None)


@dataclass(slots=True)
class _Life:
    id: str
    query: JoinQuery
    active_from: int | None
    active_until: int | None = None
    deleted_before: int | None = None
    """The first epoch that runs without the query; None while it is running."""
    watermarks: dict[int, int | None] = field(default_factory=dict)
    """As every epoch it took part in left it."""


class _World:
    def __init__(self, parse: Parser) -> None:
        self.parse = parse
        self.streams: dict[str, _Stream] = {}
        self.queries: dict[str, _Life] = {}
        self.errors: list[tuple[int, str]] = []

    def run(self, number: int, epoch: Epoch) -> None:
        for line_number, line in epoch.controls:
            try:
                self._control(number, line)
            except AJoinError as error:
                if not line.get("expect_error"):
                    raise
                self.errors.append((line_number, error.reason))
        for stream, raw in epoch.tuples:
            self._stream(stream).ingest(number, raw)
        for stream, _ in epoch.watermarks:
            self._stream(stream)
        for name, state in self.streams.items():
            state.end([ts for stream, ts in epoch.watermarks if stream == name])
        for life in self.queries.values():
            if life.deleted_before is None:
                life.watermarks[number] = self._watermark(life)

    def _control(self, epoch: int, line: Line) -> None:
        if "stream" in line:
            self._declare(line)
        elif "create" in line:
            self._create(line["create"], line["sql"])
        elif "delete" in line:
            self._delete(line["delete"], epoch)

    def _declare(self, line: Line) -> None:
        if line["stream"] in self.streams:
            raise AlreadyExists(f"stream {line['stream']} exists", reason="STREAM_EXISTS")
        schema = StreamSchema(
            name=line["stream"],
            columns=tuple(Column(name, ColumnType(type_)) for name, type_ in line["schema"].items()),
            time=line["time"],
            watermark_delay_ms=line.get("watermark_delay_ms", 0),
            allowed_lateness_ms=line.get("allowed_lateness_ms", 0),
            max_ahead_ms=line.get("max_ahead_ms"),
        )
        self.streams[schema.name] = _Stream(schema)

    def _create(self, id: str, sql: str) -> None:
        if id in self.queries:
            raise AlreadyExists(f"query {id} exists or existed; the oracle tells queries apart by id")
        query = self.parse(sql, {name: s.schema for name, s in self.streams.items()})
        seen = [self.streams[s].max_accepted for s in query.streams]
        greatest = max((t for t in seen if t is not None), default=None)
        active_from = None
        if greatest is not None:
            # The first window start at or after T = greatest + 1: try the multiples of the advance.
            advance = query.window.advance_ms
            active_from = greatest // advance * advance
            while active_from < greatest + 1:
                active_from += advance
        self.queries[id] = _Life(id, query, active_from)

    def _delete(self, id: str, epoch: int) -> None:
        life = self.queries.get(id)
        if life is None or life.deleted_before is not None:
            raise NotFound(f"query {id} is not running", reason="QUERY_NOT_FOUND")
        life.active_until = self._watermark(life)
        life.deleted_before = epoch

    def _watermark(self, life: _Life) -> int | None:
        watermarks = [self.streams[s].watermark for s in life.query.streams]
        return None if None in watermarks else min(w for w in watermarks if w is not None)

    def _stream(self, name: str) -> _Stream:
        if name not in self.streams:
            raise NotFound(f"stream {name} is not declared", reason="STREAM_NOT_FOUND")
        return self.streams[name]

    def expected(self, life: _Life) -> ExpectedQuery:
        seen = {name: _before(s.accepted, life.deleted_before) for name, s in self.streams.items()}
        state = "RUNNING" if life.deleted_before is None else "DELETED"
        about = (life.id, life.query.sql, state, life.active_from, life.active_until)
        if life.query.counts:
            found = arrivals(life.query, seen, life.active_from)
            counted = count_rows(life.query, found, life.watermarks, flushed=state == "RUNNING")
            return ExpectedQuery(*about, counted, Counter(), counts=True)
        rows = windowed_join(life.query, seen, life.active_from)
        optional: Counter[ResultRow] = Counter()
        if life.deleted_before is not None:
            until = life.active_until
            optional = Counter({r: n for r, n in rows.items() if until is None or r[1] > until})
            rows -= optional
        return ExpectedQuery(*about, rows, optional)


def _before(tuples: Sequence[Tuple], epoch: int | None) -> list[Tuple]:
    return [t for t in tuples if epoch is None or t.epoch < epoch]
