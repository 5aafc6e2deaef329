"""Generate the blocking client from the asynchronous one, or check that what is committed is what would be generated.

    python -m tests.tools.sync_client --write
    python -m tests.tools.sync_client --check

The two clients differ in a few words only, so `WORDS` are replaced and the rest stays. The result calls the blocking
gRPC API directly. It needs no event loop, so it works on any thread, under a running loop and after a fork like
every other blocking gRPC client, and its tracebacks show ordinary functions. The file is committed, so that an
installation needs no generator and editors and type checkers see real code.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "ajoin/client/async_client.py"
TARGET = ROOT / "ajoin/client/client.py"

WORDS = {
    "async": "",
    "await": "",
    "AsyncClient": "Client",
    "AsyncIterator": "Iterator",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "aio_channels": "channels",
    "asyncio": "time",  # asyncio.sleep is time.sleep
}

DOCSTRING = '''"""`ajoin.Client`: the platform's verbs as blocking calls.

    with ajoin.Client() as client:
        client.create_query("SELECT ... WINDOW TUMBLING (SIZE 1 SECOND)", id="q1")
        for batch in client.subscribe("q1"):
            print(batch.table)

A client may be used from several threads. Every failure is raised as the exception the server raised, with its reason,
hint and place in the SQL text. `ajoin.AsyncClient` has the same verbs as coroutines.

Generated from async_client.py by `make stubs`; change that file.
"""'''


def generate(source: str) -> str:
    """The blocking client, formatted."""
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    dropped = _parentheses_around_await(tokens)
    lines = source.splitlines(keepends=True)
    for number, token in reversed(list(enumerate(tokens))):  # from the end, so that places stay right
        word = "" if number in dropped else WORDS.get(token.string) if token.type == tokenize.NAME else None
        if word is not None:
            (row, start), (_, end) = token.start, token.end
            line = lines[row - 1]
            rest = line[end:] if word or number in dropped else line[end:].removeprefix(" ")
            lines[row - 1] = line[:start] + word + rest
    return _formatted(DOCSTRING + "".join(lines[tokens[0].end[0] :]))


def _parentheses_around_await(tokens: list[tokenize.TokenInfo]) -> set[int]:
    """Those of `(await x).y`: without the await they are of no use. Those of a call `f(await x)` stay."""
    dropped: set[int] = set()
    opened: list[int] = []
    for number, token in enumerate(tokens):
        if token.string == "(":
            opened.append(number)
        elif token.string == ")":
            start = opened.pop()
            called = tokens[start - 1].type == tokenize.NAME and tokens[start - 1].string not in ("in", "return")
            if tokens[start + 1].string == "await" and not called:
                dropped |= {start, number}
    return dropped


def _formatted(code: str) -> str:
    for step in (("check", "--quiet", "--select", "I", "--fix"), ("format",)):
        command = [sys.executable, "-m", "ruff", *step, "--stdin-filename", str(TARGET), "-"]
        code = subprocess.run(command, input=code, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return code


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", action="store_true", help="generate ajoin/client/client.py")
    what.add_argument("--check", action="store_true", help="fail when it is not current")
    args = parser.parse_args()
    fresh = generate(SOURCE.read_text(encoding="utf-8"))
    if args.write:
        TARGET.write_text(fresh, encoding="utf-8")
    elif fresh != TARGET.read_text(encoding="utf-8"):
        raise SystemExit(f"{TARGET.relative_to(ROOT)} is not current; run `make stubs`")


if __name__ == "__main__":
    main()
