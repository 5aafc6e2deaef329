"""Partitions stay where they are while executors leave, and are dealt out anew when some come."""

from __future__ import annotations

import pytest

from runtime.spark.executor import SparkExecutor
from runtime.spark.places import MOST, Places

pytestmark = pytest.mark.spark

PIECES = [b"a", b"b"]


def test_places_are_kept_until_there_are_more_cores_on_spark(spark: SparkExecutor) -> None:
    places = Places(spark.context)

    def given(cores: int) -> int:
        assert places.of(PIECES, cores).collect() == PIECES
        return int(places._placed[len(PIECES)].blocks.id())

    first = given(3)
    assert given(3) == given(2) == first
    second = given(3)
    assert second != first, "who came has no places yet"
    assert given(3) == second


def test_places_of_few_numbers_of_tasks_are_remembered_on_spark(spark: SparkExecutor) -> None:
    places = Places(spark.context)
    for count in range(1, MOST + 3):
        assert places.of([b"x"] * count, 2).count() == count
    assert len(places._placed) == MOST
