"""Queries that fold, and queries over one stream, as their users see them: rows, explain, figures and sinks."""

from __future__ import annotations

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from typer.testing import CliRunner

from ajoin import errors
from ajoin.cli import app
from ajoin.platform.metrics import status_metrics
from ajoin.replay.output import json_rows
from runtime.connectors.kafka.encode import encode_arrow, encode_json
from runtime.connectors.sinks import ConsoleSink
from runtime.engine.config import EngineConfig
from tests.ajoin.world import with_streams
from tests.faults.processes import until

BY_USER = "SELECT W.usrID, COUNT(*) AS n FROM W GROUP BY W.usrID WINDOW TUMBLING (SIZE 1 SECOND)"
HOPPING = "WINDOW HOPPING (SIZE 3 SECONDS, ADVANCE BY 1 SECOND)"
LONG = f"SELECT usrID, SUM(vID) AS s FROM W WHERE vID > 1 GROUP BY usrID {HOPPING}"
PLAIN = "SELECT vID, usrID FROM W WHERE usrID = 7"
COUNTED = "SELECT usrID, MAX(vID) AS m FROM W GROUP BY usrID WINDOW COUNT (SIZE 2)"
QUERIES = {"by_user": BY_USER, "long": LONG, "plain": PLAIN, "counted": COUNTED}
ROWS = [{"ts": 1000 + 10 * i, "vID": i, "usrID": 7 + i % 2} for i in range(8)]
LATER = [{"ts": 2500, "vID": 1, "usrID": 7}]


@pytest.fixture
def world(tmp_path):
    with with_streams(tmp_path / "state") as world:
        world.client.create_queries(QUERIES)
        world.feed({"W": ROWS}, watermark=2000)
        world.feed({"W": LATER}, watermark=3000)
        yield world


def ajoin(world, *arguments, code=0):
    done = CliRunner().invoke(app, list(arguments), env={"AJOIN_SERVER": world.address, "COLUMNS": "200"})
    assert done.exit_code == code, done.output
    return done.stdout if code == 0 else done.output


def test_explain_names_what_is_folded_once_and_what_was_counted(world):
    text = ajoin(world, "explain")
    (said,) = [line for line in text.splitlines() if line.startswith("by_user and long fold")]
    assert said.startswith("by_user and long fold W by usrID once: 60 slices a minute, ")
    assert "query set" in said and "tuples an epoch into" in said
    assert "3 folds asked for, 2 made" in text
    assert "counted folds W by usrID: tuple by tuple" in text
    combined = "HOPPING (SIZE 3 SECONDS, ADVANCE BY 1 SECOND) of long: all 3 slices, because 3 steps are few"
    assert f"\n    {combined}\n" in text
    own = ajoin(world, "explain", "long")
    assert f"combines    {combined}\n" in own
    assert "keeps       count, sum of vID" in own and "alone" in own
    document = json.loads(ajoin(world, "explain", "long", "--format", "json"))
    assert document["fold"]["queries"] == ["by_user", "long"] and document["fold"]["counted"]["groups"] >= 1
    assert document["cost"]["alone"] > document["cost"]["shared"] > 0
    assert "window      none" in ajoin(world, "explain", "plain")
    candidate = world.client.explain(sql=BY_USER.replace("COUNT(*)", "MIN(W.vID)"))
    assert "candidate fold W by usrID once" in candidate and "min of vID" in candidate
    assert "combines" not in candidate
    candidate = world.client.explain(sql=LONG.replace("3 SECONDS", "1 HOUR"))
    assert "of candidate: blocks, about 27 entries instead of 3,600 slices" in candidate
    assert "where 7 or more windows close in one epoch: sum by subtracting" in candidate


def test_the_optimizer_is_at_ease_with_them(world):
    for mode in ("full", "incremental"):
        done = world.client.optimize(mode)
        assert done.cost_after <= done.cost_before
    groups = {q.id: q.group for q in world.client.queries()}
    assert groups["by_user"] == groups["long"]
    with pytest.raises(errors.InvalidRequest, match="nothing to order"):
        world.client.force_order("plain", ["W", "V"])


