"""Fixtures for every test: one broker, a fresh topic and group a test, one Spark session."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.examples import load_profiles
from tests.support.java_names import remember_java_names
from tests.support.lean_jvm import lean_spark, lean_workers
from tests.support.light_cluster import LIGHT_JVM, light_cluster
from tests.support.patient import patient_client
from tests.support.places import needs
from tests.support.shared_cluster import ClusterOwner, join_cluster
from tests.support.spark_releases import (
    ignore_known_warnings,
    is_for_newer,
    select,
    sent_by_worker,
    summary,
    to_controller,
)
from tests.support.stream_runners import VARIABLE, stream_runners
from tests.support.topics import TopicFactory, create_topic, fresh_name
from tests.support.wait import PATIENCE

from pyspark_rocketmq.client import Client
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.testing import MockCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from xdist.workermanage import WorkerController

__all__ = ["group", "mq", "mq49", "mq54", "spark", "topic"]

load_profiles()

OWNER = pytest.StashKey[ClusterOwner]()


def pytest_configure(config: pytest.Config) -> None:
    """Set what every process that a test starts inherits."""
    ignore_known_warnings(config)
    lean_spark(os.environ)
    lean_workers(os.environ)
    remember_java_names()
    os.environ.pop("COLUMNS", None)  # tables are as wide as their content, in any terminal
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # In a script's background job, or below nohup. A signal that is handled, by nothing even, is reset in
        # children: Ctrl-C must end them.
        signal.signal(signal.SIGINT, lambda *_: None)


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_configure_node(node: WorkerController) -> None:
    """Tell a worker where it gets the cluster that all workers share."""
    if OWNER not in node.config.stash:
        node.config.stash[OWNER] = ClusterOwner(lambda: light_cluster().start())
    node.workerinput["shared_cluster"] = node.config.stash[OWNER].address


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the shared cluster after all workers."""
    if OWNER in config.stash:
        config.stash[OWNER].close()


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out modules that cannot be imported with the running Spark."""
    return is_for_newer(collection_path) or None


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the main process what the running Spark is too old for."""
    to_controller(session.config)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    """Take what a process of pytest-xdist told."""
    sent_by_worker(getattr(node, "workeroutput", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what the running Spark is too old for."""
    for line in summary():
        terminalreporter.write_line(line)


@pytest.hookimpl(tryfirst=True)  # before tests are selected by their markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put what needs more than is shared among the large tests, and leave each the time of a busy machine."""
    select(config, items)
    for item in items:
        if needs(item):
            item.add_marker(pytest.mark.large)
        if (limit := item.get_closest_marker("timeout")) is not None:
            item.add_marker(pytest.mark.timeout(limit.args[0] * PATIENCE), append=False)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for all tests of the process, with forked processes for its streams."""
    from pyspark_rocketmq.testing.session import local_session  # noqa: PLC0415 - PySpark is heavy

    with stream_runners(os.environ) as place:
        if place is not None:
            os.environ[VARIABLE] = place
        with local_session() as session:
            os.environ.pop(VARIABLE, None)
            yield session


@pytest.fixture(scope="session")
def mq(request: pytest.FixtureRequest) -> Iterator[DevCluster]:
    """A RocketMQ with one broker, shared by all processes of the run: leave it running and unchanged.

    Tests of other processes use it meanwhile: see `broker_settings`.
    """
    shared = getattr(request.config, "workerinput", {}).get("shared_cluster")
    if shared is not None:
        yield join_cluster(shared)
        return
    with light_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def mq54() -> Iterator[DevCluster]:
    """A RocketMQ 5.4 with one broker, shared by the process: leave it running and unchanged."""
    with light_cluster(version="5.4.0") as cluster:
        yield cluster


@pytest.fixture(scope="session")
def mq49() -> Iterator[DevCluster]:
    """A RocketMQ 4.9 with one broker, shared by the suite: leave it running and unchanged."""
    with DevCluster(version="4.9.7", broker_options=LIGHT_JVM) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def proxied() -> Iterator[DevCluster]:
    """A RocketMQ with two brokers behind a proxy: leave it running and unchanged."""
    mixed = {"enableMixedMessageType": "true"}
    with DevCluster(brokers=2, proxies=1, broker_config=mixed, broker_options=LIGHT_JVM) as cluster:
        yield cluster


@pytest.fixture
def proxied_topic(proxied: DevCluster, topic: TopicFactory) -> str:
    """A fresh topic with two queues a broker, which the proxy shows."""
    return topic(queues=2, cluster=proxied)


@pytest.fixture
def cluster(mq: DevCluster | MockCluster) -> DevCluster | MockCluster:
    """The cluster of a test; modules with another one define this fixture themselves."""
    return mq


@pytest.fixture
def name_server(cluster: DevCluster | MockCluster) -> str:
    """The name servers of the test's cluster, or its proxies: then clients do not know the name servers."""
    proxy = cluster.proxy if isinstance(cluster, DevCluster) else None
    return proxy or cluster.name_server


@pytest.fixture
def client(name_server: str) -> Iterator[Client]:
    """A client of the test's cluster."""
    with patient_client(name_server) as client:
        yield client


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> TopicFactory:
    """Make a fresh topic named after the test: ``topic(queues=4, cluster=mq)``."""

    def make(
        queues: int = 4,
        *,
        cluster: DevCluster | None = None,
        perm: int = 6,
        brokers: Sequence[str] | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> str:
        name = fresh_name(request.node.name)
        create_topic(cluster or request.getfixturevalue("mq"), name, queues, perm, brokers, attributes)
        return name

    return make


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    """A fresh group name; brokers make groups on first use."""
    return fresh_name(f"g-{request.node.name}")
