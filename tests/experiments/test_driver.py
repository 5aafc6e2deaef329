"""The whole way on next to nothing: data, workers in processes of their own, row checks, results, report, plots."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from experiments.config import PARAMETERS, ConfigError, available, load, parse
from experiments.data import Dataset, DataSpec, make_chunk
from experiments.driver import Driver, agreement, make_queries, throughput
from experiments.report import save, stored, write_all, write_report
from experiments.systems.plans import ASPECTS, SAME, differences
from experiments.systems.registry import PLATFORMS, FlinkSystem, flink_installed, make_system
from experiments.template import TemplateQuery

pytest.importorskip("matplotlib", reason="plots need the optional dependency group bench")

TINY = """
title = "Tiny"
figure = "0"
paper = "Something rose."
systems = ["ajoin", "unshared", "astream", "kernels"]
[defaults]
data = { streams = 2, keys = 50, event_rate = 100, chunk_seconds = 6, chunks = 3 }
queries = { windows = [1, 2], selectivity = 0.5 }
run = { seconds = 0.01, time_limit = 120, warm_chunks = 1 }
[[panel]]
name = "throughput"
sweep = { "queries.count" = [1, 3] }
plot = { x = "queries.count", y = "throughput", log = "y" }
[[panel]]
name = "memory"
measure = "memory"
systems = ["ajoin"]
set = { queries = { count = 2 } }
plot = { x = "label", y = ["tuple_bytes", "index_bytes"] }
[[panel]]
name = "live"
measure = "live"
systems = ["ajoin", "kernels"]
plot = { kind = "stacked", x = "live.workload", y = ["share_source", "share_join", "share_sink"] }
[panel.set.live]
workload = "SC2"
rate = 4.0
parallel = 4
seconds = 2.0
tuples_per_second = 200.0
epoch_interval = 0.1
batch_interval = 0.1
[[panel]]
name = "changes"
measure = "changes"
systems = ["ajoin"]
set = { data = { streams = 3 }, queries = { count = 3, ways = 3 }, changes = { epochs = 8, every = 1, batch = 200 } }
[[claim]]
text = "it rises"
check = "rises"
panel = "throughput"
x = "queries.count"
y = "throughput"
[[target]]
id = "T"
text = "bytes"
value = { panel = "memory", column = "bytes_over_raw" }
at_most = 100
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("results")
    experiment = parse("tiny", TINY)
    driver = Driver(experiment, directory, executor="local")
    last: list[dict[str, object]] = []
    for records in driver.run():
        last = records
    assert len(last) == driver.runs() == 12
    save(directory, experiment, last, quick=False)
    write_report(directory)
    return directory


@pytest.fixture(scope="module")
def results(folder: Path) -> pd.DataFrame:
    return pd.read_parquet(folder / "results.parquet")


def test_all_systems_find_the_same_rows(results: pd.DataFrame) -> None:
    data = results[results["panel"] == "throughput"]
    applicable = data[~data["status"].str.startswith("not applicable")]
    assert set(applicable["status"]) == {"ok"}
    assert len(applicable) == 7  # the plain loop knows only one query
    assert set(applicable["rows_agree"]) == {"yes"}
    assert (applicable["rows_checked"] > 0).all()
    assert (applicable["throughput"] > 0).all()
    assert (applicable["peak_mb"] > 10).all()


def test_rows_are_those_of_a_plain_join(results: pd.DataFrame) -> None:
    experiment = parse("tiny", TINY)
    point = experiment.panels[0].points[1]
    spec = DataSpec(2, 50, 100, 6, 3, experiment.seed)
    expected = sum(plain_rows(spec, q) for q in make_queries(point, spec, experiment.seed, 3))
    mine = results[(results["panel"] == "throughput") & (results["queries.count"] == 3)]
    assert set(mine["rows_checked"].dropna()) == {expected}


