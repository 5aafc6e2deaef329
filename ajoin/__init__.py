"""Ad-hoc shared stream joins: the Python client.

    import ajoin

    with ajoin.Client("127.0.0.1:7411") as client:
        client.create_query("SELECT ... WINDOW TUMBLING (SIZE 1 SECOND)", id="q1")
        print(client.results("q1").to_pandas())

Everything is imported on first use, so that `ajoin --help` does not load gRPC and Arrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ajoin import errors
    from ajoin.client.async_client import AsyncClient
    from ajoin.client.client import Client
    from ajoin.client.results import Batch, Cursor, Progress, Results
    from runtime.api import AtLimit, Budget
    from runtime.results.factorized import expand

_HOMES = {
    "AsyncClient": "ajoin.client.async_client",
    "AtLimit": "runtime.api",
    "Batch": "ajoin.client.results",
    "Budget": "runtime.api",
    "Client": "ajoin.client.client",
    "Cursor": "ajoin.client.results",
    "Progress": "ajoin.client.results",
    "Results": "ajoin.client.results",
    "expand": "runtime.results.factorized",
}

__all__ = ["AsyncClient", "AtLimit", "Batch", "Budget", "Client", "Cursor", "Progress", "Results", "errors", "expand"]


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("ajoin.errors")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'ajoin' has no attribute {name!r}")
