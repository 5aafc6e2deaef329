"""Tenants that want more than is theirs: others' queries, rows and plans, higher quotas, lines in the log."""

# ruff: noqa: E501  (one kind a line reads better)
from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from ajoin.client.client import Client
from optimizer.errors import AJoinError
from runtime.api import QueryState
from tests.poison.kinds import SERVED, Ending, How, Kind, ending_of, one_call, refused
from tests.poison.scene import Scene

Steps = Generator[None, None, Ending]
NOT_FOUND = refused("NOT_FOUND", "QUERY_NOT_FOUND")
DENIED = refused("PERMISSION_DENIED", "PERMISSION_DENIED")
UNKNOWN = refused("UNAUTHENTICATED", "UNAUTHENTICATED")
FORGED = "2026-01-01 00:00:00,000 INFO    ajoin.engine everything is forgiven"


def _as(token: Callable[[Scene], str | None], call: Callable[[Client, Scene], Any]) -> Callable[[Scene], Any]:
    def made(scene: Scene) -> Any:
        with Client(scene.address, token=token(scene), timeout=scene.service.patience) as client:
            return call(client, scene)

    return made


def _others(name: str, does: str, call: Callable[[Client, str], Any]) -> Kind:
    """Tries the same with every query of the good tenant, by all its names; no answer may differ from the others."""

    def attack(scene: Scene) -> Steps:
        yield
        good = [q.id for q in scene.service.good.queries()] or ["q1"]
        names = [*good, *(f"good/{id}" for id in good), "good/../good/q1", "never"]
        found = {scene.refusal(lambda id=id: call(scene.hostile, id)) for id in names}  # type: ignore[misc]
        return found.pop() if len(found) == 1 else Ending(How.SERVED, "", str(found))

    return Kind(name, does, NOT_FOUND, attack)


def _flood(scene: Scene) -> Steps:
    """200 calls at once, of 30 a second."""
    greedy, refusals = scene.service.client("greedy"), []
    for _ in range(200):
        try:
            greedy.status()
        except AJoinError as error:
            refusals.append(ending_of(How.LIMITED, error))
    yield
    assert len(refusals) > 50 and len(set(refusals)) == 1, refusals
    return refusals[0]


def _patiently(scene: Scene, call: Callable[[], Any]) -> Any:
    """The greedy tenant has few calls a second; other kinds may have used them up."""
    answers: list[Any] = []

    def made() -> bool:
        try:
            answers.append(call())
        except AJoinError as busy:
            if busy.reason != "TENANT_RATE":
                raise
        return bool(answers)

    scene.until(made, "the tenant has used up its calls for good")
    return answers[0]


def _queries_quota(scene: Scene) -> Steps:
    greedy = scene.service.client("greedy")
    wanted = {f"{scene.name}-{n}": scene.join() for n in range(6)}
    outcomes = _patiently(scene, lambda: greedy.create_queries(wanted))
    yield
    made = [o for o in outcomes if not isinstance(o, AJoinError)]
    for query in made:
        _patiently(scene, lambda id=query.id: greedy.delete_query(id))  # type: ignore[misc]
    refusals = {ending_of(How.REFUSED, o) for o in outcomes if isinstance(o, AJoinError)}
    assert len(made) <= 3 and len(refusals) == 1, outcomes
    return refusals.pop()


def _streams_quota(scene: Scene) -> Steps:
    greedy, ends = scene.service.client("greedy"), []
    for n in range(4):
        name = f"{scene.name}-{n}"
        ends.append(
            scene.refusal(
                lambda name=name: _patiently(  # type: ignore[misc]
                    scene, lambda: greedy.create_stream(name, columns={"ts": "TIMESTAMP"}, time="ts", source="push")
                )
            )
        )
    yield
    assert ends[:2] == [SERVED, SERVED], ends
    return ends[-1] if ends[2] == ends[3] else Ending(How.SERVED, "", str(ends))


