"""Queries that are too large, too deep or too fine, and queries that look dangerous and must simply work."""

# ruff: noqa: E501  (one kind a line reads better)
from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor

from tests.poison.kinds import SERVED, Ending, Kind, invalid, one_call, refused
from tests.poison.scene import Scene

Steps = Generator[None, None, Ending]
NINE = "abcdefghi"
EXTREMES = (-(1 << 63), -(1 << 63) + 1, -1, 0, 1, 3, (1 << 63) - 1)
DOUBLES = (float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 5e-324, 1.7e308)


def _refused(name: str, does: str, ends: Ending, condition: str) -> Kind:
    """A join of good streams with one more condition."""
    return one_call(name, does, ends, lambda s: s.hostile.create_query(s.join(condition), id=s.name))


def _window_just_fine(scene: Scene) -> Steps:
    """Two tuples 700 ms apart are together in 9,300 windows of 10 s by 1 ms."""
    left, right = scene.pair()
    window = "HOPPING (SIZE 10 SECONDS, ADVANCE BY 1 MILLISECONDS)"
    scene.owe(scene.over(left, right, window=window))
    counted = scene.owe(scene.over(left, right, window=window, select="COUNT(*) AS n"), "-counted")
    scene.push(left, [{"k": 1, "ts": 20_000}, {"k": 2, "ts": 20_000}])
    scene.push(right, [{"k": 1, "ts": 20_700}])
    yield from scene.arrival(scene.name, 9_300)
    scene.told.raise_watermark(left, 90_000)
    scene.told.raise_watermark(right, 90_000)
    yield from scene.arrival(counted, 9_300)
    return SERVED


def _exponential_like(scene: Scene) -> Steps:
    """A backtracking matcher needs longer than the universe is old for the first text."""
    left, right = scene.pair()
    pattern = "%a" * 30 + "%b"
    sql = scene.over(left, right, where=f"a.s LIKE '{pattern}' OR b.s NOT LIKE '{'%_' * 200}'")
    scene.create(sql)
    texts = ("a" * 30_000, "a" * 30_000 + "b", "ab" * 10_000)
    scene.push(left, [{"k": n, "s": text, "ts": 5} for n, text in enumerate(texts)])
    scene.push(right, [{"k": n, "s": "x" * 300, "ts": 6} for n in range(3)])
    yield
    assert sorted(row["x"] for row in scene.rows(scene.name)) == [1, 2]
    return SERVED


def _hot_key(scene: Scene) -> Steps:
    left, right = scene.pair()
    scene.create(scene.over(left, right, select="a.d AS l, b.d AS r"))
    many = 120
    for stream in (left, right):
        scene.push(stream, [{"k": 7, "d": n, "ts": 100 + n} for n in range(many)])
    yield from scene.arrival(scene.name, many * many)
    assert len({(row["l"], row["r"]) for row in scene.rows(scene.name)}) == many * many
    return SERVED


def _eight_ways(scene: Scene) -> Steps:
    stream = scene.own()
    tables = f'"{stream}" a ' + " ".join(f'JOIN "{stream}" {x} ON a.k = {x}.k' for x in NINE[1:8])
    scene.create(scene.join(on=tables))
    scene.push(stream, [{"k": 1, "ts": n} for n in range(3)])
    yield from scene.arrival(scene.name, 3**8)
    return SERVED


def _extreme_numbers(scene: Scene) -> Steps:
    left, right = scene.pair()
    select = (
        "a.k AS k, a.k + b.k AS s, a.k * b.k AS p, a.k - 9223372036854775807 AS m, -a.k AS n, a.k / 0 AS z, "
        "a.k % 0 AS r, a.k / -1 AS w, a.d / b.d AS q, a.d * 1e308 AS h, a.d % 0.0 AS e, a.d = b.d AS same"
    )
    scene.owe(scene.over(left, right, select=select))
    scene.owe(scene.over(left, right, where="a.d < b.d OR a.k / (a.k - a.k) = 1 OR a.d <> a.d"), "-where")
    pairs = list(zip(EXTREMES, DOUBLES, strict=True))
    scene.push(left, [{"k": k, "d": d, "ts": 1} for k, d in pairs])
    scene.push(right, [{"k": k, "d": d, "ts": 2} for k, _ in pairs for d in scene.rng.sample(DOUBLES, 3)])
    yield
    return SERVED


def _wide(scene: Scene) -> Steps:
    columns = {"ts": "TIMESTAMP", "k": "BIGINT", **{f"c{n}": "STRING" for n in range(400)}}
    left, right = scene.own("-l", columns), scene.own("-r", columns)
    scene.owe(scene.over(left, right, select="a.*"))
    for stream in (left, right):
        scene.push(stream, [{"ts": n, "k": 1, f"c{n}": "x"} for n in range(3)])
    yield
    return SERVED


def _storm(scene: Scene) -> Steps:
    """Many at once, one by one, deleted and created again under the same ids."""
    many = {f"{scene.name}-{n}": scene.join(f"a.k <> {n}") for n in range(40)}
    for _ in range(2):
        outcomes = scene.hostile.create_queries(many)
        assert all(o.id in many for o in outcomes), outcomes  # type: ignore[union-attr]
        yield
        with ThreadPoolExecutor(10) as deleting:
            list(deleting.map(scene.hostile.delete_query, many))
    return SERVED


