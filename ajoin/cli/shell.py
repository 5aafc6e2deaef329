"""What all commands share: how output and errors look, for people and for programs.

A person gets rich text; a program gets `--json`: exactly one JSON value on stdout (one a line for commands
that follow something). Errors are one line on stderr, `error REASON: what happened (what to do)`, or with
--json `{"error": {...}}` on stdout. Exit code 1: the platform said no; 2: the command, its configuration or
its scenario is wrong and the platform was not asked; 3: another platform has taken over the store.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer
from rich.console import Console
from rich.markup import escape
from typer import TyperException
from typer.core import TyperGroup

from ajoin.replay.scenario import ScenarioError
from optimizer.errors import AJoinError, FailedPrecondition, InvalidRequest, SqlError

if TYPE_CHECKING:
    from ajoin.client.client import Client

PIPED_WIDTH = 100
"""Columns when the output is no terminal, and so has no width of its own."""


def console(*, stderr: bool = False) -> Console:
    """Made anew for each use, so that it writes to whatever sys.stdout or sys.stderr is now."""
    made = Console(stderr=stderr, highlight=False)
    return made if made.is_terminal else Console(stderr=stderr, highlight=False, width=PIPED_WIDTH)


def _remember(context: typer.Context, value: bool) -> bool:
    context.meta["json"] = value
    return value


JsonFlag = Annotated[
    bool, typer.Option("--json", help="Print JSON instead of text.", callback=_remember, is_eager=True)
]
ServerOption = Annotated[
    str | None,
    typer.Option("--server", help="host:port of the service (AJOIN_SERVER); several with commas.", metavar="ADDRESS"),
]
MasterOption = Annotated[
    str | None, typer.Option("--master", "--spark-master", help="Spark master, e.g. spark://host:7077.", metavar="URL")
]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="Configuration file; default ajoin.toml, if there is one.")
]


class AJoinGroup(TyperGroup):
    """Turns errors into one line and an exit code, in one place for all commands."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except AJoinError as error:
            report(error, as_json=bool(ctx.meta.get("json")))
            raise typer.Exit(exit_code(error)) from None
        except OSError as failure:
            if failure.errno == errno.EPIPE:  # the reader of our output went away; typer ends quietly
                raise
            where = f"{failure.filename}: " if failure.filename else ""
            said = FailedPrecondition(f"{where}{failure.strerror or failure}", reason="IO_ERROR")
            report(said, as_json=bool(ctx.meta.get("json")))
            raise typer.Exit(1) from None

    def main(self, args: Sequence[str] | None = None, *rest: Any, **options: Any) -> Any:
        """With --json, a wrong command line is reported like every other error."""
        given = list(sys.argv[1:] if args is None else args)
        if "--json" not in given or not options.get("standalone_mode", True):
            return super().main(given, *rest, **options)
        try:
            code = super().main(given, *rest, **{**options, "standalone_mode": False})
        except TyperException as wrong:
            usage = InvalidRequest(wrong.format_message(), reason="USAGE", hint="see --help")
            report(usage, as_json=True)
            sys.exit(2)
        sys.exit(code if isinstance(code, int) else 0)


def exit_code(error: AJoinError) -> int:
    if error.reason == "STATE_TAKEN":
        return 3
    return 2 if isinstance(error, ScenarioError) or error.reason.startswith("CONFIG_") else 1


def report(error: AJoinError, *, as_json: bool) -> None:
    if as_json:
        print_json({"error": error_json(error)})
    else:
        line = " ".join(str(error).split())
        console(stderr=True).print(f"[bold red]error {error.reason}:[/] [red]{escape(line)}[/]", soft_wrap=True)


def error_json(error: AJoinError) -> dict[str, Any]:
    made: dict[str, Any] = {"reason": error.reason, "message": error.message, "hint": error.hint}
    if isinstance(error, ScenarioError):
        made["line"] = error.line
    if isinstance(error, SqlError):
        made |= {"line": error.line, "column": error.column, "token": error.token}
    return made


def print_json(value: Any) -> None:
    """Plain, so that it can be piped: no colours, no line breaks that depend on the terminal."""
    sys.stdout.write(json.dumps(plain(value), ensure_ascii=False) + "\n")
    sys.stdout.flush()


def plain(value: Any) -> Any:
    """Dataclasses, enums, tuples (with names: as objects) and paths as JSON values."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, Sequence | set | frozenset):
        return [plain(v) for v in value]
    return str(value)


@contextmanager
def client(server: str | None) -> Iterator[Client]:
    """A connection to the configured service."""
    from ajoin.client.client import Client
    from ajoin.config import load

    s = load({"server": server}).settings
    # An empty setting is one that was not given.
    with Client(
        s.server,
        tls_ca=s.tls_ca or None,
        cert=s.client_cert or None,
        key=s.client_key or None,
        token=s.token or None,
    ) as connected:
        yield connected


def pairs(texts: Sequence[str], *, separator: str, option: str, last: bool = False) -> dict[str, str]:
    """`key<separator>value` texts as a dictionary; `last`: cut at the last separator, keys may contain it."""
    made: dict[str, str] = {}
    for text in texts:
        key, separated, value = text.rpartition(separator) if last else text.partition(separator)
        if not separated or not key or not value:
            raise typer.BadParameter(f"{text!r} is not KEY{separator}VALUE", param_hint=option)
        if key in made:
            raise typer.BadParameter(f"{key!r} is given twice", param_hint=option)
        made[key] = value
    return made


@contextmanager
def waiting(what: str) -> Iterator[Callable[[str], None]]:
    """A spinner on stderr while something takes long; the value says what is going on now.

    Without a terminal there is nothing to animate: the first text is printed as a plain line, no more.
    """
    with _own_stderr() as file:
        err = Console(file=file, highlight=False)
        if not err.is_terminal:
            err.print(f"{what} ...")
            yield lambda text: None
            return
        with err.status(f"{escape(what)} ...") as spinner:
            yield lambda text: spinner.update(f"{escape(text)} ...")


@contextmanager
def _own_stderr() -> Iterator[TextIO]:
    """Another handle on where stderr goes now: while Spark starts, stderr itself is given to the JVM."""
    try:
        handle = os.dup(sys.stderr.fileno())
    except (OSError, ValueError):  # no file behind it, as in tests
        yield sys.stderr
        return
    with open(handle, "w", encoding="utf-8", errors="replace") as file:
        yield file