def plain_rows(spec: DataSpec, q: TemplateQuery) -> int:
    sides = []
    for i, stream in enumerate(q.sources):
        frame = make_chunk(spec, stream, 0).to_pandas()
        s = q.selections[i]
        if s is not None:
            frame = frame.query(f"a{s.attribute} {s.operator} {s.value}")
        sides.append(pd.DataFrame({"w": frame["ts"] // (1000 * q.window_seconds), "k": frame[f"a{q.links[0][i]}"]}))
    return len(sides[0].merge(sides[1], on=["w", "k"]))


def test_memory_live_and_changes_are_measured(results: pd.DataFrame) -> None:
    by = {(r["panel"], r["system"]): r for _, r in results.iterrows()}
    memory = by[("memory", "ajoin")]
    assert memory["buffered_tuples"] > 0 and memory["index_bytes"] > 0
    assert memory["bytes_over_raw"] == pytest.approx(memory["bytes_per_tuple"] / memory["raw_bytes_per_tuple"])
    live = by[("live", "ajoin")]
    assert live["status"] == "ok" and live["requests"] > 0 and live["refused"] == 0
    assert 0 <= live["event_latency_min"] <= live["event_latency_p50"] <= live["event_latency_max"]
    assert live["deployment_latency_p50"] > 0
    assert by[("live", "kernels")]["status"].startswith("not applicable")
    changes = by[("changes", "ajoin")]
    assert changes["rows_equal"] == 1 and changes["changes"] == 8 and changes["rows_total"] > 0


def test_platforms_are_compared_by_the_plans_they_run(results: pd.DataFrame) -> None:
    data = results[(results["panel"] == "throughput") & results["system"].isin(("unshared", "astream"))]
    differs = {(r["system"], r["queries.count"]): r["plan_differs"] for _, r in data.iterrows()}
    for system in ("unshared", "astream"):  # one query: there is nothing to share, but the platform may scale itself
        assert differs[system, 1] in (SAME, "partitions")
    assert "buckets" in differs["unshared", 3]  # the optimizer may want a group for each of the three, too
    assert set(differs["astream", 3].split(", ")) <= {*ASPECTS, SAME}
    mine = {"warm": dict.fromkeys(ASPECTS, "a"), "end": dict.fromkeys(ASPECTS, "a")}
    later = mine | {"end": dict.fromkeys(ASPECTS, "a") | {"orders": "b"}}
    assert differences(mine, mine) == SAME and differences(mine, later) == "orders"


def test_what_has_been_measured_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = stored(folder, quick=False)
    assert len(before) == 12 and not stored(folder, quick=True)

    def nothing_is_started(*_: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr("experiments.driver.make_system", nothing_is_started)
    *_, last = Driver(parse("tiny", TINY), folder, executor="local", before=before).run()
    assert [r["key"] for r in last] == [r["key"] for r in before]
    assert [r["rows_agree"] for r in last] == [r.get("rows_agree", "") for r in before]


def test_report_and_plots(folder: Path) -> None:
    text = (folder / "report.md").read_text()
    assert "Something rose." in text
    assert "| it rises | " in text
    assert "| T | bytes | <= 100 |" in text
    for panel in ("throughput", "memory", "live"):
        assert f"({panel}.png)" in text
        assert (folder / f"{panel}.png").read_bytes().startswith(b"\x89PNG")
    assert not (folder / "data").exists() or not any((folder / "data").iterdir())


def test_one_report_of_everything(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "tiny").symlink_to(folder)
    index = write_all(tmp_path / "results", tmp_path / "kept").read_text()
    assert "| [Figure 0](tiny.md) | it rises | " in index and "| [T](tiny.md) | bytes | <= 100 |" in index
    assert "- throughput\n" in index  # not measured
    text = (tmp_path / "kept" / "tiny.md").read_text()
    pictures = {p.name for p in (tmp_path / "kept").glob("*.png")}
    assert pictures == {"tiny-throughput.png", "tiny-memory.png", "tiny-live.png"}
    assert all(f"({name})" in text for name in pictures)


def test_a_worker_that_does_not_answer_in_time_is_reported_and_replaced(tmp_path: Path) -> None:
    system = make_system("kernels", tmp_path)
    data = Dataset(DataSpec(2, 50, 100, 6, 1, 1), tmp_path)
    system.prepare(data, [TemplateQuery("q", ("S1", "S2"), ((0, 1),), (None, None), 1)])
    try:
        assert system.run(1, time_limit=0.0).status == "timed out"
        again = system.run(1, time_limit=120)
        assert again.finished and again.rows is not None and again.rows["q"] > 0
    finally:
        system.stop()


def test_agreement() -> None:
    assert agreement("a", {"a": {"q": 1}}) == ""
    assert agreement("a", {"a": {"q": 1}, "b": {"q": 1}}) == "yes"
    assert agreement("a", {"a": {"q": 1}, "b": {"q": 2}, "c": {"q": 1}}) == "no (not with b)"


def test_data_is_the_same_in_every_layout(tmp_path: Path) -> None:
    data = Dataset(DataSpec(2, 10, 50, 2, 3, 4), tmp_path)
    chunks = pq.read_table(data.prefix(2) / "S1").to_pandas()
    readers = [pq.read_table(f).to_pandas() for f in sorted((data.prefix(2, "readers") / "S1").iterdir())]
    assert len(readers) == 2
    assert all((np.diff(r["ts"]) >= 0).all() for r in readers)
    together = pd.concat(readers)
    columns = list(chunks.columns)
    assert chunks.sort_values(columns).to_numpy().tolist() == together.sort_values(columns).to_numpy().tolist()
    assert not chunks.equals(pq.read_table(data.prefix(2) / "S2").to_pandas())
    assert chunks["ts"].max() < 4000


@pytest.mark.parametrize("quick", [False, True])
def test_all_configurations_load(quick: bool) -> None:
    assert len(available()) >= 9
    for path in available():
        experiment = load(path, quick=quick)
        panels = {p.name for p in experiment.panels}
        assert all(c["panel"] in panels for c in experiment.claims)
        assert all(t["value"]["panel"] in panels for t in experiment.targets)
        for panel in experiment.panels:  # a comparison says what is compared
            assert set(panel.differs) >= set(panel.systems) & set(PLATFORMS) - {"ajoin"}, f"{path.stem}, {panel.name}"


def test_unknown_parameters_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"queries\.cuont"):
        parse("x", 'title = "x"\n[[panel]]\nname = "p"\nset = { "queries.cuont" = 1 }')
    with pytest.raises(ConfigError, match="there is no experiment"):
        load("nothing-like-it")


@pytest.mark.long
@pytest.mark.skipif(not flink_installed(), reason="Flink's environment is made by the first experiment that needs it")
def test_flink_finds_the_same_rows(tmp_path: Path) -> None:
    data = Dataset(DataSpec(3, 50, 100, 6, 2, 1), tmp_path)
    point = PARAMETERS | {"queries.ways": 3, "queries.selectivity": 0.5}
    queries = make_queries(point, data.spec, 1, 2)
    counted = {}
    for system in (FlinkSystem("flink", tmp_path / "flink.log"), make_system("ajoin", tmp_path, "local")):
        try:
            system.prepare(data, queries, point | {"measure": "throughput"})
            m = throughput(system, point | {"run.seconds": 0.1, "run.warm_chunks": 1}, data, 300)
            assert m.finished, m.status
            counted[system.name] = m.rows
        finally:
            system.stop()
    assert counted["flink"] == counted["ajoin"]
    assert all(counted["ajoin"].values())
