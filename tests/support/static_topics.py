"""Static topics of a real cluster, made and moved by RocketMQ's own tool."""

from __future__ import annotations

from tests.support.patient import patient_mqadmin
from tests.support.wait import eventually

from pyspark_rocketmq.client import Client, MessageQueue
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.errors import RocketMQError

_TIMEOUT_S = 60

LOGICAL = "__syslo__global__"


def create_static_topic(
    cluster: DevCluster, topic: str, queues: int, broker: str
) -> tuple[MessageQueue, ...]:
    """Create a static topic at one broker; return its queues."""
    patient_mqadmin(cluster, "updateStaticTopic", "-t", topic, "-qn", str(queues), "-b", broker)
    _settled(cluster, topic, queues, broker)
    return tuple(MessageQueue(topic, LOGICAL, queue_id) for queue_id in range(queues))


def remap(cluster: DevCluster, topic: str, broker: str) -> None:
    """Move every queue of a static topic to a broker; return when it serves them."""
    patient_mqadmin(cluster, "remappingStaticTopic", "-t", topic, "-b", broker)
    with Client(cluster.name_server) as client:
        queues = len(client.read_queues(topic))
    _settled(cluster, topic, queues, broker)


def _settled(cluster: DevCluster, topic: str, queues: int, broker: str) -> None:
    """Wait for the route, and some seconds until the new owner knows where the former ones are."""

    def settled() -> bool:
        with Client(cluster.name_server, operation_timeout_ms=1_000) as client:
            try:
                owners = client.owners(client.read_queues(topic))
                client.min_offsets(owners)
            except RocketMQError:
                return False
            return list(owners.values()) == [broker] * queues

    eventually(settled, _TIMEOUT_S, what=f"{topic} at {broker}")
