"""Run the examples of the documentation for real, and write down what they print.

    python -m tests.tools.docs --write     refresh the outputs in README.md and docs/
    python -m tests.tools.docs --check     say which examples no longer print what the page shows

An example is a fenced block right below an invisible comment, and its output is part of the page:

    <!-- run: two queries -->
    ```console
    $ ajoin explain                        a command ("> " goes on with the line before)
    plan version 3 ...                     what it printed
    ```

    <!-- run: demo -->
    ```python                              a program; the ```text block after it is what it printed
    ```

The word after `run:` names the world it runs in (`WORLDS`): a real platform, server and client in this process, with
the local executor instead of Spark. Blocks of one page and world share the platform, in their order, as a reader would
type them. Numbers and times differ from run to run, so pages are compared by their shape (`shape`): every number is
the same number, and the width of a gap does not matter.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from ajoin.cli import app
from ajoin.demo.data import QUERIES, STREAMS
from ajoin.platform.launch import wall_clock
from ajoin.platform.platform import Pace, Platform
from ajoin.service import ServerThread
from runtime.aggregates import plugins as aggregates
from runtime.connectors import registry
from runtime.engine.engine import Engine
from runtime.execution.executor import LocalExecutor
from runtime.log import codec
from runtime.windows import plugins as windows
from runtime.windows.registry import KINDS

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))

EXAMPLE = re.compile(
    r"^<!-- run: (?P<world>[a-z ]+) -->\n"
    r"```(?P<kind>console|python)\n(?P<code>.*?)^```\n"
    r"(?:\n```text\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)


REGISTERED: tuple[dict[Any, Any], ...] = (
    registry.SOURCES, aggregates._registered, aggregates._modules, windows._registered, KINDS,
    codec._CLASSES, codec._FIELDS, codec._BROUGHT,
)  # fmt: skip
"""What an example may add to, all for the whole process."""


@contextmanager
def _platform(pace: Pace) -> Iterator[tuple[Platform, str]]:
    """The demo's streams, nothing else; the address of its server."""
    with tempfile.TemporaryDirectory(prefix="ajoin-docs-") as folder:
        engine = Engine.open(Path(folder), LocalExecutor(), clock=wall_clock)
        platform = Platform(engine, clock=wall_clock, pace=pace)
        with platform, ServerThread(platform) as server:
            for stream in STREAMS:
                platform.create_stream(stream.schema, stream.source).result()
            yield platform, server.address


@contextmanager
def demo() -> Iterator[str]:
    """What `make serve` starts: four streams, data flowing, no queries."""
    with _platform(Pace()) as (platform, address):
        assert platform.wait_until(lambda: platform.epoch > 1, 60)
        yield address


@contextmanager
def two_queries() -> Iterator[str]:
    """Q1 and Q2 were just created and no epoch has run yet, so nothing is known but their shape."""
    with _platform(Pace(batch_interval=0.01, epoch_interval=3600, idle_interval=3600)) as (platform, address):
        for query in QUERIES[:2]:
            platform.create_query(query.sql, query.id)
        yield address


@contextmanager
def nothing() -> Iterator[str]:
    """The example brings all it needs; connectors and plug-ins it registers are gone after the page."""
    before = [dict(table) for table in REGISTERED]
    yield ""
    for table, content in zip(REGISTERED, before, strict=True):
        table.clear()
        table.update(content)


WORLDS: dict[str, Callable[[], AbstractContextManager[str]]] = {
    "demo": demo,
    "two queries": two_queries,
    "nothing": nothing,
}


def refreshed(page: str) -> str:
    """The page with the output of every example as it is now."""
    with ExitStack() as open_worlds:
        addresses: dict[str, str] = {}

        def run(found: re.Match[str]) -> str:
            world = found["world"]
            if world not in addresses:
                addresses[world] = open_worlds.enter_context(WORLDS[world]())
            head = f"<!-- run: {world} -->\n```{found['kind']}\n"
            if found["kind"] == "console":
                return f"{head}{_console(found['code'], addresses[world])}```\n"
            printed = _python(found["code"], addresses[world])
            return f"{head}{found['code']}```\n\n```text\n{printed}```\n"

        return EXAMPLE.sub(run, page)


def _console(session: str, address: str) -> str:
    """Every command of the session with what it prints now; the old output is dropped."""
    out: list[str] = []
    command = ""
    for line in [*session.splitlines(), "$ "]:
        if command and line.startswith("> "):
            out.append(line)
            command += "\n" + line[2:]
            continue
        if command:
            out += _ajoin(command, address)
            command = ""
        if line.startswith("$ ") and line != "$ ":
            out.append(line)
            command = line[2:]
    return "".join(f"{line}\n" for line in out)


def _ajoin(command: str, address: str) -> list[str]:
    program, *arguments = shlex.split(command)
    assert program == "ajoin", f"only ajoin can be run, not {program}"
    done = CliRunner().invoke(app, arguments, env={"AJOIN_SERVER": address}, prog_name="ajoin")
    return [line.rstrip() for line in done.output.splitlines()]


def _python(code: str, address: str) -> str:
    """`ajoin.Client()` talks to the default address; here it is given the one of this world."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code.replace("ajoin.Client()", f"ajoin.Client({address!r})"), {"__name__": "__main__"})
    return printed.getvalue()


def shape(page: str) -> str:
    """The page without what differs from run to run: its different lines, in order of their first appearance.

    Lines that are equal up to numbers count once, because a table may draw its header again when a number is wider.
    """
    numbers = re.sub(r"\d[\d,.:]*", "#", page)
    plain = re.sub(r"─+", "─", re.sub(r" +", " ", numbers))
    return "\n".join(dict.fromkeys(plain.splitlines()))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.tools.docs", description=__doc__)
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--write", action="store_true")
    how.add_argument("--check", action="store_true")
    asked = parser.parse_args(arguments)
    stale = []
    for path in PAGES:
        page = path.read_text(encoding="utf-8")
        now = refreshed(page)
        if shape(now) != shape(page):
            stale.append(str(path.relative_to(ROOT)))
        if asked.write and now != page:
            path.write_text(now, encoding="utf-8")
    print(("changed: " if asked.write else "stale: ") + (", ".join(stale) or "nothing"))
    return 1 if stale and asked.check else 0


if __name__ == "__main__":
    sys.exit(main())
