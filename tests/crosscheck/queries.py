"""Random join queries as text, twice: for the platform, and for DuckDB over the tuples of one window.

Names are written in every way docs/sql.md allows (with and without alias, in the wrong case, in quotes), equalities
stand in ON, in USING or in WHERE, and conditions are those of `texts.py`, over one source or over several. So the
binder's work is all in it: what is a join key, what selects tuples, what filters joined rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from optimizer.model.types import ColumnType as T
from tests.crosscheck.texts import Expressions
from tests.crosscheck.written import AND, NUMBERS, Text, same

STREAMS: Mapping[str, Mapping[str, T]] = {
    "A": {"k": T.BIGINT, "i": T.INT, "d": T.DOUBLE, "s": T.STRING, "b": T.BOOLEAN, "u": T.TIMESTAMP, "ts": T.TIMESTAMP},
    "B": {"k": T.BIGINT, "j": T.INT, "d": T.DOUBLE, "t": T.STRING, "ts": T.TIMESTAMP},
    "C": {"k": T.INT, "e": T.DOUBLE, "my text": T.STRING, "flag": T.BOOLEAN, "ts": T.TIMESTAMP},
}
TICK = 100


@dataclass(frozen=True, slots=True)
class Query:
    """`theirs` has the words window_start and window_end where the bounds of the window belong; `outputs` names its
    columns. `size` and `advance` of the window are in milliseconds."""

    ours: str
    theirs: str
    outputs: tuple[str, ...]
    size: int
    advance: int
    counts: bool


class Draw:
    """One query in the making: its sources, and all columns as they may be written."""

    def __init__(self, rng: Random, ways: int | None = None) -> None:
        self.rng = rng
        streams = [rng.choice(list(STREAMS)) for _ in range(ways or rng.choice((2, 2, 3, 3, 4)))]
        self.sources = dict(zip("xyzw", streams, strict=False))
        names = [c for stream in streams for c in STREAMS[stream]]
        self.columns = {
            alias: {self._written(alias, c, names.count(c) == 1): t for c, t in STREAMS[stream].items()}
            for alias, stream in self.sources.items()
        }

    def _written(self, alias: str, column: str, only: bool) -> str:
        rng = self.rng
        name = f'"{column}"' if " " in column or rng.random() < 0.1 else column
        if name == column and rng.random() < 0.1:
            name = name.upper()
        if only and rng.random() < 0.4:
            return name
        return f"{alias.upper() if rng.random() < 0.1 else alias}.{name}"

    # -- FROM and WHERE ---------------------------------------------------------------------------------------

    def clauses(self) -> Text:
        """From FROM to the end of WHERE."""
        rng = self.rng
        aliases = list(self.sources)
        parts: list[Text] = [self._source(aliases[0])]
        where: list[Text] = []
        commas = rng.random() < 0.35
        for i, alias in enumerate(aliases[1:], 1):
            other = aliases[rng.randrange(i)]
            source, keys = self._source(alias), [self._equality(other, alias)]
            if rng.random() < 0.25:
                keys.append(self._equality(aliases[rng.randrange(i)], alias))
            if commas:
                parts.append(around(", ", source, ""))
                where += keys
            elif i == 1 and {self.sources[other], self.sources[alias]} <= {"A", "B"} and rng.random() < 0.3:
                parts.append(around(" JOIN ", source, " USING (k)"))
            else:
                parts.append(around(" JOIN ", joined(" ON ", [source, joined(" AND ", keys)]), ""))
        where += self._conditions()
        rng.shuffle(where)
        text = joined("", parts)
        return text if not where else joined(" WHERE ", [text, joined(" AND ", where)])

    def _source(self, alias: str) -> Text:
        stream = self.sources[alias]
        name = stream if self.rng.random() < 0.8 else stream.lower()
        return same(f"{name} {self.rng.choice(('AS ', ''))}{alias}", T.BOOLEAN)

    def _equality(self, left: str, right: str) -> Text:
        pairs = [
            (a, b, T.DOUBLE in (ta, tb))
            for a, ta in self.columns[left].items()
            for b, tb in self.columns[right].items()
            if (ta is tb and ta not in (T.BOOLEAN, T.TIMESTAMP)) or (ta in NUMBERS and tb in NUMBERS)
        ]
        a, b, doubles = self.rng.choice(pairs)
        ours = f"{a} = {b}" if self.rng.random() < 0.5 else f"{b} = {a}"
        return Text(ours, f"eq({a}, {b})" if doubles else ours, T.BOOLEAN)

    def _conditions(self) -> list[Text]:
        rng = self.rng
        found = []
        for alias in self.sources:
            if rng.random() < 0.25:
                found.append(Expressions(rng, self.columns[alias]).condition(2))
        if rng.random() < 0.3:
            found.append(Expressions(rng, self.every()).condition(2))
        return [self._lenient(c).within(AND + 1) for c in found]

    def _lenient(self, condition: Text) -> Text:
        """Most of what is drawn at random is FALSE, and a query without rows shows little."""
        if self.rng.random() < 0.3:
            return condition
        column = self.rng.choice(list(self.every()))
        return around("(", condition, f" OR {column} IS NOT NULL)")

    def every(self) -> dict[str, T]:
        return {c: t for own in self.columns.values() for c, t in own.items()}

    # -- SELECT -------------------------------------------------------------------------------------------------

    def items(self, star: bool) -> tuple[Text, list[str]]:
        """What is selected, and the names of these columns. `star`: may it be `*`?"""
        rng = self.rng
        if star and rng.random() < 0.3:
            return same("*", T.BOOLEAN), [f"{a}.{c}" for a, s in self.sources.items() for c in STREAMS[s]]
        items: list[Text] = []
        names: list[str] = []
        if rng.random() < 0.2:
            alias = rng.choice(list(self.sources))
            items.append(same(f"{alias}.*", T.BOOLEAN))
            names += [f"{alias}.{c}" for c in STREAMS[self.sources[alias]]]
        draw = Expressions(rng, self.every() | {"window_start": T.TIMESTAMP, "window_end": T.TIMESTAMP})
        for i in range(rng.randint(1, 4)):
            items.append(around("", draw.any(2), f" AS y{i}"))
            names.append(f"y{i}")
        return joined(", ", items), names


def make_query(rng: Random) -> Query:
    draw = Draw(rng)
    clauses = draw.clauses()
    size = TICK * rng.randint(2, 15)
    advance = rng.choice((size, size, TICK * rng.randint(2, 18)))
    window = f"TUMBLING (SIZE {size} MS)" if size == advance else f"HOPPING (SIZE {size} MS, ADVANCE BY {advance} MS)"
    counts = rng.random() < 0.15
    items, names = (same("COUNT(*)", T.BIGINT), ["count"]) if counts else draw.items(" USING " not in clauses.ours)
    emit = "" if counts else rng.choice(("", "", " EMIT ROWS", " EMIT FACTORIZED"))
    return Query(
        f"SELECT {items.ours} FROM {clauses.ours} WINDOW {window}{emit}",
        f"SELECT {items.theirs} FROM {clauses.theirs}",
        tuple(names),
        size,
        advance,
        counts,
    )


def joined(by: str, texts: list[Text]) -> Text:
    return Text(by.join(t.ours for t in texts), by.join(t.theirs for t in texts), T.BOOLEAN)


def around(before: str, text: Text, after: str) -> Text:
    return Text(f"{before}{text.ours}{after}", f"{before}{text.theirs}{after}", text.type)