def test_windows_are_told_as_what_they_are(world):
    plain = ajoin(world, "tail", "plain", "--no-follow").splitlines()
    assert plain[0].split() == ["window_start", "window_end", "vID", "usrID"]
    assert plain[2].split() == ["NULL", "NULL", "0", "7"]
    counted = ajoin(world, "tail", "counted", "--no-follow").splitlines()
    assert counted[0].split() == ["window_start", "window_end", "revision", "usrID", "m"]
    assert sorted(line.split() for line in counted[2:]) == [
        ["0", "2", "0", "7", "2"], ["0", "2", "0", "8", "3"], ["2", "4", "0", "7", "6"], ["2", "4", "0", "8", "7"],
    ]  # fmt: skip
    lines = [json.loads(line) for line in ajoin(world, "tail", "by_user", "--no-follow", "--json").splitlines()]
    assert {(l["window_start"], l["revision"], *l["row"].values()) for l in lines} == {
        (1000, 0, 7, 4), (1000, 0, 8, 4), (2000, 0, 7, 1),
    }  # fmt: skip
    listed = {line.split()[0]: line.split()[7] for line in ajoin(world, "query", "list").splitlines()[1:]}
    assert listed == {"by_user": "3", "counted": "4", "long": "7", "plain": "5"} | {"long": listed["long"]}


def test_sums_that_do_not_fit_are_counted(tmp_path):
    most = (1 << 63) - 1
    with with_streams(tmp_path) as world:
        world.client.create_query("SELECT SUM(vID) AS s FROM W WINDOW TUMBLING (SIZE 1 SECOND)", id="q")
        world.feed({"W": [{"ts": 1000 + i, "vID": most, "usrID": 1} for i in range(2)]}, watermark=2000)
        (row,) = world.client.results("q", until=2000)
        assert row["s"] is None
        assert world.client.query("q").overflows == 1
        assert "overflows:" in ajoin(world, "query", "show", "q")
        (metric,) = [m for m in status_metrics(world.platform.status()) if m.name == "ajoin_overflows"]
        assert metric.samples[0].value == 1
        world.feed({"W": [{"ts": 2500, "vID": 1, "usrID": 1}]})
        assert world.platform.status().buckets == 1, "a partial bucket is a bucket"


def test_every_sink_takes_rows_without_a_window_and_with_revisions(tmp_path):
    with with_streams(tmp_path / "state") as world:
        for id, sql in QUERIES.items():
            world.client.create_query(sql, id=id, sinks=[("parquet", {"path": str(tmp_path / "out")})])
        world.feed({"W": ROWS}, watermark=2000)
        until(lambda: len(list((tmp_path / "out").rglob("*.parquet"))) >= 3, "no files")  # sinks tell nobody
        for id in QUERIES:
            logged = world.client.results(id, until=2000).to_arrow()
            assert logged.num_rows
            for file in sorted((tmp_path / "out" / id).glob("*.parquet")):
                assert pq.read_schema(file).names == logged.schema.names
            printed = io.StringIO()
            ConsoleSink(console=Console(file=printed, width=200)).write(id, 1, logged)
            assert ("NULL" in printed.getvalue()) == (id == "plain")
            first = json.loads(encode_json(logged, "usrID")[0][1])
            assert (first["window_start"] is None) == (id == "plain") and ("revision" in first) == (id != "plain")
            (message,) = encode_arrow(logged, 1 << 20)
            assert pa.ipc.open_stream(message[1]).read_all().equals(logged.combine_chunks())
            assert len(list(json_rows(logged, world.client.query(id).outputs))) == logged.num_rows


def test_a_fold_counts_against_the_cost_limit(tmp_path):
    with with_streams(tmp_path / "one") as world:
        world.client.create_query(BY_USER, id="q")
        alone = json.loads(world.client.explain("q", format="json"))["cost"]["alone"]
    with with_streams(tmp_path / "two", engine=EngineConfig(max_cost=1.2 * alone)) as world:
        world.client.create_query(BY_USER, id="q")
        world.client.create_query(BY_USER, id="again")
        with pytest.raises(errors.AJoinError) as refused:
            world.client.create_query(BY_USER.replace("usrID", "vID"), id="other")
        assert refused.value.reason == "COST_LIMIT"
