"""`ajoin stream ...`: the named, typed inputs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from ajoin.cli.shell import JsonFlag, ServerOption, client, console, pairs, print_json
from ajoin.cli.table import event_time
from optimizer.errors import InvalidRequest
from runtime.api import StreamInfo
from runtime.times import duration

app = typer.Typer(help="Create, list, show, move back and delete streams.", no_args_is_help=True)

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
    max_ahead_ms: Annotated[
        str | None,
        typer.Option(
            help="Tuples whose event time is further beyond the clock are dead letters; none: no bound; default: the "
            "platform's setting max_ahead.",
            metavar="MS|none",
        ),
    ] = None,
    max_jump_ms: Annotated[
        int | None,
        typer.Option(min=1, help="Tuples whose event time is further beyond those around them are dead letters."),
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
            max_ahead_ms=_bound(max_ahead_ms),
            max_jump_ms=max_jump_ms,
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


@app.command("reset-watermark")
def reset_watermark(
    name: Name,
    to: Annotated[
        str,
        typer.Option(
            "--to", help="The new watermark: 2026-01-31T12:00:00Z, or milliseconds since 1970.", metavar="TIME"
        ),
    ],
    server: ServerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Move a stream's watermark back, after tuples or watermarks with wrong times have raised it.

    No running query may have closed a window by it. Tuples that came too late meanwhile stay dropped.
    """
    with client(server) as ajoin:
        info = ajoin.reset_watermark(name, _time(to))
    if as_json:
        print_json(info)
    else:
        console().print(f"the watermark of stream [bold]{escape(name)}[/] is {event_time(info.watermark)}")


@app.command("restart")
def restart(
    name: Name,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            help="earliest, latest, or an offset as its source writes it; default: where it stands.",
            metavar="OFFSET|earliest|latest",
        ),
    ] = None,
    server: ServerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Read a stream from another place on and forget its watermark; no running query may use it."""
    with client(server) as ajoin:
        info = ajoin.restart_stream(name, at=at)
    if as_json:
        print_json(info)
    else:
        console().print(f"restarted stream [bold]{escape(name)}[/] {f'at {escape(at)}' if at else 'where it stood'}")


def _bound(text: str | None) -> int | None:
    """Milliseconds; 0: no bound; None: the platform's."""
    if text is None:
        return None
    if text.lower() == "none":
        return 0
    if not text.isdecimal() or int(text) == 0:
        raise InvalidRequest(
            f"--max-ahead-ms is {text!r}", reason="BAD_OPTION", hint="give milliseconds, or none for no bound"
        )
    return int(text)


def _time(text: str) -> int:
    """An event time: ISO 8601 (UTC unless it says otherwise), or milliseconds."""
    if text.removeprefix("-").isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequest(
            f"{text!r} is no time", reason="BAD_TIME", hint="write 2026-01-31T12:00:00Z, or milliseconds since 1970"
        ) from None
    utc = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (utc - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def backlog(info: StreamInfo) -> str:
    """What waits because an epoch reads only so much; '-' when all input is read as it comes."""
    return f"{info.backlog:,} {info.backlog_unit}" if info.throttled else "-"


def _most(ms: int | None) -> str:
    return "-" if ms is None else duration(ms)


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
        "most ahead of clock": _most(schema.max_ahead_ms),
        "most beyond others": _most(schema.max_jump_ms),
        "watermark": event_time(info.watermark),
        "greatest event time": event_time(info.max_event_time),
        "tuples": f"{info.tuples:,}",
        "late, dropped": f"{info.late_dropped:,}",
        "dead letters": f"{info.dead_letter:,}",
        "backlog": backlog(info),
        "latency": "-" if info.latency_ms is None else f"{info.latency_ms / 1000:.2f} s",
        "event time lag": "-" if info.lag_ms is None else f"{info.lag_ms / 1000:.1f} s",
        "queries": ", ".join(info.queries) or "-",
    }
    for label, value in facts.items():
        out.print(f"[dim]{label + ':':<21}[/]{escape(value)}", soft_wrap=True)
