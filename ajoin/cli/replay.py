"""`ajoin replay`: a recorded scenario through the real engine."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from ajoin.cli.shell import ConfigOption, JsonFlag, MasterOption, console, print_json, waiting
from ajoin.config import Config, load, parse_assignments
from ajoin.replay.output import QUERIES, REPORT, RESULTS, Report
from ajoin.replay.scenario import ScenarioError, read


def replay(
    scenario: Annotated[Path, typer.Argument(help="The scenario, one JSON object a line.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", help="Folder for the results.", metavar="DIR", file_okay=False)],
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Any setting, e.g. partitions=4.", metavar="KEY=VALUE")
    ] = None,
    flush: Annotated[bool, typer.Option("--flush/--no-flush", help="At the end, close all open windows.")] = True,
    spark_master: MasterOption = None,
    verbose: Annotated[bool | None, typer.Option("--verbose", help="Show what Spark logs.")] = None,
    config: ConfigOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Run a recorded scenario and write results.jsonl, queries.json and report.json."""
    steps = read(scenario)
    flags = parse_assignments(set_ or [])
    effective = load({"spark_master": spark_master, "verbose": verbose, **flags}, config)
    # Every row is written out in the epoch that finds it, so the result log must not drop any before that.
    settings = effective.settings.model_copy(update={"retention_bytes": 1 << 62})
    # Only now, when the scenario is known to be well formed: these imports bring in the engine and Spark.
    from ajoin.platform import launch
    from ajoin.replay import runner
    from runtime.delivery.schedule import InStep

    launch.configure_logging(settings)
    with (
        waiting("starting Spark" if settings.executor == "spark" else "starting") as say,
        _state_dir(effective) as state,
        launch.passing(settings) as own,
        launch.executor(settings) as executor,
    ):
        say("replaying")
        report = runner.run(
            steps,
            out,
            lambda: launch.open_engine(own, executor, state, delivery=InStep),
            flush=flush,
            limits=settings.limits,
            progress=lambda so_far, rows: say(f"replaying: epoch {so_far.epochs}, {rows:,} rows"),
        )
    _summary(out, report, as_json)


@contextmanager
def _state_dir(config: Config) -> Iterator[Path]:
    """A folder of its own for every run, unless this run names one; a replay must start from nothing."""
    if config.origins["state_dir"] != "flag":
        with tempfile.TemporaryDirectory(prefix="ajoin-replay-", ignore_cleanup_errors=True) as folder:
            yield Path(folder)
        return
    chosen = config.settings.state_dir
    if chosen.exists() and (not chosen.is_dir() or any(chosen.iterdir())):
        raise ScenarioError(
            f"the state directory {chosen} is not empty",
            hint="a replay starts from nothing; name a new folder",
        )
    yield chosen


def _summary(out: Path, report: Report, as_json: bool) -> None:
    files = {"report": out / REPORT, "results": out / RESULTS, "queries": out / QUERIES}
    if as_json:
        print_json({"files": files, **report.to_json()})
        return
    tuples, late, dead = (sum(counts.values()) for counts in (report.tuples, report.late_dropped, report.dead_letter))
    console().print(
        f"replayed [bold]{report.epochs}[/] {'epoch' if report.epochs == 1 else 'epochs'} and "
        f"[bold]{tuples:,}[/] tuples in {report.seconds['total']:.1f} s "
        f"(late and dropped: {late:,}, dead letters: {dead:,}, expected errors: {len(report.errors)})",
        soft_wrap=True,
    )
    console().print("wrote " + escape(", ".join(map(str, files.values()))), soft_wrap=True)
