"""Random join queries as SQL text, together with what the generator must know about them.

A query is drawn as a join graph (sources, equalities), a window, conditions and a SELECT list, and then
written in one of the two FROM styles. The graph is kept, because forced join orders need it and so does the
bound on rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.lives.bound import Edge, rows_at_most
from tests.lives.draw import chance, pick, weighted
from tests.lives.predicates import NUMBERS, output, residual, selection
from tests.lives.profile import Profile
from tests.lives.streams import Event, Stream, World

UNITS = ((1, "MILLISECONDS"), (1000, "SECONDS"))


@dataclass(frozen=True, slots=True)
class Query:
    """`sources` maps alias to stream, in FROM order; `rows` is an upper bound."""

    sql: str
    sources: Mapping[str, str]
    edges: tuple[Edge, ...]
    rows: int


def make_query(
    rng: Random,
    profile: Profile,
    world: World,
    streams: Mapping[str, Stream],
    events: Mapping[str, Sequence[Event]],
    rows: int,
    rest: float = 1.0,
) -> Query | None:
    """A query with at most `rows` rows, or None when a few attempts found none.

    `rest` is the part of the life's time that the query will see; its windows are made to fit into it.
    """
    times = {s.name: s.time for s in streams.values()}
    ways = weighted(rng, profile.ways)
    for attempt in range(6):
        sources = joined_sources(rng, list(streams), ways)
        if profile.one_key and chance(rng, profile.one_key):
            edges = edges_on_one_key(rng, streams, sources)
        else:
            edges = join_edges(rng, streams, sources, composite=0.2 + 0.15 * attempt)
        size, advance = periodic_window(rng, world, rest / (1 + attempt))
        bound = rows_at_most(sources, edges, size, advance, events, times)
        if bound <= rows:
            sql = _sql(rng, profile, world, streams, sources, edges, window_clause(size, advance))
            return Query(sql, sources, tuple(edges), bound)
        if attempt > 2:
            ways = max(2, profile.ways[0][0], ways - 1)
    return None


def forced_order(rng: Random, query: Query) -> Any:
    """A random binary tree over the aliases in which every subtree is connected."""
    trees: list[tuple[Any, frozenset[str]]] = [(a, frozenset([a])) for a in query.sources]
    while len(trees) > 1:
        left, right = pick(rng, [(x, y) for x in trees for y in trees if x is not y and _linked(query, x[1], y[1])])
        trees = [t for t in trees if t is not left and t is not right]
        trees.append(([left[0], right[0]], left[1] | right[1]))
    return trees[0][0]


def _linked(query: Query, left: frozenset[str], right: frozenset[str]) -> bool:
    return any((a in left and b in right) or (a in right and b in left) for a, _, b, _ in query.edges)


def joined_sources(rng: Random, streams: list[str], ways: int) -> dict[str, str]:
    """Aliases in a connected order. Mostly different streams; a stream used twice needs two aliases."""
    chosen: list[str] = []
    for _ in range(ways):
        fresh = [s for s in streams if s not in chosen]
        chosen.append(pick(rng, streams if not fresh or chance(rng, 0.15) else fresh))
    bare = chance(rng, 0.4)
    return {stream if bare and chosen.count(stream) == 1 else "abcdefgh"[i]: stream for i, stream in enumerate(chosen)}


def join_edges(rng: Random, streams: Mapping[str, Stream], sources: Mapping[str, str], composite: float) -> list[Edge]:
    aliases = list(sources)
    shape = weighted(rng, (("chain", 4), ("star", 2), ("any", 3)))
    edges: list[Edge] = []

    def connect(alias: str, other: str, *, flags: bool = False) -> None:
        pairs = _joinable(streams[sources[other]], streams[sources[alias]], flags)
        left, right = pick(rng, pairs)
        new = (other, left, alias, right)
        if new not in edges:
            edges.append(new)

    for i in range(1, len(aliases)):
        at = {"chain": i - 1, "star": 0, "any": rng.randrange(i)}[shape]
        connect(aliases[i], aliases[at])
        if chance(rng, composite):
            connect(aliases[i], aliases[at], flags=True)
    if len(aliases) > 2 and chance(rng, 0.25):
        first, second = sorted(rng.sample(range(len(aliases)), 2))
        connect(aliases[second], aliases[first])
    return edges


def edges_on_one_key(rng: Random, streams: Mapping[str, Stream], sources: Mapping[str, str]) -> list[Edge]:
    """Every source is joined with some earlier one, always on the same column or columns."""
    aliases = list(sources)
    times = {streams[s].time for s in sources.values()}
    common = [c for c in streams[sources[aliases[0]]].columns if all(c in streams[s].columns for s in sources.values())]
    keys = [c for c in common if c not in times and c != "b"]
    chosen = ["k"] if chance(rng, 0.6) else rng.sample(keys, min(len(keys), rng.randint(1, 2)))
    pairs = [(aliases[i], aliases[rng.randrange(i)]) for i in range(1, len(aliases))]
    return [(other, column, alias, column) for alias, other in pairs for column in chosen]


def _joinable(left: Stream, right: Stream, flags: bool) -> list[tuple[str, str]]:
    """Column pairs that can be compared, equal names first; booleans only in addition to a better key."""
    same, other = [], []
    for a, ta in left.columns.items():
        for b, tb in right.columns.items():
            if a == left.time or b == right.time or (ta == "BOOLEAN" and not flags):
                continue
            if a == b:
                same.append((a, b))
            elif ta == tb or (ta in NUMBERS and tb in NUMBERS):
                other.append((a, b))
    return same * 2 + other


def periodic_window(rng: Random, world: World, rest: float) -> tuple[int, int]:
    """(size, advance) in milliseconds: size comparable to the time there is, advance below, at or above."""
    most = max(4, int(world.span * rest * 0.7))
    size = rng.randint(max(2, most // 4), most)
    kind = weighted(rng, (("tumbling", 5), ("overlap", 4), ("gap", 1), ("steps", 2)))
    advance = {
        "tumbling": size,
        "overlap": rng.randint(max(1, size // 5), size),
        "gap": size + rng.randint(1, 1 + size // 3),
        "steps": max(1, size // rng.randint(2, 4)),
    }[kind]
    if world.tick > 1 and chance(rng, 0.15):
        return size * world.tick - rng.randrange(world.tick), advance * world.tick
    return size * world.tick, advance * world.tick


def length(ms: int) -> str:
    scale, unit = [u for u in UNITS if ms % u[0] == 0][-1]
    return f"{ms // scale} {unit}"


def window_clause(size: int, advance: int) -> str:
    if size == advance:
        return f"WINDOW TUMBLING (SIZE {length(size)})"
    return f"WINDOW HOPPING (SIZE {length(size)}, ADVANCE BY {length(advance)})"


def _sql(
    rng: Random,
    profile: Profile,
    world: World,
    streams: Mapping[str, Stream],
    sources: Mapping[str, str],
    edges: Sequence[Edge],
    window: str,
) -> str:
    columns = written_columns(streams, sources)
    clauses = join_clauses(rng, profile, world, columns, sources, edges)
    if chance(rng, profile.counted):
        return f"SELECT {_count(rng)} FROM {clauses} {window}"
    emit = " EMIT FACTORIZED" if chance(rng, profile.factorized) else ""
    return f"SELECT {select_list(rng, columns)} FROM {clauses} {window}{emit}"


def written_columns(streams: Mapping[str, Stream], sources: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Per alias: the text of each of its columns to its type."""
    return {a: {f"{a}.{c}": t for c, t in streams[s].columns.items()} for a, s in sources.items()}


