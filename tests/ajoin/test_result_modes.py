"""COUNT(*) and EMIT FACTORIZED as a client sees them, through the real service."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import ajoin
from ajoin.cli import app
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


MODES = [
    "SELECT COUNT(*) AS n",
    "SELECT window_end, COUNT(*) AS n",
    "SELECT W.usrID, V.geo",
    "SELECT V.geo, window_start, W.usrID * 2.5 AS x, W.ts, V.geo IS NULL AS b, 1 AS one",
    "SELECT W.usrID + V.vID AS s, V.geo EMIT FACTORIZED",
    "SELECT V.geo, V.vID EMIT FACTORIZED",
]


@pytest.mark.parametrize("select", MODES)
def test_results_without_rows_have_the_columns_of_those_with_rows(world, select):
    """In both clients and on the command line: whoever waits for the first row can prepare for it."""
    head, emit, mode = select.partition(" EMIT ")
    world.client.create_query(f"{head} {JOINED} {emit} {mode}", id="q")
    empty = world.client.results("q")
    assert len(empty) == 0 and empty.to_arrow().schema == world.client.result_schema("q")

    async def ask() -> tuple[pa.Table, pa.Schema]:
        async with ajoin.AsyncClient(world.address) as client:
            return (await client.results("q")).to_arrow(), await client.result_schema("q")

    table, schema = asyncio.run(ask())
    assert table.equals(empty.to_arrow()) and schema == table.schema
    shown = CliRunner().invoke(app, ["tail", "q", "--no-follow", "--server", world.address])
    names = ", ".join(empty.to_arrow(expand=True).schema.names)
    assert shown.exit_code == 0 and f"no rows; the columns are {names}" in shown.stderr

    world.feed(ROWS, watermark=1000)
    full = world.client.results("q", until=1000)
    assert len(full) > 0
    assert full.to_arrow().schema.equals(empty.to_arrow().schema, check_metadata=True)
    assert full.to_arrow(expand=True).schema == empty.to_arrow(expand=True).schema
    assert ("revision" in full.to_arrow().schema.names) == ("COUNT" in select)
