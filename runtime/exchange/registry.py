"""The kinds of exchange by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from runtime.buckets.store import BucketStore
from runtime.exchange.by_reference import ByReference
from runtime.exchange.by_value import ByValue
from runtime.exchange.interface import Exchange, ExchangeKind
from runtime.execution.executor import Executor

EXCHANGES: Mapping[ExchangeKind, Callable[[Executor, BucketStore, Path], Exchange]] = {
    "reference": ByReference,
    "value": ByValue,
}
