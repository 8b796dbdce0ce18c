"""A stream whose master is away, and whose slave lacks messages that it has read."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from tests.spark.conftest import Batches
from tests.support.slaves import end_at, serves
from tests.support.topics import fill
from tests.support.wait import eventually

from pyspark_rocketmq.client import Admin, Client
from pyspark_rocketmq.devcluster import DevCluster

pytestmark = [pytest.mark.needs("cluster"), pytest.mark.timeout(300)]

BOTH_HAVE, ALL, LATER = 10, 40, 45
"""How many messages are small and replicated at once, the master has, and the queue has in the end."""

BODY = random.Random(1).randbytes(30_000).hex().encode()
"""Of the others: each takes half a minute to the slave."""


@pytest.fixture
def cluster() -> Iterator[DevCluster]:
    """A slave that may be read, and its master, which replicates slowly; the master is killed."""
    settings = {
        "slaveReadEnable": "true",
        "haFlowControlEnable": "true",
        "maxHaTransferByteInSecond": "2000",
    }
    with DevCluster(slaves=1, broker_config=settings) as cluster:
        yield cluster


def test_positions_past_its_end_are_kept_also_by_a_query_that_starts_meanwhile(
    stream, cluster: DevCluster
) -> None:
    master, slave = cluster.broker("broker-a"), cluster.broker("broker-a-1")
    options = {"available_now": False, "startingOffsets": "earliest", "routeRefreshMs": 100}
    batches = Batches()
    with Client(cluster.name_server) as client:
        Admin(client).create_topic("orders", queues=1)
        (queue,) = client.read_queues("orders")
        fill(client, "orders", [b"x"] * BOTH_HAVE)
        eventually(lambda: serves(client, slave.address, queue, BOTH_HAVE - 1), 60, what="the slave's copies")
        query = stream("orders", batches, cluster=cluster, **options)
        eventually(lambda: len(batches.all()) == BOTH_HAVE, 60, what="the first messages")
        fill(client, "orders", [BODY] * (ALL - BOTH_HAVE))
        eventually(lambda: len(batches.all()) == ALL, 60, what="what the master has")
        master.kill()
        assert BOTH_HAVE <= end_at(client, slave.address, queue) < ALL - 5, "the slave has everything"
        before = len(query.recentProgress)
        eventually(lambda: len(query.recentProgress) > before, 60, what="a look at the slave")
        query.stop()
        query = stream("orders", batches, cluster=cluster, **options)
        eventually(lambda: query.lastProgress is not None, 60, what="a start with the slave alone")
        assert len(batches.all()) == ALL
        master.start()
        fill(client, "orders", [b"x"] * (LATER - ALL))
        eventually(lambda: len(batches.all()) >= LATER, 120, what="what came after the outage")
        assert [offset for _, _, offset, _ in batches.all()] == list(range(LATER))
        assert query.isActive
