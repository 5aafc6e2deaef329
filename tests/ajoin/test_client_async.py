"""AsyncClient: the same verbs as Client, as coroutines."""

from __future__ import annotations

import asyncio
import inspect

import pytest

import ajoin
from ajoin import errors
from ajoin.client.results import Batch, Progress
from runtime.api import QueryState
from tests.ajoin.world import JOIN, WAIT, W, with_streams

ROWS = {"V": [{"ts": 1000, "vID": 1, "geo": "x"}], "W": [{"ts": 1001, "vID": 1, "usrID": 5}]}


@pytest.fixture
def world(tmp_path):
    with with_streams(tmp_path / "state") as running_world:
        yield running_world


def verbs(cls: type) -> dict[str, inspect.Signature]:
    members = inspect.getmembers(cls, inspect.isfunction)
    return {name: inspect.signature(f) for name, f in members if not name.startswith("_")}


def test_both_clients_have_the_same_verbs_with_the_same_arguments():
    sync, asynchronous = verbs(ajoin.Client), verbs(ajoin.AsyncClient)
    assert {n: list(s.parameters.values()) for n, s in sync.items()} == {
        n: list(s.parameters.values()) for n, s in asynchronous.items()
    }


def test_the_package_exports_what_it_says():
    assert {name: getattr(ajoin, name) for name in ajoin.__all__}.keys() == set(ajoin.__all__)
    assert ajoin.errors.NotFound is errors.NotFound
    with pytest.raises(AttributeError):
        _ = ajoin.nothing


def test_every_verb(world):
    async def life() -> None:
        async with ajoin.AsyncClient(world.address, timeout=WAIT) as client:
            info = await client.create_stream("S", columns=W, time="ts", source="push")
            assert info.schema.name == "S"
            assert [s.schema.name for s in await client.streams()] == ["S", "V", "W"]
            assert await client.stream("S") == info
            assert await client.dead_letters("S") == []
            await client.delete_stream("S")

            created = await client.create_query(JOIN, id="q1")
            outcomes = await client.create_queries({"q1": JOIN, "q2": JOIN})
            assert isinstance(outcomes[0], errors.AlreadyExists) and outcomes[1].id == "q2"
            assert (await client.query("q1")).uid == created.uid
            assert [q.id async for q in client.queries(page_size=1)] == ["q1", "q2"]

            await asyncio.to_thread(world.feed, ROWS, 2000)
            results = await client.results("q1", until=2000, timeout=WAIT)
            assert results.to_pandas()["usrID"].tolist() == [5]
            items = [i async for i in client.subscribe("q1", follow=False, progress=True)]
            assert [type(i) for i in items] == [Batch, Progress] and items[1].watermark == 2000

            assert "q1" in await client.explain()
            version = await client.scale(3)
            assert await client.split(0, 2) == version + 1
            assert await client.force_groups({"q2": 1}) == version + 2
            assert await client.force_order("q1", ["V", "W"]) >= version + 2
            assert (await client.optimize(dry_run=True)).mode == "full"
            assert (await client.optimize("incremental")).plan_version >= version
            async for event in client.watch_plan(after_version=version, timeout=WAIT):
                assert event.version == version + 1
                break

            assert (await client.status()).queries == 2
            assert [q.id for q in (await client.statistics()).queries] == ["q1", "q2"]
            assert (await client.delete_query("q2")).state == QueryState.DELETED

    asyncio.run(life())


def test_errors_are_the_same_exceptions(world):
    async def life() -> None:
        async with ajoin.AsyncClient(world.address) as client:
            with pytest.raises(errors.SqlError) as refused:
                await client.create_query(
                    "SELECT V.nothing FROM V JOIN W ON V.vID = W.vID WINDOW TUMBLING (SIZE 1 SECOND)"
                )
            assert refused.value.line == 1 and "nothing" in refused.value.token
            with pytest.raises(errors.NotFound):
                async for _ in client.subscribe("nobody"):
                    pass
        async with ajoin.AsyncClient("127.0.0.1:1") as client:
            with pytest.raises(errors.Unavailable) as unreachable:
                await client.status()
            assert unreachable.value.reason == "UNREACHABLE"

    asyncio.run(life())


def test_a_subscription_can_be_left(world):
    async def life() -> None:
        async with ajoin.AsyncClient(world.address) as client:
            await client.create_query(JOIN, id="q1")
            async for item in client.subscribe("q1", progress=True):
                assert isinstance(item, Progress)
                break
            assert (await client.query("q1")).state == QueryState.RUNNING

    asyncio.run(life())