def _odd_ids(scene: Scene) -> Steps:
    """Ids that are fine, however they look; their files stay in the sink's folder."""
    left, right = scene.pair()
    odd = ("%2e%2e", "a b", 'it\'s "x"', "名前🎬", "\u202eabc", "C:\\x", "..x", "-rf", "select", "nul", "{x}$y`z`")
    for id in odd:
        sinks = [("parquet", {"path": scene.file("out")})]
        scene.hostile.create_query(scene.over(left, right), id=id, sinks=sinks)
    scene.push(left, [{"k": 1, "ts": 1}])
    scene.push(right, [{"k": 1, "ts": 2}])
    yield
    assert all(scene.info(id).rows == 1 for id in odd)

    def folders() -> int:
        return sum(1 for f in scene.file("out").glob("*/*.parquet") if f.parent.parent == scene.file("out"))

    scene.until(lambda: folders() == len(odd), "a sink has not its own folder")
    assert sorted(p.name for p in scene.folder.iterdir()) == ["out"]
    return SERVED


QUERIES = (
    _refused("like-too-long", "a LIKE pattern of 2,000 characters", invalid("PATTERN_TOO_LONG"), f"'x' LIKE '{'%a' * 1000}'"),
    _refused("list-too-long", "an IN list of 10,001 values", invalid("LIST_TOO_LONG"), f"a.k IN ({','.join(map(str, range(10_001)))})"),
    _refused("expression-too-large", "7,000 comparisons", invalid("SQL_TOO_COMPLEX"), "a.k=0" + " OR a.k=1" * 7_000),
    _refused("nested-parentheses", "5,000 parentheses", invalid("SQL_TOO_COMPLEX"), "(" * 5_000 + "a.k = 1" + ")" * 5_000),
    _refused("nested-not", "NOT, 10,000 times", invalid("SQL_TOO_COMPLEX"), "NOT " * 10_000 + "a.k = 1"),
    _refused("text-too-long", "100 KB of SQL", invalid("SQL_TOO_LONG"), f"'{'x' * 100_000}' = 'y'"),
    _refused("message-too-large", "2 MB of SQL", refused("RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED"), f"'{'x' * 2_000_000}' = 'y'"),
    one_call("window-too-fine", "a window of a day every millisecond", invalid("WINDOW_TOO_FINE"),
             lambda s: s.hostile.create_query(s.join(window="HOPPING (SIZE 1 DAY, ADVANCE BY 1 MS)"))),
    one_call("explained-too-fine", "the same, only explained", invalid("WINDOW_TOO_FINE"),
             lambda s: s.hostile.explain(sql=s.join(window="HOPPING (SIZE 1 DAY, ADVANCE BY 1 MS)"))),
    one_call("cross-product", "every tuple with every other", invalid("CROSS_PRODUCT"),
             lambda s: s.hostile.create_query(s.join(on=f'"{s.victim()}" a, "{s.victim()}" b'))),
    one_call("nine-sources", "a join of nine", invalid("SOURCE_COUNT"), lambda s: s.hostile.create_query(
        s.join(on=", ".join(f'"{s.victim()}" {x}' for x in NINE), where=" AND ".join(f"a.k = {x}.k" for x in NINE[1:])))),
    one_call("missing-stream", "a join with a stream that is not there", invalid("UNKNOWN_STREAM"),
             lambda s: s.hostile.create_query(s.over("nowhere", s.victim()))),
    one_call("id-taken", "an id that is in use", refused("ALREADY_EXISTS", "QUERY_EXISTS"),
             lambda s: [s.hostile.create_query(s.join(), id=s.name) for _ in range(2)]),
    one_call("id-traversal", "the id ../../x", invalid("INVALID_NAME"), lambda s: s.hostile.create_query(s.join(), id="../../x")),
    one_call("id-newline", "an id with a line of the log in it", invalid("INVALID_NAME"),
             lambda s: s.hostile.create_query(s.join(), id="x\n2026-01-01 00:00:00,000 INFO    ajoin all is well")),
    one_call("id-too-long", "an id of 10,000 characters", invalid("INVALID_NAME"),
             lambda s: s.hostile.create_query(s.join(), id="x" * 10_000)),
    Kind("window-just-fine", "9,300 windows around one pair", SERVED, _window_just_fine),
    Kind("exponential-like", "a pattern that backtracking never ends with", SERVED, _exponential_like),
    Kind("hot-key", "14,400 pairs of one key", SERVED, _hot_key),
    Kind("eight-ways", "a stream joined with itself seven times", SERVED, _eight_ways),
    Kind("extreme-numbers", "overflow, division by zero, NaN, infinities, -0.0", SERVED, _extreme_numbers),
    Kind("wide-rows", "rows of 400 columns", SERVED, _wide),
    Kind("creation-storm", "40 queries created and deleted twice", SERVED, _storm),
    Kind("odd-ids", "ids like shell, paths and other scripts, with sinks", SERVED, _odd_ids),
)  # fmt: skip
