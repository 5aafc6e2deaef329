"""`ajoin state inspect | verify | gc | suspend`: a state directory without its platform. None is asked."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from ajoin.cli.inspect import size
from ajoin.cli.shell import ConfigOption, JsonFlag, console, print_json
from ajoin.cli.table import event_time
from ajoin.config import load

if TYPE_CHECKING:
    from runtime.state_tools.report import Files, StateReport

app = typer.Typer(help="A state directory, without the platform.", no_args_is_help=True)

DirectoryOption = Annotated[
    Path | None, typer.Option("--state-dir", help="The directory; default: the setting state_dir.", file_okay=False)
]
StoreOption = Annotated[
    str | None, typer.Option("--store", help="Look at this store instead of a directory.", metavar="URI")
]
RUNNING = "a platform is running in this directory: what it shows is a moment of it"


@app.command("inspect")
def inspect(
    store: StoreOption = None,
    state_dir: DirectoryOption = None,
    config: ConfigOption = None,
    as_json: JsonFlag = False,
) -> None:
    """What is in it: epoch, plan, streams, queries, files. Changes nothing, also while a platform runs."""
    from runtime.state_tools.report import inspect as look
    from runtime.state_tools.report import inspect_store

    directory = _directory(state_dir, config)
    report = inspect_store(store) if store else look(directory)
    if as_json:
        print_json(report)
    else:
        _show(report)


@app.command("verify")
def verify(
    store: StoreOption = None,
    state_dir: DirectoryOption = None,
    config: ConfigOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Read everything and check it: log, buckets, results. Exit code 1 if something is wrong. Changes nothing."""
    from runtime.state_tools.verify import verify as check_directory
    from runtime.state_tools.verify_store import verify as check_store

    directory = _directory(state_dir, config)
    report = check_store(store) if store else check_directory(directory)
    if as_json:
        print_json(report)
    else:
        out = console()
        if report.running:
            out.print(f"[yellow]{RUNNING}[/]")
        for problem in report.problems:
            out.print(f"[red]{escape(problem.file)}[/]: {problem.reason}: {escape(problem.what)}", soft_wrap=True)
            out.print(f"    [dim]{escape(problem.consequence)}[/]", soft_wrap=True)
        for note in report.notes:
            out.print(f"[dim]note: {escape(note)}[/]", soft_wrap=True)
        said = f"{len(report.problems)} problems" if report.problems else "everything holds"
        out.print(f"epoch {report.epoch:,}, {report.files:,} files with {size(report.bytes)} read: [bold]{said}[/]")
    if report.problems:
        raise typer.Exit(1)


@app.command("gc")
def gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    state_dir: DirectoryOption = None,
    config: ConfigOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Remove files that belong to no committed epoch, and half-written ones. Refused while a platform runs."""
    from runtime.state_tools.gc import collect

    debris = collect(_directory(state_dir, config), dry_run=dry_run)
    total = sum(item.bytes for item in debris)
    if as_json:
        print_json({"removed": not dry_run, "files": debris, "bytes": total})
        return
    for item in debris:
        console().print(f"{escape(item.path)}  [dim]{size(item.bytes)}, {item.why}[/]", soft_wrap=True)
    verb = "would be removed" if dry_run else "removed"
    console().print(f"{len(debris):,} files with {size(total)} {verb}" if debris else "there is nothing to remove")


@app.command("suspend")
def suspend(
    queries: Annotated[list[str], typer.Argument(metavar="QUERY...", help="Ids of queries, or all.")],
    state_dir: DirectoryOption = None,
    config: ConfigOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Suspend queries before the next start. The last resort when they keep the platform from running. Refused while a
    platform runs: ask that one (ajoin query suspend)."""
    from ajoin.platform.launch import wall_clock
    from runtime.state_tools.suspend import suspend as stop

    done = stop(_directory(state_dir, config), queries, wall_clock())
    if as_json:
        print_json(done)
        return
    for id in done.queries:
        console().print(f"{escape(id)} is suspended", soft_wrap=True)
    if not done.queries:
        console().print("no query runs")
    waits = "" if done.planned is None else f"; the next start runs epoch {done.planned:,} without them"
    console().print(f"[dim]plan version {done.plan_version}{waits}[/]", soft_wrap=True)


