"""FIRST and LAST go by event time, then by arrival, also where queries with different conditions share a fold.

Tuples of one time are cut into entries by who wants them, so no order of entries could tell which came first.
"""

from __future__ import annotations

from random import Random

import pytest

from ajoin.testing import LocalEngine

CONDITIONS = {
    "all": ("", lambda x: True),
    "one": ("WHERE x = 1", lambda x: x == 1),
    "some": ("WHERE x >= 1", lambda x: x >= 1),
    "others": ("WHERE x <> 2", lambda x: x != 2),
}
WINDOWS = ("TUMBLING (SIZE 10 MILLISECONDS)", "SESSION (5 MILLISECONDS)", "PUNCTUATED BY (x = 9)")


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("seed", range(5))
def test_ties_go_by_arrival(seed, window):
    rng = Random(seed)
    rows = [{"k": rng.randrange(2), "x": rng.randrange(4), "v": i, "ts": rng.randrange(3)} for i in range(24)]
    edge = {"k": 3, "x": 9, "v": -1, "ts": 9}
    with LocalEngine() as engine:
        engine.create_stream("S", columns={"k": "BIGINT", "x": "INT", "v": "BIGINT", "ts": "TIMESTAMP"})
        for id, (where, _) in CONDITIONS.items():
            sql = f"SELECT k, FIRST(v) AS f, LAST(v) AS l, COUNT(*) AS n FROM S {where} GROUP BY k WINDOW {window}"
            engine.create_query(sql, id=id)
        cut = rng.randrange(24)
        engine.push("S", *rows[:cut])  # two batches of one epoch
        engine.push("S", *rows[cut:], edge)
        engine.raise_watermark(100)
        engine.run_epoch()
        for id, (_, wanted) in CONDITIONS.items():
            got = {r["k"]: (r["f"], r["l"]) for r in engine.rows(id) if r["k"] < 3}
            assert got == expected([r for r in rows if wanted(r["x"])]), id


def expected(rows):
    out = {}
    for k in (0, 1):
        mine = [r for r in rows if r["k"] == k]
        if mine:
            ordered = sorted(mine, key=lambda r: r["ts"])  # stable: ties in order of arrival
            out[k] = ordered[0]["v"], ordered[-1]["v"]
    return out
