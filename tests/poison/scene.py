"""What an attack can see and do: its own clients, the streams of the others, and the next step's tuples.

Everything that must be known to the oracle goes through here: rows handed over with `push`, streams declared with
`own`, queries created with `owe`, whose rows are owed to the hostile tenant as exactly as to anybody else.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from ajoin.client.client import Client
from optimizer.errors import AJoinError
from runtime.api import QueryInfo, QueryState
from tests.poison.kinds import Ending, How, ending_of
from tests.poison.service import Service
from tests.poison.told import Told

MOST_STEPS = 60
PAIR = {"k": "BIGINT", "s": "STRING", "d": "DOUBLE", "ts": "TIMESTAMP"}
"""Columns of a stream of one's own."""


class Scene:
    """One attack's view. `name` is unique in the life and may be part of ids."""

    def __init__(self, service: Service, told: Told, name: str, rng: Random) -> None:
        self.service, self.told, self.name, self.rng = service, told, name, rng
        self.folder = service.open_folder / name
        self.folder.mkdir()

    @property
    def hostile(self) -> Client:
        """A client of the hostile tenant."""
        return self.service.hostile

    @property
    def address(self) -> str:
        return self.service.address

    # -- streams and tuples -------------------------------------------------------------------------------------------

    def own(self, suffix: str = "", columns: Mapping[str, str] = PAIR, *, judged: bool = True, **given: Any) -> str:
        """A stream of the hostile tenant's own, fed with `push`; its name. Not `judged`: the oracle is not told of it,
        and no query that is owed anything may read it."""
        name = f"{self.name}{suffix}"
        self.hostile.create_stream(name, columns=columns, time="ts", source="push", **given)
        if judged:
            self.told.declared(name, columns, "ts", **given)
        return name

    def pair(self) -> tuple[str, str]:
        return self.own("-l"), self.own("-r")

    def push(self, stream: str, rows: Sequence[Any], judged_as: Sequence[Any] | None = None) -> None:
        """With the next step's tuples; `judged_as`: what the oracle is told instead."""
        self.told.push(stream, rows, judged_as)

    def victim(self) -> str:
        """A stream that good queries read."""
        return self.rng.choice(sorted(self.told.streams))

    def late_by_none(self, stream: str) -> int:
        """An event time that the victim's stream accepts now and that moves no watermark."""
        return self.told.greatest(stream)

    # -- queries ------------------------------------------------------------------------------------------------------

    def join(
        self, where: str = "", window: str = "TUMBLING (SIZE 10 SECONDS)", select: str = "a.k AS x", on: str = ""
    ) -> str:
        """A join of two good streams (or of `on`, one's own)."""
        left, right = sorted(self.told.streams)[:2]
        tables = on or f'"{left}" a JOIN "{right}" b ON a.k = b.k'
        condition = f"WHERE {where} " if where else ""
        return f"SELECT {select} FROM {tables} {condition}WINDOW {window}"

    def over(self, left: str, right: str, **rest: Any) -> str:
        return self.join(on=f'"{left}" a JOIN "{right}" b ON a.k = b.k', **rest)

    def owe(self, sql: str, suffix: str = "", **given: Any) -> str:
        """A query of the hostile tenant that must be served like any other; its id."""
        id = f"{self.name}{suffix}"
        self.hostile.create_query(sql, id=id, **given)
        self.told.created(id, sql, owner=self.hostile)
        return id

    def create(self, sql: str) -> str:
        """A query of the hostile tenant that the oracle is not asked about; its id."""
        self.hostile.create_query(sql, id=self.name)
        self.told.readers[self.name] = self.hostile
        return self.name

    def info(self, id: str) -> QueryInfo:
        return self.hostile.query(id)

    def rows(self, id: str) -> list[dict[str, Any]]:
        """All rows up to the last step, as a subscriber has read them."""
        assert id in self.told.readers, "nobody reads them"
        return [line["row"] for line in self.told.rows[id]]

    def arrival(self, id: str, rows: int) -> Generator[None, None, None]:
        """Steps until the query has so many rows and a subscriber has read them: what an epoch has no room for comes
        later."""
        for _ in range(MOST_STEPS):
            yield
            if self.info(id).rows >= rows:
                break
        yield
        assert len(self.rows(id)) == rows, f"{len(self.rows(id)):,} rows of {rows:,}"

    # -- what became of it --------------------------------------------------------------------------------------------

    def refusal(self, call: Callable[[], object]) -> Ending:
        try:
            call()
        except AJoinError as error:
            assert len(error.message) > 5, "no words"
            return ending_of(How.REFUSED, error)
        return Ending(How.SERVED)

    def suspension(self, id: str) -> Ending:
        """Why the query does not run any more, as its tenant is told."""
        self.until(lambda: self.info(id).state != QueryState.RUNNING, f"{id} still runs")
        info = self.info(id)
        assert info.state == QueryState.SUSPENDED, info.state
        return Ending(How.SUSPENDED, "", info.suspended)

    def until(self, condition: Callable[[], bool], otherwise: str) -> None:
        self.service.until(condition, otherwise)

    def file(self, name: str) -> Path:
        return self.folder / name
