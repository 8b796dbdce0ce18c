"""Bodies of name servers: routes, clusters, lists of topics.

# Facts
#
# ``TopicRouteData``, ``TopicQueueMappingInfo``, ``ClusterInfo``, ``TopicList``, ``GroupList``,
# ``ClientMetadata.topicRouteData2EndpointsForStaticTopic`` (5.4.0).
#
# * Addresses are ``host:port``; an IPv6 host has no brackets, ``::1:28911``: the last colon counts.
# * The keys of ``brokerAddrs`` are numbers, quoted or bare; 0 is the master.
# * A static topic's queues are the global ids of ``topicQueueMappingByBroker``, 0 to ``totalQueues`` - 1,
#   not those of ``queueDatas``; the owner of an id is the broker that maps it with the highest epoch. While
#   that one is down no broker maps it. The name of such a queue's broker contains the scope; that of
#   ``__global__`` loses two underscores: ``__syslo__global__`` (``TopicQueueMappingUtils``).
"""

from __future__ import annotations

from typing import Final

from pyspark_rocketmq.errors import RemoteProtocolError
from pyspark_rocketmq.inventory import ClusterInfo
from pyspark_rocketmq.model import (
    LOGICAL_BROKER_PREFIX,
    MAX_QUEUES,
    BrokerData,
    MessageQueue,
    Permission,
    QueueData,
    TopicRoute,
)
from pyspark_rocketmq.remoting.body.shape import Node, read
from pyspark_rocketmq.remoting.command import Buffer

__all__ = ["decode_cluster_info", "decode_group_list", "decode_route", "decode_topic_list"]

_GLOBAL_SCOPE: Final = "__global__"


def decode_route(topic: str, view: Buffer) -> TopicRoute:
    """Read the answer to GET_ROUTEINFO_BY_TOPIC.

    Raises
    ------
    RemoteProtocolError
    """
    route = read(view, "route")
    mappings = route["topicQueueMappingByBroker"]
    queues = tuple(
        QueueData(
            data["brokerName"].string(),
            data["readQueueNums"].integer(low=0, high=MAX_QUEUES),
            data["writeQueueNums"].integer(low=0, high=MAX_QUEUES),
            permission(data["perm"]),
        )
        for data in route["queueDatas"].elements()
    )
    _check_total(topic, sum(max(data.read_queues, data.write_queues) for data in queues))
    return TopicRoute(
        topic,
        tuple(_broker(data) for data in route["brokerDatas"].elements()),
        queues,
        _static_queues(topic, mappings),
        max((mapping["epoch"].integer(0) for _, mapping in mappings.members()), default=0),
    )


def decode_cluster_info(view: Buffer) -> ClusterInfo:
    """Read the answer to GET_BROKER_CLUSTER_INFO.

    Raises
    ------
    RemoteProtocolError
    """
    info = read(view, "cluster info")
    brokers, clusters = info["brokerAddrTable"], info["clusterAddrTable"]
    return ClusterInfo(
        {brokers.name(name): _broker(data) for name, data in brokers.members()},
        {clusters.name(name): tuple(sorted(names.strings())) for name, names in clusters.members()},
    )


def decode_topic_list(view: Buffer) -> tuple[str, ...]:
    """Read a list of topics (206, 224, 343), sorted.

    Raises
    ------
    RemoteProtocolError
    """
    return tuple(sorted(read(view, "topic list")["topicList"].strings()))


def decode_group_list(view: Buffer) -> tuple[str, ...]:
    """Read a list of groups (300), sorted.

    Raises
    ------
    RemoteProtocolError
    """
    return tuple(sorted(read(view, "group list")["groupList"].strings()))


def permission(node: Node) -> Permission:
    """Read permission bits; those that we do not know are dropped."""
    return Permission(node.integer() & 0xF)


def _broker(data: Node) -> BrokerData:
    addresses = data["brokerAddrs"]
    return BrokerData(
        data["brokerName"].string(),
        data["cluster"].string(""),
        {addresses.number(broker_id): addr.string() for broker_id, addr in addresses.members()},
    )


def _check_total(topic: str, queues: int) -> None:
    if queues > MAX_QUEUES:
        raise RemoteProtocolError(
            f"a route of {queues} queues is taken for damage: the most is {MAX_QUEUES}", topic=topic
        )


def _static_queues(topic: str, mappings: Node) -> dict[MessageQueue, str | None]:
    """Return the owner of each queue of a static topic; None of a queue that no broker maps now."""
    claims: dict[MessageQueue, tuple[int, str]] = {}
    totals: dict[str, int] = {}
    for name, mapping in mappings.members():
        scope = mapping["scope"].string(_GLOBAL_SCOPE)
        logical = LOGICAL_BROKER_PREFIX + (scope[2:] if scope == _GLOBAL_SCOPE else scope)
        total = mapping["totalQueues"].integer(0, low=0, high=MAX_QUEUES)
        totals[logical] = max(total, totals.get(logical, 0))
        claim = (mapping["epoch"].integer(0), mappings.name(name))
        mapped = mapping["currIdMap"]
        for queue_id, _ in mapped.members():
            queue = MessageQueue(topic, logical, mapped.number(queue_id))
            claims[queue] = max(claims.get(queue, claim), claim)
    _check_total(topic, max(len(claims), sum(totals.values())))
    queues = {
        MessageQueue(topic, logical, queue_id)
        for logical, total in totals.items()
        for queue_id in range(total)
    }
    return {queue: claims[queue][1] if queue in claims else None for queue in sorted(queues | claims.keys())}
