"""The generator of the blocking client: what it replaces, what it leaves, and that the committed file is current."""

from __future__ import annotations

import ast
import asyncio
from pathlib import Path

import pytest

from tests.ajoin.world import running
from tests.tools.sync_client import DOCSTRING, SOURCE, TARGET, generate

ASYNC = '''"""Awaits, asyncio and AsyncClient in texts stay."""

import asyncio
from collections.abc import AsyncIterator, Callable


class AsyncClient:
    async def __aenter__(self) -> "AsyncClient":
        return self

    async def verb(self, ask: Callable[..., object]) -> str:
        """async and await stay in a text."""
        await asyncio.sleep(1)
        print(await ask("await"))
        return str((await ask("a")).name) + (await ask("b"))[0]

    async def items(self) -> AsyncIterator[int]:
        async for item in self.calls:  # one await after the other
            yield item + 1
'''

SYNC = '''

import time
from collections.abc import Callable, Iterator


class Client:
    def __enter__(self) -> "AsyncClient":
        return self

    def verb(self, ask: Callable[..., object]) -> str:
        """async and await stay in a text."""
        time.sleep(1)
        print(ask("await"))
        return str(ask("a").name) + ask("b")[0]

    def items(self) -> Iterator[int]:
        for item in self.calls:  # one await after the other
            yield item + 1
'''


def test_words_are_replaced_and_texts_are_not() -> None:
    assert generate(ASYNC) == DOCSTRING + SYNC


def test_the_committed_client_is_the_generated_one() -> None:
    """`make stubs` writes it."""
    assert generate(SOURCE.read_text(encoding="utf-8")) == TARGET.read_text(encoding="utf-8")


@pytest.mark.parametrize("node", [ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await])
def test_nothing_asynchronous_is_left(node: type[ast.AST]) -> None:
    assert not [n for n in ast.walk(ast.parse(TARGET.read_text(encoding="utf-8"))) if isinstance(n, node)]


def test_it_needs_no_event_loop_and_minds_none(tmp_path: Path) -> None:
    """Calls on the thread of a running loop (a notebook), and on a thread that has none."""
    with running(tmp_path / "state") as world:

        async def under_a_loop() -> tuple[str, str]:
            return world.client.status().state, (await asyncio.to_thread(world.client.status)).state

        assert asyncio.run(under_a_loop()) == ("RUNNING", "RUNNING")
