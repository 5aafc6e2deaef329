"""One broker for all Kafka tests, and topic names nobody else uses."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from runtime.connectors.kafka.connection import close_idle
from tests.kafka.broker import Broker, jars
from tests.tools.maven import Unreachable


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    try:
        classpath = jars()
    except Unreachable as why:
        if os.environ.get("CI") == "true":
            pytest.fail(f"the Kafka tests must run here, but {why}")
        pytest.skip(f"no Kafka broker: {why}")
    broker = Broker(classpath, tmp_path_factory.mktemp("kafka"))
    broker.start()
    yield broker
    close_idle()
    broker.stop()


@pytest.fixture(scope="session")
def names() -> Callable[[str], str]:
    numbers = count(1)
    return lambda name: f"{name}-{next(numbers)}"


@pytest.fixture
def topic(broker: Broker, names: Callable[[str], str]) -> Callable[..., str]:
    """Makes a new topic: `topic("clicks", partitions=2)` answers its name."""
    return lambda name="t", **settings: broker.create_topic(names(name), **settings)
