"""Replay of small streams, as libraries for slicing are tested: tuples, watermarks in between, windows that close.

Every watermark is an explicit line (the stream's own delay is too long to matter), nothing is flushed, and what each
watermark brings is written out by hand. Several windows run at once over the same tuples, as queries that share a fold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.ajoin.test_replay_run import EPOCH, Line, Play

Row = tuple[int, int, Any]
"""Window start, window end, sum."""

LATENESS = 1000
STREAM: Line = {
    "stream": "S",
    "schema": {"ts": "TIMESTAMP", "x": "BIGINT", "mark": "STRING"},
    "time": "ts",
    "watermark_delay_ms": 1 << 40,
    "allowed_lateness_ms": LATENESS,
}


class Add(NamedTuple):
    """A query with this window, which begins here."""

    window: str


class Until(NamedTuple):
    """A watermark, and the rows of each window that come with it."""

    ts: int
    rows: Mapping[str, Sequence[Row]]


Tuple = tuple[Any, ...]
"""(x, ts) or (x, ts, mark)"""

TEN, TWENTY, FORTY = (f"TUMBLING (SIZE {n} MILLISECONDS)" for n in (10, 20, 40))
BY_FIVE = "HOPPING (SIZE 10 MILLISECONDS, ADVANCE BY 5 MILLISECONDS)"
BY_THREE = "HOPPING (SIZE 10 MILLISECONDS, ADVANCE BY 3 MILLISECONDS)"
BY_FOUR = "HOPPING (SIZE 10 MILLISECONDS, ADVANCE BY 4 MILLISECONDS)"
GAP, GAP_5 = "SESSION (10 MILLISECONDS)", "SESSION (5 MILLISECONDS)"
THREE, FIVE = "COUNT (SIZE 3)", "COUNT (SIZE 5)"
AT_P, AT_Q = "PUNCTUATED BY (mark = 'p')", "PUNCTUATED BY (mark = 'q')"


def band(start: int, size: int) -> str:
    return f"BETWEEN {start} AND {start + size}"


IN_ORDER = [(1, 1), (2, 19), (3, 29), (4, 39), (5, 49)]
TENS_TO_22 = [(0, 10, 1), (10, 20, 2)]
TENS_TO_55 = [(20, 30, 3), (30, 40, 4), (40, 50, 5)]
HOPS_TO_22 = [(-5, 5, 1), (0, 10, 1), (10, 20, 2)]
HOPS_TO_55 = [(15, 25, 2), (20, 30, 3), (25, 35, 3), (30, 40, 4), (35, 45, 4), (40, 50, 5), (45, 55, 5)]

CASES: dict[str, Sequence[Add | Tuple | Until]] = {
    "tumbling": [
        Add(TEN), *IN_ORDER,
        Until(22, {TEN: TENS_TO_22}),
        Until(55, {TEN: TENS_TO_55}),
    ],
    "tumbling, two tuples at once and empty windows": [
        Add(TEN), (1, 0), (2, 0), (3, 20), (4, 30), (5, 40),
        Until(22, {TEN: [(0, 10, 3)]}),
        Until(55, {TEN: [(20, 30, 3), (30, 40, 4), (40, 50, 5)]}),
    ],
    "two tumbling windows": [
        Add(TEN), Add(TWENTY), *IN_ORDER,
        Until(22, {TEN: TENS_TO_22, TWENTY: [(0, 20, 3)]}),
        Until(55, {TEN: TENS_TO_55, TWENTY: [(20, 40, 7)]}),
    ],
    "a second tumbling window later": [
        Add(TWENTY), (1, 1), (2, 19),
        Until(22, {TWENTY: [(0, 20, 3)]}),
        Add(TEN), (3, 29), (4, 39), (5, 49),
        Until(55, {TWENTY: [(20, 40, 7)], TEN: TENS_TO_55}),
    ],
    "tumbling, out of order": [
        Add(TEN), (1, 1), (1, 30), (1, 20), (1, 23), (1, 25), (1, 45),
        Until(22, {TEN: [(0, 10, 1)]}),
        Until(55, {TEN: [(20, 30, 3), (30, 40, 1), (40, 50, 1)]}),
    ],
    "count": [
        Add(THREE), (1, 1), (1, 19), (1, 29), (2, 39), (2, 49), (2, 50), (1, 51),
        Until(55, {THREE: [(0, 3, 3), (3, 6, 6)]}),
    ],
    "count, out of order": [
        Add(THREE), (1, 1), (1, 19), (1, 29), (2, 39), (2, 10), (2, 50), (1, 51),
        Until(55, {THREE: [(0, 3, 4), (3, 6, 5)]}),
    ],
    "two count windows, out of order": [
        Add(THREE), Add(FIVE), (1, 1), (1, 19), (1, 29), (2, 39), (1, 41), (2, 10), (2, 50), (1, 51), (3, 52),
        Until(55, {THREE: [(0, 3, 4), (3, 6, 4), (6, 9, 6)], FIVE: [(0, 5, 7)]}),
    ],
    "count, closed by the time of the last tuple": [
        Add(THREE), Add(FIVE), (1, 1), (1, 19), (1, 29), (2, 39), (1, 41), (2, 10),
        Until(30, {THREE: [(0, 3, 4)]}),
        (2, 50), (1, 51), (3, 52),
        Until(55, {THREE: [(3, 6, 4), (6, 9, 6)], FIVE: [(0, 5, 7)]}),
    ],
    "count, a late tuple shifts what was delivered": [
        Add(THREE), (1, 1), (1, 19), (1, 29), (2, 39), (2, 49), (2, 50),
        Until(55, {THREE: [(0, 3, 3), (3, 6, 6)]}),
        (5, 10), (7, 60),
        Until(56, {THREE: [(0, 3, 7), (3, 6, 5)]}),
        Until(60, {}),
        (1, 61),
        Until(61, {THREE: [(6, 9, 10)]}),
    ],
    "hopping": [
        Add(BY_FIVE), *IN_ORDER,
        Until(22, {BY_FIVE: HOPS_TO_22}),
        Until(55, {BY_FIVE: HOPS_TO_55}),
    ],
    "hopping and tumbling": [
        Add(BY_FIVE), Add(TWENTY), *IN_ORDER,
        Until(22, {BY_FIVE: HOPS_TO_22, TWENTY: [(0, 20, 3)]}),
        Until(55, {BY_FIVE: HOPS_TO_55, TWENTY: [(20, 40, 7)]}),
    ],
    "hopping later": [
        Add(TWENTY), (1, 1), (2, 19),
        Until(22, {TWENTY: [(0, 20, 3)]}),
        Add(BY_FIVE), (3, 29), (4, 39), (5, 49),
        Until(55, {TWENTY: [(20, 40, 7)], BY_FIVE: HOPS_TO_55[1:]}),
    ],
    "a hop that does not divide the size": [
        Add(BY_THREE), *((1, t) for t in (1, 9, 10, 11, 12, 13, 14, 15, 19)), (2, 21),
        *((1, t) for t in (22, 23, 24)), (3, 29), (4, 36),
        Until(22, {BY_THREE: [(-6, 4, 1), (-3, 7, 1), (0, 10, 2), (3, 13, 4), (6, 16, 7), (9, 19, 7), (12, 22, 7)]}),
        Until(38, {BY_THREE: [(15, 25, 7), (18, 28, 6), (21, 31, 8), (24, 34, 4), (27, 37, 7)]}),
    ],
    "another that does not": [
        Add(BY_FOUR), *((1, t) for t in (1, 10, 11, 12, 13, 14, 15)), (3, 19), (4, 29), (5, 36),
        Until(22, {BY_FOUR: [(-8, 2, 1), (-4, 6, 1), (0, 10, 1), (4, 14, 4), (8, 18, 6), (12, 22, 7)]}),
        Until(43, {BY_FOUR: [(16, 26, 3), (20, 30, 4), (24, 34, 4), (28, 38, 9), (32, 42, 5)]}),
    ],
    "hopping, out of order": [
        Add(BY_FIVE), (1, 1), (1, 30), (1, 20), (1, 23), (1, 25), (1, 45),
        Until(22, {BY_FIVE: [(-5, 5, 1), (0, 10, 1)]}),
        Until(55, {BY_FIVE: [(15, 25, 2), (20, 30, 3), (25, 35, 2), (30, 40, 1), (40, 50, 1), (45, 55, 1)]}),
    ],
    "hopping, too late and late": [
        Add(BY_FIVE), (1, 2600),
        Until(3000, {BY_FIVE: [(2595, 2605, 1), (2600, 2610, 1)]}),
        (1, 3700), (1, 1980),
        Until(3001, {}),
        (1, 2602),
        Until(3002, {BY_FIVE: [(2595, 2605, 2), (2600, 2610, 2)]}),
    ],
    "one fixed window": [
        Add(band(1, 10)), *IN_ORDER,
        Until(55, {band(1, 10): [(1, 11, 1)]}),
    ],
    "one fixed window, still open": [
        Add(band(18, 10)), (1, 0), (2, 0), (3, 20), (4, 30), (5, 40),
        Until(22, {}),
        Until(55, {band(18, 10): [(18, 28, 3)]}),
    ],
    "fixed windows that overlap": [
        Add(band(14, 11)), Add(band(23, 10)), *IN_ORDER,
        Until(26, {band(14, 11): [(14, 25, 2)]}),
        Until(55, {band(23, 10): [(23, 33, 3)]}),
    ],
    "a fixed window later": [
        Add(band(10, 10)), (1, 1), (2, 19),
        Until(22, {band(10, 10): [(10, 20, 2)]}),
        Add(band(20, 21)), (3, 29), (4, 39), (5, 49),
        Until(55, {band(20, 21): [(20, 41, 7)]}),
    ],
    "a fixed window, out of order": [
        Add(band(10, 20)), (1, 1), (1, 29), (1, 20), (1, 23), (1, 25), (1, 45),
        Until(22, {}),
        Until(55, {band(10, 20): [(10, 30, 4)]}),
    ],
    "sessions": [
        Add(GAP), (1, 1), (2, 19), (3, 23), (4, 31), (5, 49),
        Until(22, {GAP: [(1, 11, 1)]}),
        Until(55, {GAP: [(19, 41, 9)]}),
        Until(80, {GAP: [(49, 59, 5)]}),
    ],
    "sessions of one tuple": [
        Add(GAP), (1, 0), (2, 0), (3, 20), (4, 31), (5, 42),
        Until(22, {GAP: [(0, 10, 3)]}),
        Until(55, {GAP: [(20, 30, 3), (31, 41, 4), (42, 52, 5)]}),
    ],
    "a session that is filled": [
        Add(GAP), (1, 1), (1, 9), (1, 15), (1, 30), (1, 12),
        Until(50, {GAP: [(1, 25, 4), (30, 40, 1)]}),
    ],
    "a session that grows to the right": [
        Add(GAP), (1, 1), (1, 9), (1, 10), (1, 30), (1, 12),
        Until(50, {GAP: [(1, 22, 4), (30, 40, 1)]}),
    ],
    "a session that grows to the left": [
        Add(GAP), (1, 1), (1, 9), (1, 10), (1, 30), (1, 27),
        Until(22, {GAP: [(1, 20, 3)]}),
        Until(50, {GAP: [(27, 40, 2)]}),
    ],
    "a session in between, which ends at the watermark": [
        Add(GAP), (1, 1), (1, 30), (1, 12),
        Until(22, {GAP: [(1, 11, 1)]}),
        Until(50, {GAP: [(12, 22, 1), (30, 40, 1)]}),
    ],
    "sessions that are joined": [
        Add(GAP), (1, 7), (1, 30), (1, 51), (1, 15), (1, 21),
        Until(70, {GAP: [(7, 40, 4), (51, 61, 1)]}),
    ],
    "sessions and a tumbling window": [
        Add(GAP), Add(FORTY), (1, 7), (1, 22), (1, 51), (1, 15), (1, 37),
        Until(70, {GAP: [(7, 32, 3), (37, 47, 1), (51, 61, 1)], FORTY: [(0, 40, 4)]}),
    ],
    "two gaps": [
        Add(GAP), Add(GAP_5), *((1, t) for t in (20, 40, 50, 57, 33, 31)),
        Until(70, {
            GAP: [(20, 30, 1), (31, 67, 5)],
            GAP_5: [(20, 25, 1), (31, 38, 2), (40, 45, 1), (50, 55, 1), (57, 62, 1)],
        }),
    ],
    "sessions, late and too late": [
        Add(GAP), (1, 2600),
        Until(3000, {GAP: [(2600, 2610, 1)]}),
        (1, 3700), (1, 2500), (1, 1999),
        Until(4000, {GAP: [(2500, 2510, 1), (3700, 3710, 1)]}),
    ],
    "punctuations": [
        Add(AT_P), (1, 1), (0, 10, "p"), (2, 19), (3, 23), (0, 30, "p"), (4, 30), (5, 49), (0, 51, "p"),
        Until(31, {AT_P: [(1, 10, 1), (10, 30, 5)]}),
        Until(55, {AT_P: [(30, 51, 9)]}),
    ],
    "punctuations, out of order": [
        Add(AT_P), (1, 1), (0, 10, "p"), (2, 19), (0, 30, "p"), (3, 23), (5, 49), (0, 51, "p"),
        Until(31, {AT_P: [(1, 10, 1), (10, 30, 5)]}),
        Until(55, {AT_P: [(30, 51, 5)]}),
    ],
    "two punctuations": [
        Add(AT_P), Add(AT_Q),
        (1, 1), (0, 10, "p"), (2, 19), (0, 30, "q"), (3, 23), (5, 49), (0, 51, "p"), (0, 51, "q"),
        Until(31, {AT_P: [(1, 10, 1)], AT_Q: [(1, 30, 6)]}),
        Until(55, {AT_P: [(10, 51, 10)], AT_Q: [(30, 51, 5)]}),
    ],
}  # fmt: skip


def scenario(steps: Sequence[Add | Tuple | Until]) -> tuple[list[Line], dict[str, list[Row]]]:
    """Its lines, and all rows of each window in the order of watermarks."""
    lines, expected = [STREAM], {}
    for step in steps:
        match step:
            case Add(window):
                expected[window] = []
                lines.append({"create": window, "sql": f"SELECT SUM(x) AS s FROM S WINDOW {window}"})
            case Until(ts, rows):
                lines += [{"watermark": "S", "ts": ts}, EPOCH]
                for window, some in rows.items():
                    expected[window] += some
            case x, ts, *mark:
                lines.append({"event": "S", "row": {"ts": ts, "x": x, "mark": mark[0] if mark else None}})
    return lines, expected


@pytest.mark.parametrize("cut", [False, True], ids=["one epoch per watermark", "one epoch per tuple"])
@pytest.mark.parametrize("name", CASES)
def test_every_watermark_closes_the_windows_it_should(name: str, cut: bool, tmp_path: Path) -> None:
    lines, expected = scenario(CASES[name])
    ids = {window: f"q{i}" for i, window in enumerate(expected)}
    lines = [line | {"create": ids[line["create"]]} if "create" in line else line for line in lines]
    if cut:
        lines = [part for line in lines for part in ((line, EPOCH) if "event" in line else (line,))]
    found = Play(tmp_path)(*lines, flush=False)
    for window, id in ids.items():
        got = [(r["window_start"], r["window_end"], r["row"]["s"]) for r in found.results if r["query"] == id]
        assert sorted(got) == sorted(expected[window]), window