def join_clauses(
    rng: Random,
    profile: Profile,
    world: World,
    columns: Mapping[str, Mapping[str, str]],
    sources: Mapping[str, str],
    edges: Sequence[Edge],
) -> str:
    """What stands between FROM and WINDOW."""
    conditions = [selection(rng, world, columns[a]) for a in sources if chance(rng, profile.selective)]
    if chance(rng, 0.5 * profile.selective):
        left, right = rng.sample(list(sources), 2)
        extra = residual(rng, world, columns[left], columns[right])
        conditions += [extra] if extra else []
    if chance(rng, 0.03):
        conditions.append("1 = 1")
    style = _commas if chance(rng, 0.4) else _joins
    return style(rng, sources, edges, conditions)


def _count(rng: Random) -> str:
    bounds = ("window_start, {}", "{}, window_end", "{}, window_end AS until, window_start")
    around = pick(rng, bounds) if chance(rng, 0.3) else "{}"
    return around.format("COUNT(*) AS n" if chance(rng, 0.5) else "COUNT(*)")


def named(rng: Random, alias: str, stream: str) -> str:
    if alias == stream:
        return stream
    return f"{stream} {alias}" if chance(rng, 0.3) else f"{stream} AS {alias}"


def _commas(rng: Random, sources: Mapping[str, str], edges: Sequence[Edge], conditions: list[str]) -> str:
    names = list(sources)
    rng.shuffle(names)
    where = [_equality(rng, e) for e in edges] + conditions
    rng.shuffle(where)
    return f"{', '.join(named(rng, a, sources[a]) for a in names)} WHERE {' AND '.join(where)}"


def _joins(rng: Random, sources: Mapping[str, str], edges: Sequence[Edge], conditions: list[str]) -> str:
    first, *others = sources
    parts = [named(rng, first, sources[first])]
    for alias in others:
        on = " AND ".join(_equality(rng, e) for e in edges if e[2] == alias)
        parts.append(f"JOIN {named(rng, alias, sources[alias])} ON {on}")
    if conditions and chance(rng, 0.2):
        # The last ON can see every source; for an inner join it is one more place for a condition.
        parts[-1] += f" AND {conditions.pop()}"
    if conditions:
        parts.append(f"WHERE {' AND '.join(conditions)}")
    return " ".join(parts)


def _equality(rng: Random, edge: Edge) -> str:
    left, right = f"{edge[0]}.{edge[1]}", f"{edge[2]}.{edge[3]}"
    return f"{right} = {left}" if chance(rng, 0.3) else f"{left} = {right}"


def select_list(rng: Random, columns: Mapping[str, Mapping[str, str]]) -> str:
    if not chance(rng, 0.5):
        return "*"
    everything = [c for own in columns.values() for c in own]
    chosen = rng.sample(everything, rng.randint(1, min(5, len(everything))))
    names: list[str] = []
    items: list[str] = []
    for i, column in enumerate(chosen):
        name = column.split(".")[1]
        if name in names or chance(rng, 0.3):
            name = f"x{i}"
            items.append(f"{column} AS {name}")
        else:
            items.append(column)
        names.append(name)
    if chance(rng, 0.25):
        own = list(columns.values())
        items.append(f"{output(rng, pick(rng, own), pick(rng, own))} AS y")
    if chance(rng, 0.25):
        items.append(pick(rng, ("window_start", "window_end", "window_end AS until")))
    return ", ".join(items)