def _forges_log(scene: Scene) -> Steps:
    """Lines of the log in every text that a tenant can choose."""
    scene.hostile.create_query(scene.join(), id=scene.name)
    scene.hostile.suspend_query(scene.name, f"enough\n{FORGED}")
    calls: tuple[Callable[[], Any], ...] = (
        lambda: scene.hostile.create_query(f"SELECT '\n{FORGED}\n' FROM x", id="y"),
        lambda: scene.hostile.create_query(scene.join(), id=f"x\r{FORGED}"),
        lambda: scene.hostile.create_query(scene.join(), id="x", sinks=[("parquet", {"path": f"x\n{FORGED}"})]),
        lambda: scene.hostile.create_query(scene.join(), id="x", sinks=[(f"x\n{FORGED}", {})]),
        lambda: scene.hostile.create_stream(f"x\n{FORGED}", columns={"ts": "TIMESTAMP"}, time="ts"),
        lambda: list(scene.hostile.subscribe(f"x\n{FORGED}")),
    )
    for call in calls:
        assert scene.refusal(call).how == How.REFUSED
    stream = scene.own()
    scene.push(stream, [f"\n{FORGED}\n", {"k": f"\n{FORGED}", "ts": 1}, {"s": f"\r\n{FORGED}", "ts": 2}])
    yield
    lines = scene.service.log.getvalue().replace("\r", "\n").splitlines()
    assert lines and not [line for line in lines if line.startswith(FORGED)], "a tenant writes lines of the log"
    return SERVED


def _same_request_id(scene: Scene) -> Steps:
    """The request id of another tenant's call gives nobody its answer."""
    id = scene.name
    scene.service.good.create_query(scene.join(), id=f"{id}-good", request_id="the-same")
    yield
    mine = scene.hostile.create_query(scene.join("a.k = 1"), id=f"{id}-mine", request_id="the-same")
    assert mine.id == f"{id}-mine" and [q.id for q in scene.hostile.queries() if "good" in q.id] == []
    again = scene.hostile.create_query(scene.join("a.k = 1"), id=f"{id}-mine", request_id="the-same")
    assert again.uid == mine.uid
    scene.service.good.delete_query(f"{id}-good")
    return SERVED


def _suspends_and_resumes(scene: Scene) -> Steps:
    """Stops and resumes its own query all the time."""
    scene.hostile.create_query(scene.join(), id=scene.name)
    for n in range(6):
        scene.hostile.suspend_query(scene.name, "again")
        assert scene.hostile.query(scene.name).state == QueryState.SUSPENDED
        scene.hostile.resume_query(scene.name)
        if n == 2:
            yield
    scene.hostile.delete_query(scene.name)
    return SERVED


TENANTS = (
    one_call("token-missing", "shows no token", UNKNOWN, _as(lambda s: None, lambda c, s: c.status())),
    one_call("token-wrong", "shows a token of its own making", UNKNOWN, _as(lambda s: "ajoin_guess", lambda c, s: c.status())),
    one_call("token-injected", "shows a token with quotes and braces", UNKNOWN,
             _as(lambda s: "x\"]\n".strip() + "[[token]]", lambda c, s: c.status())),
    one_call("reader-writes", "creates a query with a token for reading", DENIED,
             _as(lambda s: s.service.tokens["reader"], lambda c, s: c.create_query(s.join()))),
    one_call("tenant-forces", "forces groups upon everybody", DENIED, lambda s: s.hostile.force_groups({"good/q1": 0})),
    one_call("tenant-scales", "asks for a thousand partitions", DENIED, lambda s: s.hostile.scale(1000)),
    one_call("tenant-optimizes", "asks the optimizer to work for it", DENIED, lambda s: s.hostile.optimize("full")),
    one_call("tenant-watches", "watches everybody's plan", DENIED, lambda s: list(s.hostile.watch_plan(after_version=0, timeout=30))),
    _others("deletes-others", "deletes others' queries", lambda client, id: client.delete_query(id)),
    _others("suspends-others", "suspends others' queries", lambda client, id: client.suspend_query(id, "hush")),
    _others("reads-others", "reads others' rows", lambda client, id: list(client.subscribe(id, follow=False, timeout=60))),
    _others("explains-others", "asks how others' queries run", lambda client, id: client.explain(id)),
    Kind("request-flood", "200 calls at once of 30 a second", Ending(How.LIMITED, "RESOURCE_EXHAUSTED", "TENANT_RATE"), _flood),
    Kind("queries-beyond-quota", "twice as many queries as it may have", refused("RESOURCE_EXHAUSTED", "TENANT_QUOTA"), _queries_quota),
    Kind("streams-beyond-quota", "twice as many streams as it may have", refused("RESOURCE_EXHAUSTED", "TENANT_QUOTA"), _streams_quota),
    Kind("forged-log", "lines of the log in ids, reasons, SQL, paths and tuples", SERVED, _forges_log),
    Kind("same-request-id", "another tenant's request id", SERVED, _same_request_id),
    Kind("suspends-and-resumes", "stops and resumes its query all the time", SERVED, _suspends_and_resumes),
)  # fmt: skip
