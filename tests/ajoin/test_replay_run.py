"""Replay end to end: the real engine, in this process instead of on Spark; rows are worked out by hand."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ajoin.replay.output import json_rows
from ajoin.replay.runner import run
from ajoin.replay.scenario import ScenarioError, read
from runtime.engine.config import EngineConfig
from runtime.engine.engine import Engine
from runtime.execution.executor import LocalExecutor

Line = dict[str, Any]

V: Line = {"stream": "V", "schema": {"ts": "TIMESTAMP", "vID": "BIGINT", "geo": "STRING"}, "time": "ts"}
W: Line = {"stream": "W", "schema": {"ts": "TIMESTAMP", "vID": "BIGINT", "usrID": "BIGINT"}, "time": "ts"}
C: Line = {"stream": "C", "schema": {"ts": "TIMESTAMP", "usrID": "BIGINT", "score": "DOUBLE"}, "time": "ts"}
Q1 = "SELECT V.vID, V.geo, W.usrID FROM V JOIN W ON V.vID = W.vID WINDOW TUMBLING (SIZE 1 SECOND)"
Q2 = (
    "SELECT V.vID, C.score FROM V, W, C WHERE V.vID = W.vID AND W.usrID = C.usrID "
    "WINDOW HOPPING (SIZE 2 SECONDS, ADVANCE BY 1 SECOND)"
)
EPOCH: Line = {"epoch": True}


def v(ts: Any, vid: Any = 1, geo: Any = "DE") -> Line:
    return {"event": "V", "row": {"ts": ts, "vID": vid, "geo": geo}}


def w(ts: Any, vid: Any = 1, user: Any = 7) -> Line:
    return {"event": "W", "row": {"ts": ts, "vID": vid, "usrID": user}}


def c(ts: Any, user: Any = 7, score: Any = 0.5) -> Line:
    return {"event": "C", "row": {"ts": ts, "usrID": user, "score": score}}


class Outcome:
    """The three files of a run."""

    def __init__(self, out: Path) -> None:
        text = (out / "results.jsonl").read_text(encoding="utf-8")
        self.results: list[Line] = [json.loads(line) for line in text.splitlines()]
        self.queries: Line = json.loads((out / "queries.json").read_text(encoding="utf-8"))
        self.report: Line = json.loads((out / "report.json").read_text(encoding="utf-8"))

    def rows(self, id: str) -> list[tuple[Any, ...]]:
        """(window start, window end, values...), sorted: the order within an epoch is free."""
        found = [(r["window_start"], r["window_end"], *r["row"].values()) for r in self.results if r["query"] == id]
        return sorted(found, key=repr)


class Play:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = 0

    def __call__(self, *lines: Line, flush: bool = True, partitions: int = 2) -> Outcome:
        self.runs += 1
        scenario = self.folder / f"{self.runs}.jsonl"
        scenario.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
        state, out = self.folder / f"{self.runs}-state", self.folder / f"{self.runs}-out"
        now = iter(range(1_000_000, 2_000_000))

        def opener() -> Engine:
            return Engine.open(state, LocalExecutor(), EngineConfig(partitions=partitions), lambda: next(now))

        run(read(scenario), out, opener, flush=flush)
        return Outcome(out)


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    yield Play(tmp_path)


def test_a_join_through_all_three_files(play: Play) -> None:
    done = play(V, W, {"create": "q1", "sql": Q1}, v(1000), w(1500), w(2100), EPOCH, v(2200, 1, None), EPOCH)
    # windows  [1000        2000)[2000        3000)
    #   V        1000                  2200
    #   W               1500      2100
    assert done.results == [
        {
            "query": "q1",
            "window_start": 1000,
            "window_end": 2000,
            "revision": 0,
            "row": {"vID": 1, "geo": "DE", "usrID": 7},
        },
        {
            "query": "q1",
            "window_start": 2000,
            "window_end": 3000,
            "revision": 0,
            "row": {"vID": 1, "geo": None, "usrID": 7},
        },
    ]
    assert done.queries == {"q1": {"sql": Q1, "state": "RUNNING", "active_from": None, "active_until": None, "rows": 2}}
    assert done.report["epochs"] == 2
    assert done.report["tuples"] == {"V": 2, "W": 2}
    assert done.report["late_dropped"] == {"V": 0, "W": 0}
    assert done.report["dead_letter"] == {"V": 0, "W": 0}
    assert done.report["errors"] == []
    assert {"source", "join", "sink"} <= set(done.report["seconds"])
    plan = done.report["plans"][-1]
    assert set(plan) == {"version", "epoch", "changes", "plan"}
    assert plan["epoch"] == 1
    assert any("q1 created" in change for change in plan["changes"])
    assert "V" in plan["plan"]


def test_a_control_line_takes_effect_before_the_events_around_it(play: Play) -> None:
    between = play(V, W, v(1000), {"create": "q1", "sql": Q1}, w(1500), EPOCH)
    before = play(V, W, {"create": "q1", "sql": Q1}, v(1000), w(1500), EPOCH)
    assert between.results == before.results != []


def test_a_query_starts_after_what_was_accepted_and_ends_at_its_watermark(play: Play) -> None:
    done = play(
        V, W, v(1000), w(1500), EPOCH, {"create": "q1", "sql": Q1}, v(1600), w(2500), v(2600), w(3100), EPOCH,
        {"delete": "q1"}, v(3200), EPOCH,
    )  # fmt: skip
    life = done.queries["q1"]
    assert (life["active_from"], life["active_until"], life["state"]) == (2000, 2600, "DELETED")
    assert done.rows("q1") == [(2000, 3000, 1, "DE", 7)]
    assert life["rows"] == 1


def test_the_last_epoch_needs_no_closing_line(play: Play) -> None:
    open_ended = play(V, W, {"create": "q1", "sql": Q1}, v(1000), w(1500))
    assert open_ended.rows("q1") == [(1000, 2000, 1, "DE", 7)]
    assert open_ended.report["epochs"] == 1
    assert play(V, EPOCH, EPOCH).report["epochs"] == 2
    assert play().report["epochs"] == 0


def test_watermarks_make_tuples_late_and_lateness_accepts_them(play: Play) -> None:
    strict, patient = V, {**V, "allowed_lateness_ms": 500}
    for stream, dropped in ((strict, 2), (patient, 1)):
        done = play(stream, {"watermark": "V", "ts": 2000}, v(1000), EPOCH, v(1000), v(1600), v(2000), EPOCH)
        assert done.report["late_dropped"] == {"V": dropped}
        assert done.report["tuples"] == {"V": 4 - dropped}


def test_broken_rows_are_dead_letters_not_errors(play: Play) -> None:
    done = play(
        V, W, {"create": "q1", "sql": Q1},
        v(None), v("soon"), v(1000, "x"), {"event": "V", "row": {}}, v(1000), w(1000),
    )  # fmt: skip
    assert done.report["dead_letter"] == {"V": 4, "W": 0}
    assert done.rows("q1") == [(1000, 2000, 1, "DE", 7)]


def test_flush_closes_what_is_open(play: Play) -> None:
    lines = (
        V,
        W,
        {"create": "q1", "sql": Q1},
        v(1000),
        w(1500),
        EPOCH,
        {"delete": "q1", "expect_error": False},
    )
    assert play(*lines, flush=False).queries["q1"]["active_until"] == 1000
    assert play(*lines).rows("q1") == [(1000, 2000, 1, "DE", 7)]


LIFE: tuple[Line, ...] = (
    V, W, C, {"create": "q1", "sql": Q1}, {"create": "q2", "sql": Q2},
    v(1000), w(1100), c(1200), v(1300, 2), EPOCH,
    w(1900, 2, 8), c(2100, 8), w(2300), EPOCH,
    v(2900), c(3100), w(3500, 2, 8), v(3600, 2), EPOCH,
    c(3700, 8, 1.25), EPOCH,
)  # fmt: skip


# video 1, user 7:  V 1000 2900   W 1100 2300   C 1200 3100
# video 2, user 8:  V 1300 3600   W 1900 3500   C 2100 3700 (the last scores 1.25)
Q2_ROWS = [
    (0, 2000, 1, 0.5),
    (1000, 3000, 1, 0.5),
    (1000, 3000, 1, 0.5),
    (1000, 3000, 1, 0.5),
    (1000, 3000, 1, 0.5),
    (1000, 3000, 2, 0.5),
    (2000, 4000, 1, 0.5),
    (2000, 4000, 2, 0.5),
    (2000, 4000, 2, 1.25),
    (3000, 5000, 2, 1.25),
]


@pytest.mark.parametrize(
    "extra",
    [
        {"restart": "graceful"},
        {"restart": "kill"},
        {"optimize": "full"},
        {"optimize": "incremental"},
        {"force": {"query": "q2", "order": ["V", ["W", "C"]]}},
        {"force": {"groups": {"q1": 0, "q2": 1}}},
        {"scale": {"partitions": 5}},
        {"scale": {"split": {"partition": 0, "ways": 3}}},
    ],
    ids=lambda line: json.dumps(line),
)
def test_nothing_between_two_tuples_changes_a_row(play: Play, extra: Line) -> None:
    plain = play(*LIFE)
    assert plain.rows("q2") == Q2_ROWS
    disturbed: list[Line] = []
    for line in LIFE:
        disturbed += [line, extra] if "event" in line or "epoch" in line else [line]
    other = play(*disturbed)
    for id in ("q1", "q2"):
        assert other.rows(id) == plain.rows(id)
        assert other.queries[id] == plain.queries[id]
    assert other.report["tuples"] == plain.report["tuples"]


def test_files_are_read_in_order_with_the_rows_around_them(play: Play, tmp_path: Path) -> None:
    rows = [{"ts": 1000, "vID": 1, "geo": "DE"}, {"ts": 1001, "vID": 1, "geo": "US"}]
    table = pa.Table.from_pylist(rows, pa.schema({"ts": pa.timestamp("ms"), "vID": pa.int64(), "geo": pa.string()}))
    pq.write_table(table, tmp_path / "v.parquet")
    (tmp_path / "v.csv").write_text("ts,vID,geo\n1000,1,DE\n1001,1,US\n")
    (tmp_path / "v.jsonl").write_text("\n".join(map(json.dumps, rows)))
    expected = play(V, W, {"create": "q1", "sql": Q1}, v(1000), v(1001, 1, "US"), w(1500))
    assert len(expected.results) == 2
    for name in ("v.parquet", "v.csv", "v.jsonl"):
        done = play(V, W, {"create": "q1", "sql": Q1}, {"events": "V", "file": name}, w(1500))
        assert done.rows("q1") == expected.rows("q1"), name


def test_an_expected_error_is_recorded_and_the_run_goes_on(play: Play) -> None:
    done = play(
        V,
        {**V, "expect_error": True},
        {"stream": "X", "schema": {"ts": "BLOB"}, "time": "ts", "expect_error": True},
        {"create": "q1", "sql": "SELECT", "expect_error": True},
        {"create": "q1", "sql": Q1, "expect_error": True},
        {"delete": "q9", "expect_error": True},
        {"event": "X", "row": {}, "expect_error": True},
        {"events": "V", "file": "missing.parquet", "expect_error": True},
        {"scale": {"partitions": 0}, "expect_error": True},
        {"scale": {"split": {"partition": 99, "ways": 2}}, "expect_error": True},
        {"force": {"query": "q9", "order": ["V", "W"]}, "expect_error": True},
        {"watermark": "X", "ts": 1, "expect_error": True},
        {**v(1000), "expect_error": True},
        EPOCH,
    )
    assert [e["line"] for e in done.report["errors"]] == [2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 8]
    assert all(e["reason"].isupper() and e["message"] for e in done.report["errors"])
    assert done.report["tuples"] == {"V": 1}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"create": "q2", "sql": "SELECT nothing"}, ""),
        ({"create": "q2", "sql": Q1.replace("V.geo", "V.goe")}, "goe"),
        ({"create": "q1", "sql": Q1}, "q1"),
        ({"create": "a/b", "sql": Q1}, "a/b"),
        ({"delete": "q9"}, "q9"),
        ({"scale": {"partitions": 0}}, "0"),
        ({"force": {"query": "q9", "order": ["V", "W"]}}, "q9"),
        ({"force": {"query": "q1", "order": ["V", "X"]}}, "X"),
        ({"force": {"groups": {"q9": 1}}}, "q9"),
        (V, "V"),
        ({"stream": "X", "schema": {"ts": "STRING"}, "time": "ts"}, "STRING"),
        ({"stream": "X", "schema": {"ts": "TIMESTAMP"}, "time": "t"}, "'t'"),
    ],
    ids=lambda value: json.dumps(value)[:60],
)  # fmt: skip
def test_a_rejected_line_ends_the_run_and_is_named(play: Play, line: Line, words: str) -> None:
    with pytest.raises(ScenarioError) as rejected:
        play(V, W, {"create": "q1", "sql": Q1}, line, EPOCH)
    assert rejected.value.line == 4
    assert str(rejected.value).startswith("line 4: ")
    assert words in str(rejected.value)
    assert rejected.value.reason not in ("INTERNAL", "SCENARIO_INVALID")


def test_an_id_can_be_used_again(play: Play) -> None:
    create: Line = {"create": "q1", "sql": Q1}
    done = play(V, W, create, v(1000), w(1500), EPOCH, {"delete": "q1"}, create, v(2000), w(2500), EPOCH)
    assert done.rows("q1") == [(1000, 2000, 1, "DE", 7), (2000, 3000, 1, "DE", 7)]
    assert (done.queries["q1"]["state"], done.queries["q1"]["rows"]) == ("RUNNING", 1)


def test_values_without_a_word_in_json_are_strings() -> None:
    table = pa.table(
        {
            "window_start": pa.array([0] * 4, pa.timestamp("ms")),
            "window_end": pa.array([1] * 4, pa.timestamp("ms")),
            "x": [float("nan"), float("inf"), float("-inf"), 0.1],
            "t": pa.array([None, -5, 0, 1 << 60], pa.timestamp("ms")),
        }
    )
    rows = [line["row"] for line in json_rows(table, ["x", "t"])]
    assert [r["x"] for r in rows] == ["NaN", "Infinity", "-Infinity", 0.1]
    assert [r["t"] for r in rows] == [None, -5, 0, 1 << 60]


def test_a_window_bound_can_be_selected(play: Play) -> None:
    sql = "SELECT window_start, V.ts FROM V JOIN W ON V.vID = W.vID WINDOW TUMBLING (SIZE 1 SECOND)"
    (row,) = play(V, W, {"create": "q1", "sql": sql}, v(1200), w(1500)).results
    assert (row["window_start"], row["window_end"]) == (1000, 2000)
    assert row["row"] == {"window_start": 1000, "ts": 1200}