def _directory(given: Path | None, config: Path | None) -> Path:
    """The directory; what is in it may need the plug-ins of the configuration."""
    from ajoin.platform.launch import load_plugins

    settings = load({"state_dir": given}, config).settings
    load_plugins(settings)
    return settings.state_dir


# -- for people ---------------------------------------------------------------------------------------------------


def _show(r: StateReport) -> None:
    out = console()
    if r.running:
        out.print(f"[yellow]{RUNNING}, and what its epoch has written so far counts as debris[/]", soft_wrap=True)
    waits = "" if r.executed_version == r.plan_version else f", the last epoch ran with {r.executed_version}"
    facts = {
        "directory": f"{r.directory} (format {r.format}, platform {r.platform})",
        "epoch": f"{r.epoch:,}",
        "planned": _planned(r),
        "plan version": f"{r.plan_version}{waits}: {r.groups} groups, {r.partitions} partitions",
        "log": f"{r.records:,} records ({size(r.log_bytes)}) since snapshot {r.snapshot} ({size(r.snapshot_bytes)})"
        + (f", then {r.torn_bytes} bytes that a crash left" if r.torn_bytes else ""),
        "results": f"{_files(r.results)}, {r.result_rows:,} rows",
        "dead letters": f"{r.dead_letters:,} remembered",
        "debris": f"{len(r.debris):,} files, {size(sum(d.bytes for d in r.debris))}" if r.debris else "none",
    }
    if r.foreign:
        facts["foreign"] = f"{', '.join(r.foreign)}: no files of the platform, left alone"
    for label, value in facts.items():
        out.print(f"[dim]{label + ':':<14}[/]{escape(value)}", soft_wrap=True)
    _table(
        ("stream", "source", "watermark", "tuples", "buckets", "views", "pushed", "offset"),
        (
            (s.name, s.source, event_time(s.watermark), f"{s.tuples:,}", *map(_files, kinds), s.offset)
            for s in r.streams
            if (kinds := (s.buckets, s.views, s.pushed))
        ),
    )
    _table(
        ("query", "state", "group", "rows", "watermark"),
        ((q.id, q.state.value, str(q.group), f"{q.rows:,}", event_time(q.watermark)) for q in r.queries),
    )
    _table(("join", "items", "buckets"), ((j.node, f"{j.items:,}", _files(j.buckets)) for j in r.joins))
    _table(
        ("partial bucket", "fold", "of", "epoch", "cut", "keeps", "components", "entries", "bytes"),
        (
            (p.file, p.fold, p.of, f"{p.epoch:,}" + (" (carried)" if p.carried else ""), p.cut or "unreadable",
             p.keeps, ", ".join(p.components), f"{p.entries:,}", size(p.bytes))
            for p in r.partials
        ),
    )  # fmt: skip


def _planned(r: StateReport) -> str:
    if r.planned is None:
        return "none: every epoch that was planned is committed"
    return f"epoch {r.planned.epoch:,} with plan {r.planned.plan_version}, not committed: the next start runs it"


def _files(f: Files) -> str:
    if not f.files:
        return "-"
    when = "" if f.epochs is None else f", epochs {f.epochs[0]:,}-{f.epochs[1]:,}"
    return f"{f.files:,} ({size(f.bytes)}{when})" + (f", {f.missing} missing" if f.missing else "")


def _table(columns: Iterable[str], rows: Iterable[tuple[str, ...]]) -> None:
    table = Table(*columns, box=None, header_style="dim", pad_edge=False)
    for row in rows:
        table.add_row(*map(escape, row))
    if table.row_count:
        console().print()
        console().print(table)
