"""Every hostile kind there is, by what it attacks with."""

from __future__ import annotations

from tests.poison.hostile_budgets import BUDGETS
from tests.poison.hostile_clients import CLIENTS
from tests.poison.hostile_queries import QUERIES
from tests.poison.hostile_sinks import SINKS
from tests.poison.hostile_streams import STREAMS
from tests.poison.hostile_subscribers import SUBSCRIBERS
from tests.poison.hostile_tasks import TASKS
from tests.poison.hostile_tenants import TENANTS
from tests.poison.hostile_tuples import TUPLES
from tests.poison.kinds import Kind

CATALOGUE: tuple[Kind, ...] = (
    *QUERIES,
    *BUDGETS,
    *TASKS,
    *TUPLES,
    *SINKS,
    *STREAMS,
    *SUBSCRIBERS,
    *CLIENTS,
    *TENANTS,
)
