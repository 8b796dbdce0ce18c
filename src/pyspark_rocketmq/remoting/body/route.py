"""Bodies of name servers: routes, clusters, lists of topics.

# Facts
#
# ``TopicRouteData``, ``TopicQueueMappingInfo``, ``ClusterInfo``, ``TopicList``, ``GroupList`` (5.4.0).
#
# * Addresses are ``host:port``; an IPv6 host has no brackets, ``::1:28911``: the last colon counts.
# * The keys of ``brokerAddrs`` are numbers, quoted or bare; 0 is the master.
# * A static topic's queues are the global ids of ``topicQueueMappingByBroker``, not those of
#   ``queueDatas``; the owner of an id is the broker that maps it with the highest epoch.
"""

from __future__ import annotations

from typing import Final

from pyspark_rocketmq.inventory import ClusterInfo
from pyspark_rocketmq.model import BrokerData, Permission, QueueData, TopicRoute
from pyspark_rocketmq.remoting.body.shape import Node, read
from pyspark_rocketmq.remoting.command import Buffer

__all__ = ["MAX_QUEUES", "decode_cluster_info", "decode_group_list", "decode_route", "decode_topic_list"]

MAX_QUEUES: Final = 65_536
"""More queues of a topic at one broker than this are taken for damage, not for a route."""


def decode_route(topic: str, view: Buffer) -> TopicRoute:
    """Read the answer to GET_ROUTEINFO_BY_TOPIC.

    Raises
    ------
    RemoteProtocolError
    """
    route = read(view, "route")
    return TopicRoute(
        topic,
        tuple(_broker(data) for data in route["brokerDatas"].elements()),
        tuple(
            QueueData(
                data["brokerName"].string(),
                data["readQueueNums"].integer(low=0, high=MAX_QUEUES),
                data["writeQueueNums"].integer(low=0, high=MAX_QUEUES),
                permission(data["perm"]),
            )
            for data in route["queueDatas"].elements()
        ),
        _static_queues(route["topicQueueMappingByBroker"]),
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


def _static_queues(mappings: Node) -> dict[int, str]:
    owners: dict[int, tuple[int, str]] = {}
    for name, mapping in mappings.members():
        epoch = mapping["epoch"].integer(0)
        queues = mapping["currIdMap"]
        for queue_id, _ in queues.members():
            claim = (epoch, mappings.name(name))
            owners[queues.number(queue_id)] = max(owners.get(queues.number(queue_id), claim), claim)
    return {queue_id: broker_name for queue_id, (_, broker_name) in sorted(owners.items())}
