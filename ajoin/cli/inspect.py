"""`ajoin explain`, `ajoin status`, `ajoin version`: look, change nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum
from importlib.metadata import version as package_version
from typing import Annotated

import typer
from rich.markup import escape

from ajoin.cli.shell import JsonFlag, ServerOption, client, console, print_json
from ajoin.cli.table import event_time
from runtime.api import ExecutorStatus, PlatformStatus, SinkStatus


class PlanFormat(StrEnum):
    text = "text"
    json = "json"
    dot = "dot"


def explain(
    query: Annotated[
        str | None, typer.Argument(metavar="[QUERY]", help="Id of a query; without: the whole shared plan.")
    ] = None,
    sql: Annotated[
        str | None, typer.Option("--sql", help="Explain a query that does not exist yet.", metavar="TEXT")
    ] = None,
    format: Annotated[PlanFormat, typer.Option("--format", help="How to write it.")] = PlanFormat.text,
    server: ServerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Show how queries run and what they share."""
    if query is not None and sql is not None:
        raise typer.BadParameter("give a query id or --sql, not both")
    chosen = PlanFormat.json if as_json else format
    with client(server) as ajoin:
        text = ajoin.explain(query, sql=sql, format=chosen.value)
    if chosen is PlanFormat.json:
        print_json(json.loads(text))
    elif chosen is PlanFormat.dot:
        typer.echo(text)
    else:
        console().print(escape(text), soft_wrap=True)


def status(server: ServerOption = None, as_json: JsonFlag = False) -> None:
    """How the platform is doing."""
    with client(server) as ajoin:
        now = ajoin.status()
    if as_json:
        print_json(now)
    else:
        _show(now)


def version(as_json: JsonFlag = False) -> None:
    """The version of this command."""
    if as_json:
        print_json({"version": package_version("ajoin")})
    else:
        console().print(f"ajoin {package_version('ajoin')}")


def _show(now: PlatformStatus) -> None:
    stages = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in now.stage_seconds.items())
    behind = "" if now.lag_ms is None else f", event time is {now.lag_ms / 1000:.1f} s behind the clock"
    waiting = ", ".join(f"{name} {now.backlog[name]:,} (throttled)" for name in now.throttled)
    facts = {
        "state": f"{now.state}: {now.message}" if now.message else now.state,
        "epoch": f"{now.epoch:,} (the last took {now.epoch_seconds:.2f} s)",
        "latency": f"{now.latency_seconds:.2f} s from a tuple's arrival until its rows can be read{behind}",
        "plan version": f"{now.plan_version}",
        "streams": f"{now.streams:,}",
        "queries": f"{now.queries:,}",
        "tuples": f"{now.tuples:,}",
        "rows": f"{now.rows:,}",
        "buckets": f"{now.buckets:,} ({size(now.bucket_bytes)})",
        **_store(now),
        **_executors(now),
        **_sinks(now),
        **({"pinned": "; ".join(now.pins)} if now.pins else {}),
        "backlog": waiting or "none: all input is read as it comes",
        "time spent": stages or "-",
        "up for": f"{now.uptime_seconds:,.0f} s (started in {now.recovery_seconds:.1f} s)",
    }
    for label, value in facts.items():
        console().print(f"[dim]{label + ':':<14}[/]{escape(value)}", soft_wrap=True)


def _store(now: PlatformStatus) -> dict[str, str]:
    if not now.store_bytes:
        return {}
    return {"store": f"{size(now.store_bytes)}, of which {size(now.cache_bytes)} are also on this machine"}


def _executors(now: PlatformStatus) -> dict[str, str]:
    if not now.executors:
        return {}
    text = [
        f"{len(now.executors):,} with {sum(e.cores for e in now.executors):,} cores",
        *map(_executor, now.executors),
    ]
    return {"executors": "\n              ".join(text)}


def _executor(one: ExecutorStatus) -> str:
    parts = [f"{one.executor} on {one.host}: {one.cores} {'core' if one.cores == 1 else 'cores'}"]
    parts.append(f"partitions {spans(one.partitions)}" if one.partitions else "no partitions")
    if one.cache:
        looked = one.fetched_bytes + one.hit_bytes
        hits = f" ({one.hit_bytes / looked:.0%} found there)" if looked else ""
        parts.append(f"{size(one.held_bytes)} in its cache{hits}")
        parts.append(f"{size(one.fetched_bytes)} fetched in {one.requests:,} requests")
    return ", ".join(parts)


def spans(numbers: Sequence[int]) -> str:
    """Numbers in order for people: 0-2, 5."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in found)


def _sinks(now: PlatformStatus) -> dict[str, str]:
    if not now.sinks:
        return {}
    troubles = [f"{s.query_id}: {sink_text(s)}" for s in now.sinks_behind]
    return {"sinks": "\n              ".join([f"{now.sinks:,}, {len(troubles):,} of them behind", *troubles])}


def sink_text(sink: SinkStatus) -> str:
    """Which sink of its query, how far behind, and why."""
    behind = f"{sink.epochs_behind:,} epochs and {sink.rows_behind:,} rows behind"
    parts = [f"{sink.kind} {behind if sink.epochs_behind else 'has everything'}"]
    if sink.lost_epochs:
        parts.append(f"{sink.lost_epochs:,} epochs left the result log before")
    if sink.error:
        since = event_time(sink.failing_since_ms)
        parts.append(f"fails since {since} ({sink.attempts:,} attempts): {sink.error}")
    return ", ".join(parts)


def size(count: int) -> str:
    """Bytes for people: 1536 is 1.5 KiB."""
    if count < 1024:
        return f"{count} B"
    power = min((count.bit_length() - 1) // 10, 4)
    return f"{count / (1 << 10 * power):.1f} {('KiB', 'MiB', 'GiB', 'TiB')[power - 1]}"
