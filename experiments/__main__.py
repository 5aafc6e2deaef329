"""`python -m experiments run CONFIG`, `list`, `report`. What is measured is kept, so an interrupted run goes on."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from experiments.config import ConfigError, available, load
from experiments.driver import Driver, Record
from experiments.report import save, stored, write_all, write_report
from experiments.systems.registry import SYSTEMS

app = typer.Typer(add_completion=False, no_args_is_help=True, help="The experiments of the AJoin paper.")
console = Console()

RESULTS = Path(__file__).parent / "results"
KEPT = Path(__file__).parents[1] / "docs" / "results"


@app.command(name="list")
def list_experiments() -> None:
    """What can be run."""
    for path in available():
        e = load(path)
        console.print(
            f"[bold]{path.stem:14}[/] {'Figure ' + e.figure if e.figure else '':10} {e.title}", highlight=False
        )


@app.command()
def run(
    configs: Annotated[list[str], typer.Argument(help="names of experiments, or paths of TOML files; or all")],
    quick: Annotated[bool, typer.Option("--quick", help="the small variant, minutes instead of hours")] = False,
    out: Annotated[Path | None, typer.Option(help="results folder (default experiments/results/<name>)")] = None,
    systems: Annotated[str, typer.Option(help="only these, e.g. ajoin,flink")] = "",
    executor: Annotated[str, typer.Option(help="where the platform runs: spark or local")] = "spark",
    again: Annotated[bool, typer.Option("--again", help="measure what has been measured, too")] = False,
) -> None:
    """Run experiments one after the other and write their reports. Points that have results are not measured again."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that workers and their scratch directories go too
    chosen = tuple(s.strip() for s in systems.split(",") if s.strip()) or None
    if unknown := set(chosen or ()) - set(SYSTEMS):
        raise typer.BadParameter(f"there is no system {', '.join(sorted(unknown))}; there are {', '.join(SYSTEMS)}")
    if executor not in ("spark", "local"):
        raise typer.BadParameter("the executor is spark or local")
    if configs == ["all"]:
        configs = [path.stem for path in available()]
    for config in configs:
        try:
            experiment = load(config, quick=quick)
        except ConfigError as why:
            raise typer.BadParameter(str(why)) from why
        directory = (out if len(configs) == 1 else out / experiment.name) if out else RESULTS / experiment.name
        directory.mkdir(parents=True, exist_ok=True)
        with Progress(
            TextColumn("[bold]{task.fields[name]}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            TextColumn("{task.description}"), console=console,
        ) as progress:  # fmt: skip
            task = progress.add_task("starting", total=None, name=experiment.name)
            records: list[Record] = []

            def say(text: str, progress: Progress = progress, task: object = task) -> None:
                progress.update(task, description=text)  # type: ignore[arg-type]

            before = [] if again else stored(directory, quick=quick)
            driver = Driver(experiment, directory, executor, chosen, say, before)
            progress.update(task, total=driver.runs())
            for records in driver.run():
                progress.update(task, completed=len(records))
                save(directory, experiment, records, quick=quick)
            progress.update(task, description="done")
        if not records:
            console.print(f"{experiment.name}: nothing to run for these systems")
            continue
        console.print(f"{experiment.name}: {write_report(directory)}", highlight=False)


@app.command()
def report(
    directory: Annotated[Path | None, typer.Argument(help="of one experiment; default: all, into docs/results")] = None,
) -> None:
    """Write the report of stored results again."""
    path = write_report(directory) if directory else write_all(RESULTS, KEPT)
    console.print(str(path), highlight=False)


if __name__ == "__main__":
    app()
