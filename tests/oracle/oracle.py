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

Queries that fold. What they deliver depends on when their windows close, which is known exactly, also for a query
that is deleted later (`folds.py`): their `rows` carry their revision, and nothing is optional. At the end watermarks go
to infinity, as in `ajoin replay`, unless `flush` is False. Nothing is optional for a query without a window either: its
rows come in the epochs of their tuples. EMIT FACTORIZED changes no row.

`force`, `scale`, `optimize` and `restart` lines never change a row: here they do not exist.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from optimizer.errors import AJoinError, AlreadyExists, InvalidRequest, NotFound
from optimizer.model.expressions import aggregates_of
from optimizer.model.query import Query
from optimizer.model.types import Column, ColumnType, StreamSchema
from optimizer.model.windows import FixedWindow, PeriodicWindow, Unwindowed
from tests.oracle.decode import DeadLetter, decode
from tests.oracle.folds import fold_rows
from tests.oracle.join import windowed_join
from tests.oracle.rows import ResultRow
from tests.oracle.scenario import Epoch, Line, epochs_of
from tests.oracle.windows import Tuple

Parser = Callable[[str, Mapping[str, StreamSchema]], Query]


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
    folds: bool = False
    """Are these rows of groups, frozen with their revision?"""
    approximate: frozenset[str] = frozenset()
    """Names of columns whose values are estimates; the oracle's are exact."""


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


def run_oracle(
    scenario: Sequence[Line], base_dir: Path | None = None, parse: Parser | None = None, flush: bool = True
) -> Expected:
    """`parse` turns SQL into a bound query; by default the product's own front end. `flush`: does the end of the
    scenario close all windows that can close?"""
    world = _World(parse or _product_parser())
    for number, epoch in enumerate(epochs_of(scenario, base_dir), 1):
        world.run(number, epoch)
    return Expected(
        queries={life.id: world.expected(life, flush) for life in world.queries.values()},
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
            self.accepted.append(Tuple(epoch, time, row, arrival=len(self.accepted)))

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
    query: Query
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
        self.queries[id] = _Life(id, query, None if greatest is None else _first_seen(query, greatest + 1))

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

    def expected(self, life: _Life, flush: bool) -> ExpectedQuery:
        seen = {name: _before(s.accepted, life.deleted_before) for name, s in self.streams.items()}
        state = "RUNNING" if life.deleted_before is None else "DELETED"
        about = (life.id, life.query.sql, state, life.active_from, life.active_until)
        if life.query.folds:
            flushed = flush and state == "RUNNING"
            folded = fold_rows(life.query, seen, life.active_from, life.watermarks, flushed)
            return ExpectedQuery(*about, folded, Counter(), folds=True, approximate=_approximate(life.query))
        rows = windowed_join(life.query, seen, life.active_from)
        optional: Counter[ResultRow] = Counter()
        if life.deleted_before is not None and not isinstance(life.query.window, Unwindowed):
            until = life.active_until
            optional = Counter({r: n for r, n in rows.items() if until is None or (r[1] is not None and r[1] > until)})
            rows -= optional
        return ExpectedQuery(*about, rows, optional)


def _first_seen(query: Query, after: int) -> int:
    """`active_from` of a query before whose creation all times below `after` may have been accepted, and none since."""
    window = query.window
    if isinstance(window, PeriodicWindow):
        # The first window start from there on: try the multiples of the advance.
        start = (after - 1) // window.advance_ms * window.advance_ms
        while start < after:
            start += window.advance_ms
        return start
    if isinstance(window, FixedWindow):
        if window.start_ms < after:
            raise InvalidRequest(
                f"the window begins at {window.start_ms}, but tuples up to {after - 1} were accepted already",
                reason="WINDOW_IN_PAST",
            )
        return window.start_ms
    return after


def _approximate(query: Query) -> frozenset[str]:
    return frozenset(
        o.name for o in query.outputs if any(a.function == "APPROX_COUNT_DISTINCT" for a in aggregates_of(o.expr))
    )


def _before(tuples: Sequence[Tuple], epoch: int | None) -> list[Tuple]:
    return [t for t in tuples if epoch is None or t.epoch < epoch]
