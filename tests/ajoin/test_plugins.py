"""Plug-ins from SQL to rows: what they bring works like what is built in, and without them nothing pretends to."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from ajoin.cli import app
from ajoin.config import load as load_settings
from ajoin.platform import launch
from ajoin.testing import LocalEngine
from optimizer.errors import AlreadyExists, FailedPrecondition, InvalidRequest, SqlError
from optimizer.model.expressions import Aggregate
from runtime import plugins
from runtime.aggregates import plugins as aggregates
from runtime.api import QueryState
from runtime.log import codec
from runtime.windows import plugins as windows
from runtime.windows import registry
from tests.ajoin.world import WAIT, running

GEO_MEAN, CALENDAR = "ajoin.examples.geo_mean", "ajoin.examples.calendar_windows"
TROUBLE = "tests.ajoin.troublesome_plugin"
EXAMPLES = (GEO_MEAN, CALENDAR)
S = {"k": "BIGINT", "x": "DOUBLE", "ts": "TIMESTAMP"}
DAY = 86_400_000
FIRST = 1_704_067_200_000  # 1 January 2024, UTC


TABLES = (aggregates._registered, aggregates._modules, windows._registered, registry.KINDS)
TABLES += (codec._CLASSES, codec._FIELDS, codec._BROUGHT)


@pytest.fixture
def forgotten():
    """This process as if no plug-in had ever been loaded, until the test ends; a function that does it again."""
    modules = {name: sys.modules.get(name) for name in (GEO_MEAN, CALENDAR, TROUBLE)}
    before, loaded = [dict(table) for table in TABLES], list(plugins._loaded)

    def forget():
        theirs = [kind for kind in codec._BROUGHT if kind is not Aggregate]
        for table in TABLES[:3]:
            table.clear()
        for kind in theirs:
            for key, table in zip((kind, kind.__name__, kind, kind), TABLES[3:], strict=True):
                del table[key]
        for name in modules:
            sys.modules.pop(name, None)
        plugins._loaded.clear()

    forget()
    yield forget
    for table, content in zip(TABLES, before, strict=True):
        table.clear()
        table.update(content)
    plugins._loaded[:] = loaded
    for name, module in modules.items():
        sys.modules.pop(name, None)
        if module is not None:
            sys.modules[name] = module


@pytest.fixture
def engine():
    with LocalEngine(plugins=(*EXAMPLES, TROUBLE)) as made:
        made.create_stream("S", columns=S)
        made.create_stream("R", columns={"k": "BIGINT", "y": "BIGINT", "ts": "TIMESTAMP"})
        yield made


# -- statements -----------------------------------------------------------------------------------------------------


def refused(engine, sql, reason):
    with pytest.raises(SqlError) as error:
        engine.create_query(sql, id="refused")
    assert error.value.reason == reason
    return str(error.value)


def test_what_is_not_loaded_is_not_known_and_the_error_says_how_to_load_it(forgotten):
    with LocalEngine() as engine:
        engine.create_stream("S", columns=S)
        said = refused(engine, "SELECT GEO_MEAN(x) AS g FROM S WINDOW TUMBLING (SIZE 1 DAY)", "UNSUPPORTED_FUNCTION")
        assert "GEO_MEAN" in said and "--plugin" in said
        said = refused(engine, "SELECT COUNT(*) FROM S WINDOW CALENDAR (MONTH)", "INVALID_WINDOW")
        assert "CALENDAR" in said and "--plugin" in said


@pytest.mark.parametrize(
    ("window", "words"),
    [
        ("CALENDAR (FORTNIGHT)", "'FORTNIGHT' is no unit"),
        ("CALENDAR ()", "0 arguments (write WINDOW CALENDAR (unit [, 'time zone'])"),
        ("CALENDAR (DAY, 'UTC', 3)", "3 arguments"),
        ("CALENDAR (DAY, 'Mars/Olympus')", "no time zone"),
        ("CALENDAR (DAY, '../../etc/passwd')", "no time zone"),
        ("CALENDAR (3 DAYS)", "is no unit"),
        ("CALENDAR (DAY + 1)", "expected ','"),
        ("CALENDAR (NULL + 1)", "expected ','"),
        ("CALENDAR (S.k)", "a number, a text or a length of time"),
        ("CALENDAR (DAY", "expected ')'"),
        ("CALENDAR (DAY,)", "onstant"),
        ("CALENDAR DAY", "expected '('"),
        ("CALENDER (DAY)", "did you mean CALENDAR"),
        ("CALENDAR (DAY) STATE_TTL 1 DAY", "STATE_TTL"),
    ],
)
def test_windows_that_are_refused(engine, window, words):
    with pytest.raises(SqlError) as error:
        engine.create_query(f"SELECT COUNT(*) FROM S WINDOW {window}", id="q")
    assert words in str(error.value) and error.value.line == 1


def test_windows_without_a_shape_are_for_one_stream(engine):
    for what in ("x, y", "COUNT(*)"):
        sql = f"SELECT {what} FROM S JOIN R ON S.k = R.k WINDOW CALENDAR (MONTH)"
        assert "CALENDAR is for one stream" in refused(engine, sql, "UNSUPPORTED_WINDOW")


def test_a_window_is_shown_as_it_can_be_written(engine):
    for written in ("CALENDAR (MONTH)", "CALENDAR (WEEK, 'Europe/Berlin')"):
        engine.create_query(f"SELECT k FROM S WINDOW {written}", id=written)
        assert engine.engine.state.running[f"{written}#{engine.engine.state.serial}"].query.window.sql == written


def test_clients_can_use_plugins_but_not_bring_them(tmp_path, forgotten):
    sql = "SELECT GEO_MEAN(x) AS g FROM S WINDOW CALENDAR (DAY)"
    with running(tmp_path) as world:
        world.client.create_stream("S", columns=S, time="ts", source="push")
        for window in ("TUMBLING (SIZE 1 DAY)", "CALENDAR (DAY)"):
            with pytest.raises(SqlError, match="--plugin"):
                world.client.create_query(f"SELECT GEO_MEAN(x) AS g FROM S WINDOW {window}", id="q")
        with pytest.raises(SqlError):
            world.client.create_query("SELECT COUNT(*) FROM S WINDOW CALENDAR (DAY)", id="q")
        assert plugins.loaded() == ()
        plugins.load(EXAMPLES)
        world.client.create_query(sql, id="q")
        world.feed({"S": [{"k": 1, "x": x, "ts": 5} for x in (2.0, 8.0)]}, watermark=2 * DAY)
        (row,) = world.client.results("q", limit=1, timeout=WAIT)
        assert row["g"] == pytest.approx(4.0)


# -- failing plug-ins -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("TEST_RAISES", "TEST_RAISES failed in lift: ValueError: thirteen"),
        ("TEST_FULL", "TEST_FULL failed in lift: OSError"),
        ("TEST_SHORTENS", "TEST_SHORTENS gave an array of shape (3,) for 4 entries"),
        ("TEST_LATE", "TEST_LATE failed in lower: KeyError"),
    ],
)
def test_a_query_whose_plugin_fails_is_suspended_and_others_go_on(engine, function, words):
    window = "WINDOW TUMBLING (SIZE 1 SECOND)"
    engine.create_query(f"SELECT {function}(x) AS v FROM S {window}", id="bad")
    engine.create_query(f"SELECT TEST_PLAIN(x) AS v FROM S {window}", id="good")
    engine.push("S", *({"k": 1, "x": float(x), "ts": 100 + x} for x in (1, 2, 3)))
    engine.raise_watermark(1000)
    engine.run_epoch()
    engine.push("S", *({"k": 1, "x": float(x), "ts": 1100 + x} for x in (1, 2, 13, 3)))
    engine.raise_watermark(2000)
    engine.run_epoch()
    engine.push("S", {"k": 1, "x": 5.0, "ts": 2100})
    engine.raise_watermark(3000)
    engine.run_epoch()
    assert [r["v"] for r in engine.rows("good")] == [6, 19, 5]
    bad = engine.engine.query("bad")
    assert bad.state == QueryState.SUSPENDED and words in bad.suspended
    assert [r["v"] for r in engine.rows("bad")] == [6]


# -- loading --------------------------------------------------------------------------------------------------------


def test_a_state_needs_the_plugins_of_its_queries(tmp_path, forgotten):
    sql = {
        GEO_MEAN: "SELECT GEO_MEAN(x) AS g FROM S WINDOW TUMBLING (SIZE 1 DAY)",
        CALENDAR: "SELECT COUNT(*) AS g FROM S WINDOW CALENDAR (MONTH)",
    }
    for module, text in sql.items():
        for kill in (False, True):
            directory = tmp_path / f"{module}-{kill}"
            engine = LocalEngine(directory, plugins=[module])
            engine.create_stream("S", columns=S)
            engine.create_query(text, id="q")
            engine.push("S", {"k": 1, "x": 2.0, "ts": 5}, {"k": 1, "x": 8.0, "ts": 6})
            engine.run_epoch()
            if kill:
                engine.engine.abandon()
            else:
                engine.close()
            forgotten()
            with pytest.raises(FailedPrecondition, match=f"--plugin {module}") as error:
                LocalEngine(directory)
            assert error.value.reason == "PLUGIN_MISSING"
            found = CliRunner().invoke(app, ["state", "inspect", "--state-dir", str(directory)])
            assert found.exit_code == 1 and "PLUGIN_MISSING" in found.stderr
            with LocalEngine(directory, plugins=[module]) as again:
                again.raise_watermark(40 * DAY)
                again.run_epoch()
                assert [r["g"] for r in again.rows("q")] == [pytest.approx(4.0) if module == GEO_MEAN else 2]
            forgotten()


def test_state_tools_load_the_plugins_of_the_configuration(tmp_path, forgotten, monkeypatch):
    with LocalEngine(tmp_path, plugins=[CALENDAR]) as engine:
        engine.create_stream("S", columns=S)
        engine.create_query("SELECT k FROM S WINDOW CALENDAR (YEAR)", id="q")
    forgotten()
    monkeypatch.setenv("AJOIN_PLUGINS", f"{GEO_MEAN}, {CALENDAR}")
    found = CliRunner().invoke(app, ["state", "verify", "--state-dir", str(tmp_path)])
    assert found.exit_code == 0, found.output
    assert plugins.loaded() == (GEO_MEAN, CALENDAR)


def test_a_record_of_the_log_cannot_load_code(forgotten):
    record = {"$": "Aggregate", "$plugin": TROUBLE, "function": "TEST_PLAIN", "arguments": [], "type": "BIGINT"}
    with pytest.raises(FailedPrecondition, match=TROUBLE):
        codec.decode({**record, "parameters": [], "where": None})
    with pytest.raises(FailedPrecondition, match="os"):
        codec.decode({"$": "system", "$plugin": "os"})
    assert TROUBLE not in sys.modules


@pytest.mark.parametrize(("text", "said"), [(None, "ModuleNotFoundError"), ("1 / 0", "ZeroDivisionError")])
def test_a_plugin_that_cannot_be_imported_is_a_mistake_of_the_command(tmp_path, monkeypatch, text, said):
    monkeypatch.syspath_prepend(tmp_path)
    if text is not None:
        (tmp_path / "no_plugin.py").write_text(text)
    for flags in (["--plugin", "no_plugin"], ["--set", "plugins=no_plugin"]):
        state = str(tmp_path / "state")
        done = CliRunner().invoke(app, ["serve", "--set", "executor=local", "--state-dir", state, *flags])
        assert done.exit_code == 2, done.output
        assert "CONFIG_PLUGIN" in done.stderr and "no_plugin" in done.stderr and said in done.stderr
        assert not Path(state).exists()
    assert "no_plugin" not in plugins.loaded()


def test_flags_and_settings_name_plugins():
    assert load_settings({"plugins": "a, b.c"}).settings.plugins == ("a", "b.c")
    done = CliRunner().invoke(app, ["serve", "--plugin", "a", "--plugin", "b", "--print-config", "--json"])
    assert json.loads(done.stdout)["settings"]["plugins"] == ["a", "b"]


def test_installed_packages_offer_plugins(tmp_path, monkeypatch, forgotten):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "their_plugin.py").write_text("import ajoin.examples.geo_mean\n")
    folder = tmp_path / "theirs-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[ajoin.plugins]\nmeans = their_plugin\n")
    launch.load_plugins(load_settings({"plugins": [CALENDAR]}).settings)
    assert plugins.loaded() == ("their_plugin", CALENDAR)
    assert aggregates.module_of("GEO_MEAN") == "their_plugin"


def test_a_replay_with_plugins(tmp_path):
    """In a process of its own, where nothing is loaded yet."""
    lines = [
        {"stream": "S", "schema": S, "time": "ts"},
        {"create": "q", "sql": "SELECT GEO_MEAN(x) AS g FROM S WINDOW CALENDAR (MONTH)"},
        {"event": "S", "row": {"k": 1, "x": 2.0, "ts": 5}},
        {"event": "S", "row": {"k": 1, "x": 18.0, "ts": 30 * DAY}},
        {"event": "S", "row": {"k": 1, "x": 7.0, "ts": 31 * DAY}},
        {"epoch": True},
    ]
    scenario = tmp_path / "scenario.jsonl"
    scenario.write_text("\n".join(map(json.dumps, lines)))
    command = [sys.executable, "-c", "from ajoin.cli import main; main()", "replay", str(scenario), "--out"]
    command += [str(tmp_path / "out"), "--set", "executor=local", "--set", f"plugins={GEO_MEAN},{CALENDAR}"]
    subprocess.run(command, check=True, capture_output=True)
    rows = [json.loads(line)["row"] for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    assert [row["g"] for row in rows] == [pytest.approx(6.0), pytest.approx(7.0)]


# -- registering ----------------------------------------------------------------------------------------------------


def test_names_that_cannot_be_registered():
    plugins.load(EXAMPLES)
    mean, months = aggregates.get("GEO_MEAN"), windows._registered["CALENDAR"]
    plugins.register_aggregate(mean)  # again: nothing happens
    plugins.register_window(months)
    for name in ("SUM", "ABS", "PERCENTILE_CONT", "CAST", "geo", "A B"):
        with pytest.raises((AlreadyExists, InvalidRequest), match=name):
            plugins.register_aggregate(replace(mean, function=replace(mean.function, name=name)))
    for name in ("TUMBLING", "CALENDAR", "calendar", "A-B"):
        with pytest.raises((AlreadyExists, InvalidRequest), match=name):
            plugins.register_window(replace(months, name=name, usage="other"))
    with pytest.raises(InvalidRequest, match="frozen"):
        plugins.register_window(replace(months, name="OTHER", value=SimpleNamespace))


# -- on Spark -------------------------------------------------------------------------------------------------------


def test_plugins_run_on_spark(tmp_path, spark):
    """Workers that were forked before the plug-ins were loaded load them; a failing one is found there too."""
    with LocalEngine(tmp_path, executor=spark, plugins=(*EXAMPLES, TROUBLE)) as engine:
        engine.create_stream("S", columns=S)
        engine.create_query("SELECT k, GEO_MEAN(x) AS g FROM S GROUP BY k WINDOW CALENDAR (MONTH, 'UTC')", id="good")
        engine.create_query("SELECT TEST_RAISES(x) AS v FROM S WINDOW CALENDAR (MONTH, 'Europe/Berlin')", id="bad")
        engine.push("S", *({"k": k, "x": x, "ts": k * 31 * DAY} for k in (0, 1) for x in (2.0, 32.0)))
        engine.run_epoch()
        engine.restart()
        engine.push("S", {"k": 2, "x": 13.0, "ts": 70 * DAY})
        engine.run_epoch()
        month = round(datetime(1970, 2, 1, tzinfo=UTC).timestamp() * 1000)
        found = [(r["window_start"], r["k"], round(r["g"], 9)) for r in engine.rows("good")]
        assert sorted(found) == [(0, 0, 8.0), (month, 1, 8.0)]
        bad = engine.engine.query("bad")
        assert bad.state == QueryState.SUSPENDED and "thirteen" in bad.suspended
