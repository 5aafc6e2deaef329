"""A plug-in for tests: sums that fail, each in a way of its own, as soon as there is a 13 among their values."""

from __future__ import annotations

import errno
from typing import Any

import numpy as np

from ajoin.plugins import NUMBERS, AggregateFunction, AggregatePlugin, ColumnType, Parts, register_aggregate


def plain(x: Any) -> Parts:
    return (x.astype(np.int64),)


def combine(left: Parts, right: Parts) -> Parts:
    return (left[0] + right[0],)


def lower(parts: Parts) -> Any:
    return parts[0]


def raising(x: Any) -> Parts:
    if (x == 13).any():
        raise ValueError("thirteen")
    return plain(x)


def full(x: Any) -> Parts:
    if (x == 13).any():
        raise OSError(errno.ENOSPC, "it says that the disk is full")
    return plain(x)


def short(x: Any) -> Parts:
    return (x[:-1],) if (x == 13).any() else plain(x)


def late(parts: Parts) -> Any:
    if (parts[0] >= 13).any():
        raise KeyError("thirteen")
    return parts[0]


LIFTS = {"TEST_PLAIN": (plain, lower), "TEST_RAISES": (raising, lower), "TEST_FULL": (full, lower)}
LIFTS |= {"TEST_SHORTENS": (short, lower), "TEST_LATE": (plain, late)}

for name, (lift, last) in LIFTS.items():
    function = AggregateFunction(name, (NUMBERS,), ColumnType.BIGINT)
    register_aggregate(AggregatePlugin(function, (ColumnType.BIGINT,), lift, combine, last))
