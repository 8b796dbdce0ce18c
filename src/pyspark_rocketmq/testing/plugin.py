"""Fixtures for pytest: add ``pytest_plugins = ["pyspark_rocketmq.testing.plugin"]`` to ``conftest.py``.

The plugin does not register itself, because every pytest run in the environment would load it. Heavy imports
wait until a fixture is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_rocketmq.client.client import Client
    from pyspark_rocketmq.devcluster import DevCluster
    from pyspark_rocketmq.model import Message
    from pyspark_rocketmq.testing.mock import MockBroker

__all__ = ["mock_rocketmq", "mock_rocketmq_client", "mock_rocketmq_peek", "rocketmq", "rocketmq_client"]
__all__ += ["rocketmq_peek", "spark"]

Peek = Callable[..., "list[Message]"]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Start a local Spark session, two cores and two shuffle partitions, shared by all tests of the run."""
    from pyspark_rocketmq.testing.session import local_session  # noqa: PLC0415

    with local_session() as session:
        yield session


@pytest.fixture(scope="session")
def rocketmq() -> Iterator[DevCluster]:
    """Start a real RocketMQ with one broker, shared by the session. Needs Java 17 and some seconds."""
    from pyspark_rocketmq.devcluster import DevCluster  # noqa: PLC0415

    with DevCluster() as cluster:
        yield cluster


@pytest.fixture
def rocketmq_client(rocketmq: DevCluster) -> Iterator[Client]:
    """Connect to `rocketmq`."""
    from pyspark_rocketmq.client.client import Client  # noqa: PLC0415

    with Client(rocketmq.name_server) as client:
        yield client


@pytest.fixture
def rocketmq_peek(rocketmq: DevCluster) -> Peek:
    """Return ``rocketmq_peek(topic, n)``, which returns the newest messages of a topic of `rocketmq`."""
    from pyspark_rocketmq.testing.newest_messages import peek  # noqa: PLC0415

    return lambda topic, n=10: peek(rocketmq.name_server, topic, n)


@pytest.fixture
def mock_rocketmq() -> Iterator[MockBroker]:
    """Start a mock broker and name server for the test, in milliseconds, without topics."""
    from pyspark_rocketmq.testing.mock import MockBroker  # noqa: PLC0415

    with MockBroker() as broker:
        yield broker


@pytest.fixture
def mock_rocketmq_client(mock_rocketmq: MockBroker) -> Iterator[Client]:
    """Connect to `mock_rocketmq`."""
    from pyspark_rocketmq.client.client import Client  # noqa: PLC0415

    with Client(mock_rocketmq.name_server) as client:
        yield client


@pytest.fixture
def mock_rocketmq_peek(mock_rocketmq: MockBroker) -> Peek:
    """Return ``mock_rocketmq_peek(topic, n)``, which does the same for `mock_rocketmq`."""
    from pyspark_rocketmq.testing.newest_messages import peek  # noqa: PLC0415

    return lambda topic, n=10: peek(mock_rocketmq.name_server, topic, n)
