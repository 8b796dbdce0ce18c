"""Masters that switch under a real controller: queues and offsets stay, no message is lost or repeated."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from tests.support.light_cluster import LIGHT_JVM
from tests.support.patient import patient_producer
from tests.support.slaves import serves
from tests.support.wait import eventually

from pyspark_rocketmq.client import Admin, Client, OutgoingMessage
from pyspark_rocketmq.client.read.queue_reader import read_messages
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.devcluster.system.ports import free_port
from pyspark_rocketmq.model import MASTER_ID, OffsetRange

pytestmark = [pytest.mark.needs("cluster", "kills"), pytest.mark.timeout(300)]

MESSAGES = 100


@pytest.fixture
def cluster() -> Iterator[DevCluster]:
    """Two replicas, and a controller in the name server. What is acknowledged, both have."""
    address = f"127.0.0.1:{free_port(random.Random())}"
    controller = {
        "enableControllerInNamesrv": "true",
        "controllerDLegerGroup": "controllers",
        "controllerDLegerPeers": f"n0-{address}",
        "controllerDLegerSelfId": "n0",
    }
    replicas = {
        "enableControllerMode": "true",
        "controllerAddr": address,
        "allAckInSyncStateSet": "true",
        "slaveReadEnable": "true",
    }
    with DevCluster(
        slaves=1, name_server_config=controller, broker_config=replicas, broker_options=LIGHT_JVM
    ) as cluster:
        yield cluster


def test_the_other_replica_becomes_the_master_and_everything_continues(cluster: DevCluster) -> None:
    with Client(cluster.name_server) as client:
        Admin(client).create_topic("switched", queues=1)
        eventually(lambda: client.write_queues("switched"), 30)
        (queue,) = client.write_queues("switched")
        producer, bodies = patient_producer(client), iter(range(3 * MESSAGES))

        def send() -> None:
            for _ in range(MESSAGES):
                producer.send(OutgoingMessage("switched", b"%d" % next(bodies)), queue)

        def master() -> str | None:
            client.invalidate("switched")
            return client.route("switched").brokers[0].addresses.get(MASTER_ID)

        send()
        replicas = [cluster.broker(name) for name in ("broker-a", "broker-a-1")]
        for sent, (killed, other) in enumerate((replicas, replicas[::-1]), 1):
            # Also the topic, which a slave copies from time to time.
            last = sent * MESSAGES - 1
            eventually(lambda: serves(client, other.address, queue, last), 60)  # noqa: B023 - called now
            assert master() == killed.address
            killed.kill()
            send()
            assert master() == other.address
            killed.start()
        end = client.max_offsets([queue])[queue]
        found = read_messages(client, [OffsetRange(queue, 0, end)], ReadOptions(consumer_group="g"))
        assert [int(message.body) for message in found] == list(range(3 * MESSAGES))
