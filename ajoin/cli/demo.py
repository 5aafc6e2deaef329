"""`ajoin demo`: the whole platform in one process, with the paper's streams and queries."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from ajoin.cli.shell import ConfigOption, JsonFlag, MasterOption, console, print_json, waiting
from ajoin.config import Settings, load, parse_assignments


def demo(
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Any setting, e.g. partitions=4.", metavar="KEY=VALUE")
    ] = None,
    spark_master: MasterOption = None,
    verbose: Annotated[bool | None, typer.Option("--verbose", help="Show what Spark logs.")] = None,
    config: ConfigOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Start everything, run the AJoin paper's example for some seconds, and clean up."""
    flags = {"spark_master": spark_master, "verbose": verbose, "log_level": "error", **parse_assignments(set_ or [])}
    run(load(flags, config).settings, as_json)


def run(settings: Settings, as_json: bool) -> None:
    from ajoin.client.client import Client
    from ajoin.demo import story
    from ajoin.platform import launch
    from ajoin.service import ServerThread

    started = time.monotonic()
    launch.configure_logging(settings)
    # With --json the story goes to stderr: stdout is for the one JSON value.
    out = console(stderr=as_json)
    with ExitStack() as running:
        folder = running.enter_context(tempfile.TemporaryDirectory(prefix="ajoin-demo-", ignore_cleanup_errors=True))
        own = running.enter_context(launch.passing(settings))
        with waiting("starting Spark" if settings.executor == "spark" else "starting"):
            executor = running.enter_context(launch.executor(settings))
            platform = running.enter_context(launch.platform(own, executor, Path(folder)))
            server = running.enter_context(ServerThread(platform))
            client = running.enter_context(Client(server.address))
        out.print(f"the platform listens on [bold]{server.address}[/]")
        summary = story.tell(client, out)
        running.enter_context(waiting("stopping"))
    out.print(f"[dim]done in {time.monotonic() - started:.0f} s; the demo's state was removed[/]")
    if as_json:
        print_json(summary)
