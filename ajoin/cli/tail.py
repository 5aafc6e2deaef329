"""`ajoin tail`: a query's rows as they are committed."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import pyarrow as pa
import typer
from rich.markup import escape

from ajoin.cli.shell import JsonFlag, ServerOption, client, console, print_json
from ajoin.cli.table import GrowingTable
from ajoin.client.results import Cursor
from ajoin.replay.output import json_rows
from runtime.results.factorized import expand


class Begin(StrEnum):
    start = "start"
    now = "now"


def tail(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Id of the query.", show_default=False)],
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="End after so many rows.")] = None,
    begin: Annotated[
        Begin, typer.Option("--from", help="The first row that is kept, or the next that comes.")
    ] = Begin.start,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Wait for more rows, or end with what there is.")
    ] = True,
    cursor: Annotated[
        str | None,
        typer.Option("--cursor", help="Go on after this place (epoch:sequence).", metavar="CURSOR"),
    ] = None,
    uid: Annotated[
        str | None, typer.Option("--uid", help="Of the queries that had this id, the one with this uid.")
    ] = None,
    server: ServerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Print a query's rows as they come; with --json, one JSON object a line."""
    place = Cursor.parse(cursor) if cursor else None
    left = limit
    table: GrowingTable | None = None
    with client(server) as ajoin:
        info = ajoin.query(query, uid=uid)
        schema = ajoin.result_schema(query, uid=info.uid)
        for item in ajoin.subscribe(query, start=begin.value, cursor=place, uid=info.uid, follow=follow):
            rows = expand(item.table)
            if left is not None:
                rows = rows.slice(0, left)
                left -= rows.num_rows
            if as_json:
                for row in json_rows(rows, info.outputs):
                    print_json(row)
            elif rows.num_rows:
                table = table or GrowingTable(console(), rows.schema.names)
                table.add(cells(rows))
            if left == 0:
                return
    if table is None and not as_json:
        columns = ", ".join(expand(schema.empty_table()).schema.names)
        console(stderr=True).print(f"[dim]no rows; the columns are {escape(columns)}[/]", soft_wrap=True)


def cells(rows: pa.Table) -> list[tuple[object, ...]]:
    """Row by row, by position: names may repeat."""
    columns = [rows.column(i).to_pylist() for i in range(rows.num_columns)]
    return list(zip(*columns, strict=True))
