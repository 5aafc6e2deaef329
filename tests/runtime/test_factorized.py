"""EMIT FACTORIZED: lists instead of their product, and back."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ajoin.sql import parse_query
from optimizer.model.query import Output
from runtime.api import CreateQuery, ForceOrder, ScaleTo, SplitPartition
from runtime.connectors.base import ConnectorSpec
from runtime.operators import factorize, matches
from runtime.results.factorized import Layout, expand, list_array
from tests.builders import stream
from tests.runtime.rig import Rig, plain

TUMBLING = "WINDOW TUMBLING (SIZE 10 MILLISECONDS)"
HOPPING = "WINDOW HOPPING (SIZE 10 MILLISECONDS, ADVANCE BY 4 MILLISECONDS)"


def rig_of(tmp_path, *names, **config) -> Rig:
    rig = Rig(tmp_path, **config)
    for name in names or ("A", "B"):
        rig.stream(name, k="BIGINT", v="BIGINT", s="STRING")
    return rig


def t(ts, k=1, v=0, s="x"):
    return (k, v, s, ts)


def tables(rig, id):
    return [pa.Table.from_batches([b.rows]) for b in rig.engine.read_results(id, None, 1 << 30)]


def both(rig, select, rest):
    rig.create("rows", f"SELECT {select} {rest}")
    rig.create("lists", f"SELECT {select} {rest} EMIT FACTORIZED")


def assert_same(rig):
    """Same schema, same bag of rows, same number of rows reported."""
    rows, lists = tables(rig, "rows"), [expand(x) for x in tables(rig, "lists")]
    assert rows[0].schema.remove_metadata() == lists[0].schema.remove_metadata()
    order = lambda r: [(x is None, x) for x in r]  # noqa: E731
    given = sorted((r for x in rows for r in plain(x.combine_chunks().to_batches()[0])), key=order)
    back = sorted((r for x in lists for r in plain(x.combine_chunks().to_batches()[0])), key=order)
    assert given == back
    assert rig.engine.query("lists").rows == rig.engine.query("rows").rows == len(given)


def test_one_key_is_one_row_with_two_lists(tmp_path):
    rig = rig_of(tmp_path)
    rig.create("q", f"SELECT B.v AS w, A.v, A.s FROM A JOIN B ON A.k = B.k {TUMBLING} EMIT FACTORIZED")
    rig.epoch({"A": [t(1, v=1), t(2, v=2), t(3, v=3, s=None)], "B": [t(4, v=7), t(5, v=8), t(6, k=2)]})
    (table,) = tables(rig, "q")
    assert table.schema.names == ["window_start", "window_end", "A", "B"]
    (row,) = table.select(["A", "B"]).to_pylist()
    assert row["A"] == [{"v": 1, "s": "x"}, {"v": 2, "s": "x"}, {"v": 3, "s": None}]
    assert row["B"] == [{"w": 7}, {"w": 8}]
    assert rig.engine.query("q").rows == 6
    assert expand(table).schema.names == ["window_start", "window_end", "w", "v", "s"]
    assert expand(table).num_rows == 6


@pytest.mark.parametrize(
    "select",
    [
        "*",
        "A.v",
        "window_start, B.s, window_end AS until, A.v * 2 AS y",
        "A.v + B.v AS mixed, A.s",
        "1 AS one, B.ts - window_start AS age, A.k",
    ],
)
@pytest.mark.parametrize("window", [TUMBLING, HOPPING])
def test_expanded_it_is_the_same_table_as_rows(tmp_path, select, window):
    rig = rig_of(tmp_path)
    both(rig, select, f"FROM A JOIN B ON A.k = B.k WHERE A.v <> 3 {window}")
    for first in (0, 5, 9):
        tuples = [t(first + i % 6, k=i % 2, v=i, s="xyz"[i % 3]) for i in range(12)]
        rig.epoch({"A": tuples, "B": tuples[2:]})
    assert_same(rig)


@pytest.mark.parametrize("condition", ["A.s = B.s", "A.k = B.k AND A.v < B.v"])
def test_queries_that_must_look_at_rows_get_lists_of_one(tmp_path, condition):
    rig = rig_of(tmp_path)
    both(rig, "A.v, B.v AS w", f"FROM A JOIN B ON {condition} {TUMBLING}")
    tuples = [t(i % 6, k=i % 2, v=i, s="xyz"[i % 3]) for i in range(12)]
    rig.epoch({"A": tuples, "B": tuples})
    assert_same(rig)
    assert all(len(r["A"]) == len(r["B"]) == 1 for x in tables(rig, "lists") for r in x.to_pylist())


@pytest.mark.parametrize("order", [(("A", "B"), ("C", "D")), ((("A", "B"), "C"), "D"), ("A", ("B", ("C", "D")))])
def test_nested_joins_keep_closed_lists(tmp_path, order):
    rig = rig_of(tmp_path, "A", "B", "C", "D")
    joined = "FROM A JOIN B ON A.k = B.k JOIN C ON B.v = C.v JOIN D ON C.k = D.k"
    both(rig, "A.v, D.s, C.ts", f"{joined} WHERE A.v <> 2 {HOPPING}")
    for id in ("rows", "lists"):
        rig.control(ForceOrder(id, order))
    rig.control(ScaleTo(2))
    rig.control(SplitPartition(1, 3))
    for first in (0, 4):
        for name in "ABCD":
            rig.epoch({name: [t(first + i % 5, k=i % 2, v=i % 4) for i in range(9)]})
    assert_same(rig)
    lists = [r for x in tables(rig, "lists") for r in x.to_pylist()]
    assert len(lists) * 2 < rig.engine.query("lists").rows, "some lists stayed closed"
    assert all(item is None for r in lists for item in r["B"]), "nothing of B is selected, only its number counts"


def test_a_hot_key_is_delivered_without_laying_out_a_single_pair(tmp_path, monkeypatch):
    monkeypatch.setattr(matches, "pairs", None)
    monkeypatch.setattr(factorize, "LONGEST", 1000)
    rig = rig_of(tmp_path)
    rig.create("q", f"SELECT A.v, B.v AS w FROM A JOIN B ON A.k = B.k {TUMBLING} EMIT FACTORIZED")
    rig.epoch({"A": [t(1, v=i) for i in range(2500)], "B": [t(2, v=i) for i in range(1700)]})
    rows = [r for x in tables(rig, "q") for r in x.to_pylist()]
    assert sorted((len(r["A"]), len(r["B"])) for r in rows) == sorted(
        (a, b) for a in (1000, 1000, 500) for b in (1000, 700)
    )
    assert sum(len(r["A"]) * len(r["B"]) for r in rows) == rig.engine.query("q").rows == 2500 * 1700


def test_small_flushes_change_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(factorize, "FLUSH", 7)
    rig = rig_of(tmp_path)
    both(rig, "*", f"FROM A JOIN B ON A.k = B.k {HOPPING}")
    tuples = [t(i % 17, k=i % 5, v=i) for i in range(40)]
    rig.epoch({"A": tuples, "B": tuples})
    rig.epoch({"A": tuples[20:], "B": tuples[30:]})
    assert_same(rig)


def test_a_parquet_sink_keeps_the_lists(tmp_path):
    rig = rig_of(tmp_path / "state", allowed_roots=(tmp_path,))
    sql = f"SELECT A.v FROM A JOIN B ON A.k = B.k {TUMBLING} EMIT FACTORIZED"
    sink = ConnectorSpec("parquet", (("path", str(tmp_path / "out")),))
    rig.control(CreateQuery("q", parse_query(sql, rig.engine.schemas()), (sink,)))
    rig.epoch({"A": [t(1, v=1), t(2, v=2)], "B": [t(3), t(4)]})
    (file,) = (tmp_path / "out" / "q").iterdir()
    assert sorted(expand(pq.read_table(file)).column("v").to_pylist()) == [1, 1, 2, 2]


def test_expand_leaves_other_tables_alone():
    table = pa.table({"a": [1, 2]})
    assert expand(table) is table


def test_expand_of_slices_and_of_several_chunks():
    column = pa.array([1, 2, 3, 4, 5])
    lists = list_array([0, 2, 2, 5], [column], ["v"])
    ones = list_array([0, 1, 3, 5], [], [])
    bounds = [pa.array([0, 10, 20], pa.timestamp("ms"))] * 2
    query = parse_query(f"SELECT A.v FROM A JOIN B ON A.v = B.v {TUMBLING}", {n: _schema(n) for n in ("A", "B")})
    batch = Layout.of(["A", "B"], query.outputs).batch(bounds, [], [lists, ones])
    whole = pa.Table.from_batches([batch])
    assert expand(whole).column("v").to_pylist() == [1, 2, 3, 3, 4, 4, 5, 5]
    assert expand(whole.slice(2)).column("v").to_pylist() == [3, 3, 4, 4, 5, 5]
    twice = expand(pa.concat_tables([whole, whole.slice(0, 1)]))
    assert twice.column("v").to_pylist() == [1, 2, 3, 3, 4, 4, 5, 5, 1, 2]
    assert expand(whole.slice(1, 1)).num_rows == expand(whole.schema.empty_table()).num_rows == 0


def test_the_layout_puts_every_output_in_one_place():
    query = parse_query(
        f"SELECT B.v AS w, window_start, A.v + B.v AS m, window_end AS e, A.v FROM A JOIN B ON A.v = B.v {TUMBLING}",
        {n: _schema(n) for n in ("A", "B")},
    )
    layout = Layout.of(["A", "B"], query.outputs)
    names = lambda outputs: [o.name for o in outputs if isinstance(o, Output)]  # noqa: E731
    assert names(layout.plain) == ["m", "e"]
    assert [(alias, names(outputs)) for alias, outputs in layout.lists] == [("A", ["v"]), ("B", ["w"])]
    assert layout.order == ("w", "m", "e", "v")


def _schema(name):
    return stream(name, v="BIGINT")
