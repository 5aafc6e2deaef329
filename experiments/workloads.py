"""The two ad-hoc workloads of the paper (and of AStream before it), as lists of requests with due times.

SC1: queries are created at a steady rate until so many run in parallel, and then stay: users come at
certain times, with long-running queries. SC2: queries come and go: every query lives for a while, so
creations and deletions mix and the number of running queries goes up and down.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Literal


@dataclass(frozen=True, slots=True, order=True)
class UserRequest:
    """`query` is the number of a query in the experiment's list."""

    at_seconds: float
    kind: Literal["create", "delete"]
    query: int


def sc1(rate: float, parallel: int) -> list[UserRequest]:
    """`rate` queries per second until `parallel` of them run."""
    return [UserRequest(i / rate, "create", i) for i in range(parallel)]


def sc2(rate: float, parallel: int, seconds: float, rng: Random) -> list[UserRequest]:
    """`rate` creations per second throughout; a query lives on average so long that `parallel` run at a time."""
    requests: list[UserRequest] = []
    life = parallel / rate
    for i in range(int(seconds * rate)):
        at = i / rate
        requests.append(UserRequest(at, "create", i))
        ends = at + rng.uniform(0.5, 1.5) * life
        if ends < seconds:
            requests.append(UserRequest(ends, "delete", i))
    return sorted(requests)


def make_requests(name: str, rate: float, parallel: int, seconds: float, rng: Random) -> list[UserRequest]:
    if name == "SC1":
        return sc1(rate, parallel)
    if name == "SC2":
        return sc2(rate, parallel, seconds, rng)
    raise ValueError(f"there is no workload {name!r}; there are SC1 and SC2")
