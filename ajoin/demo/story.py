"""The demo: three joins, two aggregations, one shared plan, told as a story through the gRPC client.

The teams of the AJoin paper come one after another, each with a join of its own; none of them knows of the
others. After each arrival the demo shows the one plan that serves all of them, and some of the rows the
newcomer gets. Two more teams come with aggregations: of these it shows how they run, with the line that says whose
tuples are folded once. Then the first team leaves, and the others do not notice.

Everything goes through `ajoin.Client`: what the demo does, a user can do from another machine.
"""

from __future__ import annotations

import json
import re
import textwrap
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from ajoin.cli.table import cell, event_time
from ajoin.client.client import Client
from ajoin.client.results import NOW, START
from ajoin.demo.data import QUERIES, STREAMS, DemoQuery

ROWS_SHOWN = 5
PLACES_SHOWN = 3
"""Of queries that fold: all rows of one window."""

SHARED = r"shared by \d+|Q.* fold .* once"
LABEL = re.compile(r"[a-z]+( [a-z]+)?  +")


def tell(client: Client, out: Console) -> dict[str, Any]:
    """The whole story; ends by itself. Returns its summary in the values of JSON."""
    _streams(client, out)
    for query in QUERIES:
        _arrival(client, out, query)
    shared = json.loads(client.explain(format="json"))["savings"]
    _departure(client, out, QUERIES[0].id)
    summary = _summarize(client, shared)
    _show_summary(out, summary)
    return summary


def _streams(client: Client, out: Console) -> None:
    out.print(Rule("four streams", align="left"))
    for stream in STREAMS:
        client.create_stream(
            stream.name, columns=stream.columns, time=stream.time, source="generator", options=stream.options
        )
        columns = ", ".join(stream.columns)
        out.print(f"[bold]{stream.name}[/]({columns})  [dim]{stream.about}, {stream.rate:,} a second[/]")


def _arrival(client: Client, out: Console, query: DemoQuery) -> None:
    out.print()
    out.print(Rule(f"create {query.id}", align="left"))
    out.print(query.team)
    out.print(Syntax(query.sql, "sql", theme="ansi_light", background_color="default"))
    info = client.create_query(query.sql, id=query.id)
    out.print(
        f"runs since epoch {info.epoch}, deployed in {info.deployment_latency_ms} ms; "
        f"first window starts at {event_time(info.active_from, 'the first tuple')}"
    )
    if query.folds:
        _explained(out, f"how {query.id} runs", client.explain(query.id))
    else:
        _plan(client, out)
    _rows(client, out, query)


def _plan(client: Client, out: Console) -> None:
    _explained(out, "the shared plan", client.explain())


def _explained(out: Console, title: str, text: str) -> None:
    lines = [part for line in text.rstrip().splitlines() for part in wrap(line, out.width - 4)]
    shown = Text("\n".join(lines))
    shown.highlight_regex(SHARED, "bold")
    out.print(Panel(shown, title=title, title_align="left", border_style="cyan"))


def wrap(line: str, width: int) -> list[str]:
    """A line of a plan, cut at its double spaces; the branches of the tree go on beside what is below. A sentence, also
    one with a label, is cut between words."""
    body = line.lstrip("│├└─ ")
    label = LABEL.match(line)
    if label or "  " not in body:
        return textwrap.wrap(line, width, subsequent_indent=" " * (len(label[0]) if label else 4)) or [""]
    branches = line[: len(line) - len(body)]
    below = branches.replace("├──", "│  ").replace("└──", "   ") + "    "
    lines = [branches]
    for part in body.split("  "):
        if len(lines[-1]) + 2 + len(part) > width and lines[-1].strip("│├└─ "):
            lines.append(below + part)
        else:
            lines[-1] += part if lines == [branches] else "  " + part
    return lines


def _rows(client: Client, out: Console, query: DemoQuery, start: str = START) -> None:
    """Waits for the query's first rows, or (NOW) for its next ones."""
    rows = client.results(query.id, start=start, limit=PLACES_SHOWN if query.folds else ROWS_SHOWN).to_arrow()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in rows.schema.names:
        table.add_column(escape(name), no_wrap=True)
    columns = [rows.column(i).to_pylist() for i in range(rows.num_columns)]
    for row in zip(*columns, strict=True):
        table.add_row(*(escape(cell(value)) for value in row))
    out.print(f"{'first' if start == START else 'next'} rows of [bold]{query.id}[/]:")
    out.print(table)


def _departure(client: Client, out: Console, id: str) -> None:
    out.print()
    out.print(Rule(f"delete {id}", align="left"))
    info = client.delete_query(id)
    out.print(f"{info.rows:,} rows delivered, complete until {event_time(info.active_until)}")
    _plan(client, out)
    out.print(f"{id} is gone, the others go on:")
    for query in QUERIES:
        if query.id != id:
            _rows(client, out, query, start=NOW)


def _summarize(client: Client, shared: dict[str, int]) -> dict[str, Any]:
    """`shared` are the savings of the plan while all queries ran."""
    queries = [client.query(query.id) for query in QUERIES]
    return {
        "epochs": client.status().epoch,
        "tuples": {s.schema.name: s.tuples for s in client.streams()},
        "queries": {
            q.id: {
                "state": q.state.value,
                "rows": q.rows,
                "complete_until": q.watermark if q.active_until is None else q.active_until,
            }
            for q in queries
        },
        "savings": shared,
    }


def _show_summary(out: Console, summary: dict[str, Any]) -> None:
    out.print()
    out.print(Rule("summary", align="left"))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("query", "state", "complete until"):
        table.add_column(heading)
    table.add_column("rows", justify="right")
    for id, query in summary["queries"].items():
        table.add_row(id, query["state"], event_time(query["complete_until"]), f"{query['rows']:,}")
    out.print(table)
    tuples = summary["tuples"]
    read = ", ".join(f"{name} {count:,}" for name, count in tuples.items())
    out.print(f"tuples: [bold]{sum(tuples.values()):,}[/] ({read}) in {summary['epochs']} epochs")
    out.print(f"what sharing saved, while all {len(summary['queries'])} queries ran:")
    shared = summary["savings"]
    for what, asked, run in (
        ("joins", shared["joins_asked"], shared["joins_run"]),
        ("indexes", shared["indexes_asked"], shared["indexes_run"]),
        ("stream scans", shared["scans_asked"], shared["scans_run"]),
        ("folds", shared["folds_asked"], shared["folds_run"]),
    ):
        out.print(f"  {asked} {what} asked for, [bold]{run}[/] run  [dim]({asked - run} saved)[/]")
