"""COUNT(*) and EMIT FACTORIZED as a client sees them, through the real service."""

from __future__ import annotations

import pytest

import ajoin
from ajoin.replay.output import json_rows
from tests.ajoin.world import with_streams

JOINED = "FROM V JOIN W ON V.vID = W.vID WINDOW TUMBLING (SIZE 1 SECOND)"
ROWS = {
    "V": [{"ts": t, "vID": 7, "geo": g} for t, g in ((1, "DE"), (2, "FR"), (3, None))],
    "W": [{"ts": t, "vID": 7, "usrID": t} for t in (4, 5)],
}


@pytest.fixture
def world(tmp_path):
    with with_streams(tmp_path) as world:
        yield world


def test_factorized_results_expand_to_the_same_rows(world):
    for id, emit in (("rows", "EMIT ROWS"), ("lists", "EMIT FACTORIZED")):
        world.client.create_query(f"SELECT W.usrID, V.geo {JOINED} {emit}", id=id)
    world.feed(ROWS, watermark=1000)
    rows = world.client.results("rows", until=1000)
    lists = world.client.results("lists", until=1000)
    assert (len(rows), len(lists)) == (6, 1)
    (whole,) = lists
    assert [v["geo"] for v in whole["V"]] == ["DE", "FR", None]
    assert [w["usrID"] for w in whole["W"]] == [4, 5]
    order = [("usrID", "ascending"), ("geo", "ascending")]
    given = rows.to_arrow()
    for back in (lists.to_arrow(expand=True), ajoin.expand(lists.to_arrow()), ajoin.expand(lists.batches[0].table)):
        assert back.sort_by(order).equals(given.sort_by(order))
    assert rows.to_arrow(expand=True).equals(given)
    assert lists.to_pandas(expand=True).shape == (6, 4)
    assert world.client.query("lists").rows == world.client.query("rows").rows == 6


def test_a_count_comes_with_its_revision(world):
    world.client.create_query(f"SELECT COUNT(*) AS n {JOINED}", id="q")
    world.feed(ROWS, watermark=1000)
    results = world.client.results("q", until=1000)
    assert results.to_arrow().schema.names == ["window_start", "window_end", "revision", "n"]
    assert list(json_rows(results.to_arrow(), ["n"])) == [
        {"window_start": 0, "window_end": 1000, "revision": 0, "row": {"n": 6}}
    ]


def test_a_selected_column_called_revision_is_no_revision(world):
    world.client.create_query(f"SELECT W.usrID AS revision {JOINED}", id="q")
    world.feed(ROWS, watermark=1000)
    lines = list(json_rows(world.client.results("q", until=1000).to_arrow(), ["revision"]))
    assert {line["revision"] for line in lines} == {0}
    assert {line["row"]["revision"] for line in lines} == {4, 5}
