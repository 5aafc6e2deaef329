"""`ajoin token ...`: tokens for the service. Works on the token file; the service need not run."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from ajoin.cli.shell import ConfigOption, JsonFlag, console, print_json
from ajoin.config import load

app = typer.Typer(help="Create and list the tokens that the service accepts.", no_args_is_help=True)

DEFAULT_FILE = "tokens.toml"

FileOption = Annotated[
    Path | None,
    typer.Option("--file", help=f"The token file; default: the setting token_file, else {DEFAULT_FILE}."),
]


class RoleName(StrEnum):
    read = "read"
    write = "write"
    admin = "admin"


@app.command("create")
def create(
    role: Annotated[RoleName, typer.Option("--role", help="What it may do.")],
    tenant: Annotated[str, typer.Option("--tenant", help="Whose queries it is for; without: everybody's.")] = "",
    name: Annotated[str | None, typer.Option("--name", help="What people call it; default: role and time.")] = None,
    file: FileOption = None,
    config: ConfigOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Make a token, keep its hash in the token file, and print it: this once.

    ajoin token create --role write --tenant a --name nightly-etl
    """
    from ajoin.service.tokens import Role, create_token

    path = _file(file, config)
    called = name or f"{role.value}-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}"
    token = create_token(path, called, Role[role.value], tenant)
    if as_json:
        print_json({"name": called, "role": role.value, "tenant": tenant, "file": path, "token": token})
        return
    # The token alone on stdout, so that it can be piped to where it is needed.
    typer.echo(token)
    console(stderr=True).print(f"[dim]its hash is in {escape(str(path))}; the token itself is kept nowhere[/]")


@app.command("list")
def list_tokens(file: FileOption = None, config: ConfigOption = None, as_json: JsonFlag = False) -> None:
    """Tokens by name, role and tenant. To take one back, remove its entry from the file."""
    from ajoin.service.tokens import read_tokens

    path = _file(file, config)
    callers = read_tokens(path).callers
    if as_json:
        print_json([{"name": c.name, "role": c.role.name, "tenant": c.tenant, "hash": h} for h, c in callers.items()])
        return
    for hash, c in callers.items():
        whose = f"tenant {escape(c.tenant)}" if c.tenant else "every tenant"
        console().print(f"[bold]{escape(c.name or '-')}[/]  {c.role.name}  {whose}  [dim]{hash[:19]}…[/]")


def _file(file: Path | None, config: Path | None) -> Path:
    return file or Path(load({}, config).settings.token_file or DEFAULT_FILE)
