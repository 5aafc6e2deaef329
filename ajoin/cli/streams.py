"""`ajoin stream ...`: the named, typed inputs."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from ajoin.cli.shell import JsonFlag, ServerOption, client, console, pairs, print_json
from ajoin.cli.table import event_time
from runtime.api import StreamInfo

app = typer.Typer(help="Create, list, show and delete streams.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Name of the stream.", show_default=False)]


@app.command("create")
def create(
    name: Name,
    column: Annotated[
        list[str],
        typer.Option("--column", "-c", help="A column, name:TYPE; once for each.", metavar="NAME:TYPE"),
    ],
    time: Annotated[str, typer.Option("--time", help="The event-time column.", metavar="COLUMN")],
    source: Annotated[str, typer.Option("--source", help="Kind of source: generator, files, push.")] = "generator",
    option: Annotated[
        list[str] | None, typer.Option("--option", "-o", help="A setting of the source.", metavar="KEY=VALUE")
    ] = None,
    watermark_delay_ms: Annotated[
        int, typer.Option(min=0, help="How far the watermark trails the greatest event time.")
    ] = 0,
    allowed_lateness_ms: Annotated[
        int, typer.Option(min=0, help="How far behind the watermark a tuple is still accepted.")
    ] = 0,
    idle_timeout_ms: Annotated[
        int | None, typer.Option(min=1, help="After so long without data, stop holding back queries.")
    ] = None,
    server: ServerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Declare a stream and start to read it.

    ajoin stream create V --column ts:TIMESTAMP --column vID:BIGINT --time ts --option rate=1000
    """
    columns = pairs(column, separator=":", option="--column", last=True)
    with client(server) as ajoin:
        info = ajoin.create_stream(
            name,
            columns=columns,
            time=time,
            source=source,
            options=pairs(option or [], separator="=", option="--option"),
            watermark_delay_ms=watermark_delay_ms,
            allowed_lateness_ms=allowed_lateness_ms,
            idle_timeout_ms=idle_timeout_ms,
        )
    if as_json:
        print_json(info)
    else:
        console().print(f"created stream [bold]{escape(name)}[/] ({len(columns)} columns, source {source})")


@app.command("list")
def list_streams(server: ServerOption = None, as_json: JsonFlag = False) -> None:
    """All streams and how they are doing."""
    with client(server) as ajoin:
        streams = ajoin.streams()
    if as_json:
        print_json(streams)
        return
    if not streams:
        console().print("no streams; create one with [bold]ajoin stream create[/]")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("stream", "source", "watermark"):
        table.add_column(heading)
    for heading in ("tuples", "late", "dead letters", "backlog"):
        table.add_column(heading, justify="right")
    table.add_column("queries")
    for s in streams:
        table.add_row(
            escape(s.schema.name),
            s.source.kind,
            event_time(s.watermark),
            f"{s.tuples:,}",
            f"{s.late_dropped:,}",
            f"{s.dead_letter:,}",
            backlog(s),
            escape(", ".join(s.queries)),
        )
    console().print(table)


@app.command("show")
def show(name: Name, server: ServerOption = None, as_json: JsonFlag = False) -> None:
    """One stream: columns, source, counters."""
    with client(server) as ajoin:
        info = ajoin.stream(name)
    if as_json:
        print_json(info)
    else:
        _show(info)


@app.command("delete")
def delete(name: Name, server: ServerOption = None, as_json: JsonFlag = False) -> None:
    """Stop reading a stream and forget it; no running query may use it."""
    with client(server) as ajoin:
        ajoin.delete_stream(name)
    if as_json:
        print_json({"deleted": name})
    else:
        console().print(f"deleted stream [bold]{escape(name)}[/]")


def backlog(info: StreamInfo) -> str:
    """What waits because an epoch reads only so much; '-' when all input is read as it comes."""
    return f"{info.backlog:,} {info.backlog_unit}" if info.throttled else "-"


def _show(info: StreamInfo) -> None:
    schema = info.schema
    out = console()
    out.print(f"[bold]{escape(schema.name)}[/]")
    for c in schema.columns:
        out.print(f"  {escape(c.name)} {c.type}" + ("  [dim]event time[/]" if c.name == schema.time else ""))
    options = " ".join(f"{k}={v}" for k, v in info.source.options)
    facts = {
        "source": f"{info.source.kind} {options}".strip(),
        "watermark delay": f"{schema.watermark_delay_ms} ms",
        "allowed lateness": f"{schema.allowed_lateness_ms} ms",
        "watermark": event_time(info.watermark),
        "greatest event time": event_time(info.max_event_time),
        "tuples": f"{info.tuples:,}",
        "late, dropped": f"{info.late_dropped:,}",
        "dead letters": f"{info.dead_letter:,}",
        "backlog": backlog(info),
        "event time lag": "-" if info.lag_ms is None else f"{info.lag_ms / 1000:.1f} s",
        "queries": ", ".join(info.queries) or "-",
    }
    for label, value in facts.items():
        out.print(f"[dim]{label + ':':<21}[/]{escape(value)}", soft_wrap=True)
