"""`ajoin query ...`: windowed joins that come and go."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from ajoin.cli.inspect import sink_text
from ajoin.cli.shell import JsonFlag, ServerOption, client, console, pairs, print_json
from ajoin.cli.table import event_time
from optimizer.errors import InvalidRequest
from runtime.api import QueryInfo, QueryState
from runtime.connectors.base import ConnectorSpec

app = typer.Typer(help="Create, delete, list and show queries.", no_args_is_help=True)

Id = Annotated[str, typer.Argument(metavar="QUERY", help="Id of the query.", show_default=False)]


@app.command("create")
def create(
    sql: Annotated[
        str | None, typer.Argument(help="The SQL text; '-' or nothing: read it from standard input.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read the SQL text from a file.", dir_okay=False)
    ] = None,
    id: Annotated[str | None, typer.Option("--id", help="Id of the query; default: the platform chooses.")] = None,
    sink: Annotated[
        list[str] | None,
        typer.Option(
            "--sink",
            help="Where rows go besides the result log, e.g. parquet:path=/data/out.",
            metavar="KIND[:KEY=VALUE,...]",
        ),
    ] = None,
    server: ServerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Create a query; it takes effect within one query batch.

    ajoin query create --id q1 "SELECT * FROM V JOIN W ON V.vID = W.vID WINDOW TUMBLING (SIZE 1 SECOND)"
    """
    text = sql_text(sql, file)
    with client(server) as ajoin:
        info = ajoin.create_query(text, id=id, sinks=[parse_sink(s) for s in sink or []])
    if as_json:
        print_json(info)
        return
    console().print(
        f"created query [bold]{escape(info.id)}[/]: plan version {info.plan_version}, epoch {info.epoch}, "
        f"active from {event_time(info.active_from, 'the first tuple')}, "
        f"deployed in {info.deployment_latency_ms} ms"
    )
    console().print(f"[dim]see its rows with:[/] ajoin tail {escape(info.id)}")


@app.command("delete")
def delete(id: Id, server: ServerOption = None, as_json: JsonFlag = False) -> None:
    """Delete a query; when this returns, its last row has been delivered."""
    with client(server) as ajoin:
        info = ajoin.delete_query(id)
    if as_json:
        print_json(info)
    else:
        until = event_time(info.active_until, "nothing: it never had a watermark")
        console().print(f"deleted query [bold]{escape(id)}[/]: {info.rows:,} rows delivered, complete until {until}")


@app.command("suspend")
def suspend(
    id: Id,
    reason: Annotated[str, typer.Option(help="Why, for people.")] = "",
    server: ServerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Stop a query and keep its id; it can be resumed or deleted."""
    with client(server) as ajoin:
        info = ajoin.suspend_query(id, reason)
    if as_json:
        print_json(info)
    else:
        console().print(f"suspended query [bold]{escape(id)}[/]: {info.rows:,} rows delivered")


@app.command("resume")
def resume(id: Id, server: ServerOption = None, as_json: JsonFlag = False) -> None:
    """Let a suspended query run again, from the next window on."""
    with client(server) as ajoin:
        info = ajoin.resume_query(id)
    if as_json:
        print_json(info)
    else:
        start = event_time(info.active_from, "the first tuple")
        console().print(f"resumed query [bold]{escape(id)}[/]: active from {start}")


@app.command("list")
def list_queries(
    all: Annotated[bool, typer.Option("--all", "-a", help="Deleted queries as well.")] = False,
    server: ServerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Running and suspended queries."""
    with client(server) as ajoin:
        queries = [q for q in ajoin.queries() if all or q.state != QueryState.DELETED]
    if as_json:
        print_json(queries)
        return
    if not queries:
        console().print("no queries; create one with [bold]ajoin query create[/]")
        return
    table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    with_sinks = any(q.sinks for q in queries)
    for heading in ("query", "state", "group", "watermark", "rows", *(["sinks"] if with_sinks else [])):
        table.add_column(heading, no_wrap=True, justify="right" if heading == "rows" else "left")
    # Only the SQL text is cut when the terminal is narrow.
    table.add_column("SQL", no_wrap=True, overflow="ellipsis", ratio=1)
    for q in queries:
        table.add_row(
            escape(q.id),
            q.state.value,
            str(q.group),
            event_time(q.watermark),
            f"{q.rows:,}",
            *([_sinks(q)] if with_sinks else []),
            escape(" ".join(q.sql.split())),
        )
    console().print(table)


@app.command("show")
def show(id: Id, server: ServerOption = None, as_json: JsonFlag = False) -> None:
    """One query: its SQL, its life, its progress."""
    with client(server) as ajoin:
        info = ajoin.query(id)
    if as_json:
        print_json(info)
    else:
        _show(info)


def sql_text(sql: str | None, file: Path | None) -> str:
    """The SQL text from exactly one place: the argument, a file, or standard input."""
    if file is not None:
        if sql is not None:
            raise typer.BadParameter("give the SQL text as an argument or with --file, not both")
        try:
            return file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as failure:
            raise typer.BadParameter(f"cannot read {file}: {failure}") from None
    if sql is not None and sql != "-":
        return sql
    if sys.stdin.isatty():
        raise typer.BadParameter("give the SQL text as an argument, with --file, or on standard input")
    return sys.stdin.read()


def parse_sink(text: str) -> ConnectorSpec:
    """kind[:key=value,...]"""
    kind, _, rest = text.partition(":")
    if not kind:
        raise InvalidRequest(f"sink {text!r} has no kind", hint="for example parquet:path=/data/out")
    options = pairs([part for part in rest.split(",") if part], separator="=", option="--sink")
    return ConnectorSpec(kind, tuple(sorted(options.items())))


def _sinks(q: QueryInfo) -> str:
    """How many, and whether one is in trouble; `show` tells which and why."""
    failing = sum(s.failing_since_ms is not None for s in q.deliveries)
    behind = max((s.epochs_behind for s in q.deliveries), default=0)
    trouble = [f"{failing} failing"] if failing else []
    trouble += [f"{behind:,} epochs behind"] if behind > 1 else []
    return f"{len(q.sinks)}" + (f" ({', '.join(trouble)})" if trouble else "") if q.sinks else "-"


def _show(info: QueryInfo) -> None:
    out = console()
    out.print(f"[bold]{escape(info.id)}[/]  {info.state.value}")
    if info.suspended:
        out.print(f"  [yellow]{escape(info.suspended)}[/]", soft_wrap=True)
    for line in info.sql.strip().splitlines():
        out.print(f"  [cyan]{escape(line)}[/]", soft_wrap=True)
    sinks = [f"{s.kind} {' '.join(f'{k}={v}' for k, v in s.options)}".strip() for s in info.sinks]
    facts: dict[str, Any] = {
        "active from": event_time(info.active_from, "the first tuple"),
        "active until": event_time(info.active_until),
        "watermark": event_time(info.watermark),
        "rows": f"{info.rows:,}",
        "columns": ", ".join(info.outputs) or "-",
        "query group": info.group,
        "since": f"plan version {info.plan_version}, epoch {info.epoch}",
        "deployed in": f"{info.deployment_latency_ms} ms",
        "sinks": ", ".join(["result log", *sinks]),
        **{f"sink {s.number}": sink_text(s) for s in info.deliveries},
    }
    for label, value in facts.items():
        out.print(f"[dim]{label + ':':<14}[/]{escape(str(value))}", soft_wrap=True)
