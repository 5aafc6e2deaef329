"""`ajoin optimize`, `scale`, `force`, `unpin`, `settings`, `set`: change how queries run, never what they return."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.markup import escape

from ajoin.cli.shell import JsonFlag, ServerOption, client, console, pairs, print_json
from runtime.api import Optimization

force = typer.Typer(help="Decide join orders and query groups yourself.", no_args_is_help=True)


def optimize(
    full: Annotated[bool, typer.Option("--full", help="Look at everything, not only at what changed.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    server: ServerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Optimize the shared plan now and apply whatever is better."""
    with client(server) as ajoin:
        done = ajoin.optimize("full" if full else "incremental", dry_run=dry_run)
    if as_json:
        print_json(done)
    else:
        _show(done, dry_run)


def scale(
    partitions: Annotated[
        int | None, typer.Option("--partitions", min=1, help="Number of join partitions (scale out or in).")
    ] = None,
    split: Annotated[
        str | None,
        typer.Option("--split", help="Run partition P several ways (scale up; 1: down).", metavar="P:WAYS"),
    ] = None,
    server: ServerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Change the number of join partitions, or how many ways one of them runs."""
    if (partitions is None) == (split is None):
        raise typer.BadParameter("give --partitions or --split, one of the two")
    with client(server) as ajoin:
        version = ajoin.scale(partitions) if partitions is not None else ajoin.split(*parse_split(split or ""))
    _said(version, as_json)


@force.command("order")
def order(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Id of the query.", show_default=False)],
    tree: Annotated[str, typer.Argument(metavar="ORDER", help='Aliases as nested JSON lists, e.g. [["V","W"],"C"].')],
    server: ServerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Make a query join its streams in this order.

    ajoin force order q1 '[["V","W"],"C"]'
    """
    wanted = parse_order(tree)
    with client(server) as ajoin:
        version = ajoin.force_order(query, wanted)
    _said(version, as_json)


@force.command("groups")
def groups(
    assignments: Annotated[
        list[str], typer.Argument(metavar="QUERY=GROUP...", help="Query group by query id.", show_default=False)
    ],
    server: ServerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Put queries into these query groups; the others stay where they are.

    ajoin force groups q1=0 q2=1
    """
    wanted = {id: _number(group, f"the group of {id}") for id, group in _assigned(assignments).items()}
    with client(server) as ajoin:
        version = ajoin.force_groups(wanted)
    _said(version, as_json)


def unpin(
    queries: Annotated[
        list[str] | None, typer.Argument(metavar="[QUERY...]", help="Ids of queries.", show_default=False)
    ] = None,
    scale: Annotated[bool, typer.Option("--scale", help="Release the partition function.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Release all that was forced.")] = False,
    server: ServerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Let the optimizer change again what was forced: the order and group of queries, the number of partitions."""
    if everything == bool(queries or scale):
        raise typer.BadParameter("name queries, or give --scale, or --all and nothing else")
    with client(server) as ajoin:
        version = ajoin.unpin(queries or (), scale=scale)
    _said(version, as_json)


def settings(server: ServerOption = None, as_json: JsonFlag = False) -> None:
    """The settings of the optimizer, and which of them were changed while the platform ran."""
    with client(server) as ajoin:
        found = ajoin.settings()
    if as_json:
        print_json(found)
        return
    for setting in found:
        configured = f"  [yellow](configured: {setting.configured:g})[/]" if setting.changed else ""
        console().print(f"{setting.name:<24} {setting.value:<8g}{configured}")


def set_setting(
    name: Annotated[str, typer.Argument(metavar="NAME", help="As `ajoin settings` lists it.", show_default=False)],
    value: Annotated[str | None, typer.Argument(metavar="[VALUE]", help="The new value.", show_default=False)] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Take the change back: the configured value again.")] = False,
    server: ServerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Change a setting of the optimizer, from now on and after restarts.

    ajoin set optimize_confirmations 3
    """
    if (value is None) != reset:
        raise typer.BadParameter("give a value, or --reset")
    with client(server) as ajoin:
        now = ajoin.set(name.replace("-", "_"), value)
    if as_json:
        print_json(now)
    else:
        console().print(f"{now.name} is {now.value:g} now" + ("" if now.changed else ", as configured"))


def parse_split(text: str) -> tuple[int, int]:
    """partition:ways"""
    partition, colon, ways = text.partition(":")
    if not colon:
        raise typer.BadParameter(f"{text!r} is not PARTITION:WAYS, for example 0:2", param_hint="--split")
    return _number(partition, "the partition"), _number(ways, "the number of ways")


def parse_order(text: str) -> Any:
    """Nested JSON lists of aliases; whether they are the query's is for the service to say."""
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        tree = None
    if not _is_tree(tree, depth=0):
        raise typer.BadParameter(f'{text!r} is no join order; one looks like [["V","W"],"C"]', param_hint="ORDER")
    return tree


def _is_tree(value: Any, depth: int) -> bool:
    if isinstance(value, str):
        return bool(value) and depth > 0
    return (
        isinstance(value, list) and len(value) >= 2 and depth < 32 and all(_is_tree(part, depth + 1) for part in value)
    )


def _assigned(assignments: list[str]) -> dict[str, str]:
    return pairs(assignments, separator="=", option="QUERY=GROUP", last=True)


def _number(text: str, what: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise typer.BadParameter(f"{what} is {text!r}, not a number")
    return int(text)


def _said(version: int, as_json: bool) -> None:
    if as_json:
        print_json({"plan_version": version})
    else:
        console().print(f"done: plan version {version}")


def _show(done: Optimization, dry_run: bool) -> None:
    out = console()
    part = f"{abs(done.gain) / done.cost_before:.0%}" if done.cost_before > 0 else ""
    saved = f" ({part} {'less' if done.gain >= 0 else 'more'})" if part else ""
    out.print(f"[bold]{done.mode}[/] optimization of the plan: cost {done.cost_before:,.4g} a second")
    if not done.changes:
        out.print("nothing better was found")
    else:
        out.print(f"{'would become' if dry_run else 'now'} {done.cost_after:,.4g}{saved}:")
    for change in done.changes:
        out.print(f"  {escape(change)}", soft_wrap=True)
    for reason in done.reasons:
        out.print(f"[dim]because: {escape(reason)}[/]", soft_wrap=True)
    if dry_run and done.changes:
        by_itself = "would" if done.would_apply else "would not (yet)"
        out.print(f"nothing was changed; the platform {by_itself} do this by itself")
    elif not dry_run:
        out.print(f"plan version {done.plan_version}")
