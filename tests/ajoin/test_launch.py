"""From settings to an engine: what is decided on the way."""

from __future__ import annotations

import pytest

from ajoin.config import load
from ajoin.platform.launch import exchange
from optimizer.errors import AJoinError


@pytest.mark.parametrize(
    ("flags", "chosen"),
    [
        ({}, "reference"),
        ({"spark_master": "local[2]"}, "reference"),
        ({"spark_master": "spark://host:7077"}, "value"),
        ({"spark_master": "yarn"}, "value"),
        ({"spark_master": "spark://host:7077", "executor": "local"}, "reference"),
        ({"spark_master": "spark://host:7077", "exchange": "reference"}, "reference"),
        ({"exchange": "value"}, "value"),
    ],
)
def test_buckets_travel_by_value_where_executors_may_see_other_disks(flags: dict[str, str], chosen: str) -> None:
    assert exchange(load(flags).settings) == chosen


def test_settings_of_spark_are_key_and_value() -> None:
    given = "spark.executor.memory=4g, spark.archives=env.tar.gz#env"
    assert load({"spark_conf": given}).settings.spark_conf == (
        "spark.executor.memory=4g",
        "spark.archives=env.tar.gz#env",
    )
    for wrong in ("spark.executor.memory", "memory=4g"):
        with pytest.raises(AJoinError, match=r"is not spark\.key=value"):
            load({"spark_conf": wrong})
