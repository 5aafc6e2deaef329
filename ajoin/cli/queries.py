"""`ajoin query ...`: joins, aggregates and rows of streams, for as long as somebody wants them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from ajoin.cli.inspect import sink_text, size
from ajoin.cli.shell import JsonFlag, ServerOption, client, console, pairs, print_json
from ajoin.cli.table import event_time
from ajoin.platform.budgets import LIMITS, parsed
from optimizer.errors import InvalidRequest
from runtime.api import AtLimit, Budget, Incomplete, QueryInfo, QueryState
from runtime.connectors.base import ConnectorSpec

app = typer.Typer(help="Create, delete, suspend, resume, list and show queries.", no_args_is_help=True)

NAME = 32
"""Characters of a query's name that a list shows, however narrow the terminal is."""

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
    limit: Annotated[
        list[str] | None,
        typer.Option(
            "--limit",
            help="Its budget: rows, bytes (of results), seconds (of tasks) an epoch, retained_bytes, state_bytes; "
            "and latency, the seconds of age of its rows above which the platform scales.",
            metavar="NAME=NUMBER,...",
        ),
    ] = None,
    at_limit: Annotated[
        AtLimit | None,
        typer.Option("--at-limit", help="When that is used up: its rows later, fewer rows, or suspend it."),
    ] = None,
    server: ServerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Create a query; it takes effect within one query batch.

    ajoin query create --id q1 "SELECT * FROM V JOIN W ON V.vID = W.vID WINDOW TUMBLING (SIZE 1 SECOND)"
    """
    text, budget = sql_text(sql, file), parse_budget(limit or [], at_limit)
    with client(server) as ajoin:
        info = ajoin.create_query(text, id=id, sinks=[parse_sink(s) for s in sink or []], budget=budget)
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
        console().print(f"deleted query [bold]{escape(id)}[/]: {info.rows:,} rows delivered, {complete_text(info)}")


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
        console().print(f"suspended query [bold]{escape(id)}[/]: {info.rows:,} rows delivered, {complete_text(info)}")


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
    # The SQL text is cut first when the terminal is narrow, and names last.
    table.add_column("query", no_wrap=True, min_width=min(NAME, max((len(q.id) for q in queries), default=0)))
    for heading in ("state", "group", "watermark", "lag", "rows", *(["sinks"] if with_sinks else [])):
        table.add_column(heading, no_wrap=True, justify="right" if heading in ("lag", "rows") else "left")
    table.add_column("SQL", no_wrap=True, overflow="ellipsis", ratio=1)
    for q in queries:
        table.add_row(
            escape(q.id),
            f"{q.state.value}, rows left out" if q.incomplete else q.state.value,
            str(q.group),
            event_time(q.watermark),
            lag_text(q),
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


def parse_budget(limits: Sequence[str], at_limit: AtLimit | None) -> Budget:
    """name=number,..."""
    texts = [part for text in limits for part in text.split(",") if part]
    return parsed(pairs(texts, separator="=", option="--limit"), at_limit)


def _sinks(q: QueryInfo) -> str:
    """How many, and whether one is in trouble; `show` tells which and why."""
    failing = sum(s.failing_since_ms is not None for s in q.deliveries)
    behind = max((s.epochs_behind for s in q.deliveries), default=0)
    trouble = [f"{failing} failing"] if failing else []
    trouble += [f"{behind:,} epochs behind"] if behind > 1 else []
    return f"{len(q.sinks)}" + (f" ({', '.join(trouble)})" if trouble else "") if q.sinks else "-"


def lag_text(q: QueryInfo) -> str:
    """How late its results are, and whether it is the query itself that does not keep up."""
    lag = "-" if q.lag_ms is None else f"{q.lag_ms / 1000:,.1f} s"
    epochs = f"{q.epochs_behind:,} epoch{'s' if q.epochs_behind > 1 else ''} behind"
    return f"{lag} ({epochs})" if q.epochs_behind else lag


def latency_text(q: QueryInfo) -> str:
    """How old its rows are when they can be read, and how old they may be."""
    age = "-" if q.latency_ms is None else f"{q.latency_ms / 1000:,.2f} s"
    return age if q.budget.latency is None else f"{age} (wanted: at most {q.budget.latency:g} s)"


def complete_text(q: QueryInfo) -> str:
    """Of a query that has ended."""
    return f"complete up to {event_time(q.active_until, 'nothing: it never had a watermark')}"


def gap_text(gap: Incomplete) -> str:
    """Where rows were left out."""
    where = [f"end after {event_time(gap.after)}"] if gap.after is not None else []
    where += [f"start at {event_time(gap.until)} or before"] if gap.until is not None else []
    return "rows left out in windows that " + " and ".join(where) if where else "rows left out in any window"


def budget_text(budget: Budget) -> str:
    found = {name: getattr(budget, name) for name in LIMITS}
    told = [f"{number:,} {LIMITS[name]}" for name, number in found.items() if number is not None]
    return f"{', '.join(told)}; then {budget.at_limit}" if told else f"any; {budget.at_limit} when an epoch is full"


def _show(info: QueryInfo) -> None:
    out = console()
    out.print(f"[bold]{escape(info.id)}[/]  {info.state.value}")
    if info.suspended:
        out.print(f"  [yellow]{escape(info.suspended)}[/]; {complete_text(info)}", soft_wrap=True)
    if info.incomplete:
        out.print(f"  [yellow]{gap_text(info.incomplete)}[/]", soft_wrap=True)
    for line in info.sql.strip().splitlines():
        out.print(f"  [cyan]{escape(line)}[/]", soft_wrap=True)
    sinks = [f"{s.kind} {' '.join(f'{k}={v}' for k, v in s.options)}".strip() for s in info.sinks]
    facts: dict[str, Any] = {
        "active from": event_time(info.active_from, "the first tuple"),
        "active until": event_time(info.active_until),
        "watermark": event_time(info.watermark),
        "lag": lag_text(info),
        "latency": latency_text(info),
        "rows": f"{info.rows:,}",
        **({"overflows": f"{info.overflows:,} sums did not fit BIGINT and are NULL"} if info.overflows else {}),
        "results": f"{size(info.usage.bytes)}, of which {size(info.usage.retained_bytes)} are kept",
        "task time": f"{info.usage.seconds:,.1f} s",
        "budget": budget_text(info.budget),
        "columns": ", ".join(info.outputs) or "-",
        "query group": info.group,
        **({"pinned": " and ".join(info.pins)} if info.pins else {}),
        "since": f"plan version {info.plan_version}, epoch {info.epoch}",
        "deployed in": f"{info.deployment_latency_ms} ms",
        "sinks": ", ".join(["result log", *sinks]),
        **{f"sink {s.number}": sink_text(s) for s in info.deliveries},
    }
    for label, value in facts.items():
        out.print(f"[dim]{label + ':':<14}[/]{escape(str(value))}", soft_wrap=True)
