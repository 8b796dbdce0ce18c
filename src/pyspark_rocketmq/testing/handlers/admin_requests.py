"""Mock servers' operations for administration and group requests, and for name server requests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark_rocketmq._version import ROCKETMQ_VERSION
from pyspark_rocketmq.inventory import TopicConfig
from pyspark_rocketmq.model import BrokerData, MessageQueue, Permission
from pyspark_rocketmq.remoting.body import decode_group_config
from pyspark_rocketmq.remoting.body.shape import read
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.remoting.frame import Frame
from pyspark_rocketmq.remoting.header import (
    CreateTopicRequest,
    DeleteSubscriptionGroupRequest,
    DeleteTopicFromNamesrvRequest,
    DeleteTopicRequest,
    GetConsumeStatsRequest,
    GetRouteInfoRequest,
    GetTopicConfigRequest,
    GetTopicStatsInfoRequest,
)
from pyspark_rocketmq.testing.handlers.execution import Refused
from pyspark_rocketmq.testing.handlers.requests import Operation, Replica
from pyspark_rocketmq.testing.log import PullLimits
from pyspark_rocketmq.testing.static_topics import StaticTopic
from pyspark_rocketmq.testing.store import BrokerStore
from pyspark_rocketmq.testing.wire import Reply

__all__ = ["Registry", "admin_requests", "name_server_requests"]

_VERSION: Final = f"V{ROCKETMQ_VERSION.replace('.', '_')}"


def admin_requests() -> dict[int, Operation]:
    """Return a broker's operations by request code, except those for messages and offsets."""
    return {
        RequestCode.UPDATE_AND_CREATE_TOPIC: _create_topic,
        RequestCode.DELETE_TOPIC_IN_BROKER: _delete_topic,
        RequestCode.GET_ALL_TOPIC_CONFIG: _all_topics,
        RequestCode.GET_TOPIC_CONFIG: _topic_config,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _create_group,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _all_groups,
        RequestCode.DELETE_SUBSCRIPTIONGROUP: _delete_group,
        RequestCode.GET_TOPIC_STATS_INFO: _topic_stats,
        RequestCode.GET_CONSUME_STATS: _consume_stats,
        RequestCode.GET_BROKER_CONFIG: _broker_config,
        RequestCode.UPDATE_BROKER_CONFIG: _update_broker_config,
        RequestCode.GET_BROKER_RUNTIME_INFO: _runtime_info,
        RequestCode.CHECK_CLIENT_CONFIG: _check_client,
        RequestCode.GET_CONSUMER_CONNECTION_LIST: _not_online,
    }


def _json(document: Any) -> Reply:
    return Reply(body=json.dumps(document).encode())


# --- topics and groups ----------------------------------------------------------------------


def _create_topic(replica: Replica, frame: Frame, limits: PullLimits) -> Reply:
    del limits
    request = CreateTopicRequest.parse(frame.command.fields)
    if not request.topic or set(request.topic) & set(" /#!,:"):
        raise Refused(ResponseCode.INVALID_PARAMETER, "The specified topic contains illegal characters")
    replica.store.create_topic(
        TopicConfig(
            request.topic,
            request.read_queue_nums,
            request.write_queue_nums,
            Permission(request.perm & 0xF),
            order=request.order,
            topic_filter_type=request.topic_filter_type,
            topic_sys_flag=request.topic_sys_flag,
            attributes=_change(replica.store.topics.get(request.topic), request.attributes or ""),
        )
    )
    return Reply()


def _change(before: TopicConfig | None, changes: str) -> dict[str, str]:
    """Return a topic's attributes after applying ``+name=value`` and ``-name``."""
    attributes = dict(before.attributes) if before is not None else {}
    for change in filter(None, changes.split(",")):
        name, _, value = change[1:].partition("=")
        if change.startswith("+"):
            attributes[name] = value
        else:
            attributes.pop(name, None)
    return attributes


def _delete_topic(replica: Replica, frame: Frame, limits: PullLimits) -> Reply:
    del limits
    replica.store.delete_topic(DeleteTopicRequest.parse(frame.command.fields).topic)
    return Reply()


def _config(config: TopicConfig) -> dict[str, Any]:
    return {
        "topicName": config.topic,
        "readQueueNums": config.read_queues,
        "writeQueueNums": config.write_queues,
        "perm": int(config.perm),
        "order": config.order,
        "topicFilterType": config.topic_filter_type,
        "topicSysFlag": config.topic_sys_flag,
        "attributes": dict(config.attributes),
    }


def _all_topics(replica: Replica, frame: Frame, limits: PullLimits) -> Reply:
    del frame, limits
    return _json({"topicConfigTable": {name: _config(c) for name, c in replica.store.topics.items()}})


def _topic_config(replica: Replica, frame: Frame, limits: PullLimits) -> Reply:
    del limits
    topic = GetTopicConfigRequest.parse(frame.command.fields).topic
    if topic not in replica.store.topics:
        raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}")
    return _json(_config(replica.store.topics[topic]))


def _create_group(replica: Replica, frame: Frame, limits: PullLimits) -> Reply:
    del limits
    replica.store.create_group(decode_group_config(frame.body).group)
    return Reply()


def _all_groups(replica: Replica, frame: Frame, limits: PullLimits) -> Reply:
    del frame, limits
    return _json({"subscriptionGroupTable": {name: {"groupName": name} for name in replica.store.groups}})


def _delete_group(replica: Replica, frame: Frame, limits: PullLimits) -> Reply:
    del limits
    request = DeleteSubscriptionGroupRequest.parse(frame.command.fields)
    store = replica.store
    store.groups.discard(request.group_name)
    if request.clean_offset:
        for key in [key for key in store.committed if key[0] == request.group_name]:
            del store.committed[key]
    return Reply()


# --- statistics -----------------------------------------------------------------------------


def _table(rows: Iterable[tuple[MessageQueue, dict[str, int]]]) -> str:
    """Write a table with objects as keys, as fastjson does."""
    written = (
        json.dumps({"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic})
        + ":"
        + json.dumps(row)
        for queue, row in rows
    )
    return f'"offsetTable":{{{",".join(written)}}}'


def _queues(store: BrokerStore, topic: str) -> list[MessageQueue]:
    config = store.topics[topic]
    return [
        MessageQueue(topic, store.name, queue_id)
        for queue_id in range(max(config.read_queues, config.write_queues))
    ]


def _topic_stats(replica: Replica, frame: Frame, limits: PullLimits) -> Reply:
    del limits
    topic = GetTopicStatsInfoRequest.parse(frame.command.fields).topic
    store = replica.store
    if topic not in store.topics:
        raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
    rows = []
    for queue in _queues(store, topic):
        log = store.log(topic, queue.queue_id)
        last = log.messages[-1].store_timestamp if log.messages else 0
        row = {"minOffset": log.min_offset, "maxOffset": log.max_offset, "lastUpdateTimestamp": last}
        rows.append((queue, row))
    return Reply(body=f'{{{_table(rows)},"topicPutTps":0.0}}'.encode())


def _consume_stats(replica: Replica, frame: Frame, limits: PullLimits) -> Reply:
    del limits
    request = GetConsumeStatsRequest.parse(frame.command.fields)
    store, group = replica.store, request.consumer_group
    topics = {topic for name, topic, _ in store.committed if name == group and topic in store.topics}
    if request.topic:
        topics = {request.topic} & store.topics.keys()
    rows = []
    for queue in (queue for topic in sorted(topics) for queue in _queues(store, topic)):
        log = store.log(queue.topic, queue.queue_id)
        consumed = store.position(group, queue) or 0
        row = {"brokerOffset": log.max_offset, "consumerOffset": consumed, "lastTimestamp": 0}
        rows.append((queue, row))
    return Reply(body=f'{{"consumeTps":0.0,{_table(rows)}}}'.encode())


# --- brokers and clients --------------------------------------------------------------------


def _broker_config(replica: Replica, frame: Frame, limits: PullLimits) -> Reply:
    del frame, limits
    text = "".join(f"{name}={value}\n" for name, value in replica.store.settings.items())
    return Reply(fields={"version": "0"}, body=text.encode())


def _update_broker_config(replica: Replica, frame: Frame, limits: PullLimits) -> Reply:
    """Change existing settings. Like a real broker, silently ignore others."""
    del limits
    for line in str(frame.body, "utf-8").splitlines():
        name, _, value = line.partition("=")
        if name in replica.store.settings:
            replica.store.settings[name] = value
    return Reply()


def _runtime_info(replica: Replica, frame: Frame, limits: PullLimits) -> Reply:
    del frame, limits
    return _json({"table": {"brokerVersionDesc": _VERSION, "brokerVersion": "513"}, "_": replica.broker_id})


def _check_client(replica: Replica, frame: Frame, limits: PullLimits) -> Reply:
    del replica, limits
    subscription = read(frame.body, "client check")["subscriptionData"]
    if subscription["expressionType"].string("TAG") != "TAG":
        raise Refused(
            ResponseCode.SYSTEM_ERROR, "The broker does not support consumer to filter message by SQL92"
        )
    return Reply()


def _not_online(replica: Replica, frame: Frame, limits: PullLimits) -> Reply:
    del replica, limits
    group = frame.command.fields.get("consumerGroup")
    raise Refused(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online")


# --- name server ----------------------------------------------------------------------------


@dataclass(slots=True)
class Registry:
    """The name server's data: the registered brokers, their addresses and topics."""

    cluster: str
    brokers: dict[str, BrokerData] = field(default_factory=dict)
    stores: Mapping[str, BrokerStore] = field(default_factory=dict)
    static_topics: Mapping[str, StaticTopic] = field(default_factory=dict)

    def registered(self, topic: str) -> list[BrokerStore]:
        """Return the registered brokers of a topic."""
        return [self.stores[name] for name in self.brokers if topic in self.stores[name].topics]


def name_server_requests(registry: Registry) -> dict[int, Callable[[Frame], Reply]]:
    """Return a name server's operations by request code."""

    def route(frame: Frame) -> Reply:
        topic = GetRouteInfoRequest.parse(frame.command.fields).topic
        stores = registry.registered(topic)
        if not stores:
            raise Refused(
                ResponseCode.TOPIC_NOT_EXIST, f"No topic route info in name server for the topic: {topic}"
            )
        found: dict[str, Any] = {
            "brokerDatas": [_broker(registry.brokers[store.name]) for store in stores],
            "queueDatas": [_queue_data(store.name, store.topics[topic]) for store in stores],
            "filterServerTable": {},
        }
        if topic in registry.static_topics:
            mappings = registry.static_topics[topic].mappings([store.name for store in stores])
            found["topicQueueMappingByBroker"] = mappings
        return _json(found)

    def clusters(frame: Frame) -> Reply:
        del frame
        table = ",".join(
            f"{json.dumps(name)}:{_number_keys(_broker(data))}" for name, data in registry.brokers.items()
        )
        names = json.dumps({registry.cluster: list(registry.brokers)})
        return Reply(body=f'{{"brokerAddrTable":{{{table}}},"clusterAddrTable":{names}}}'.encode())

    def topics(frame: Frame) -> Reply:
        del frame
        return _json(
            {"topicList": sorted({t for name in registry.brokers for t in registry.stores[name].topics})}
        )

    def delete(frame: Frame) -> Reply:
        DeleteTopicFromNamesrvRequest.parse(frame.command.fields)
        return Reply()  # the brokers' tables are the registry

    return {
        RequestCode.GET_ROUTEINFO_BY_TOPIC: route,
        RequestCode.GET_BROKER_CLUSTER_INFO: clusters,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: topics,
        RequestCode.DELETE_TOPIC_IN_NAMESRV: delete,
    }


def _broker(data: BrokerData) -> dict[str, Any]:
    return {
        "brokerAddrs": {str(broker_id): addr for broker_id, addr in data.addresses.items()},
        "brokerName": data.broker_name,
        "cluster": data.cluster,
        "enableActingMaster": False,
    }


def _queue_data(broker_name: str, config: TopicConfig) -> dict[str, Any]:
    return {
        "brokerName": broker_name,
        "readQueueNums": config.read_queues,
        "writeQueueNums": config.write_queues,
        "perm": int(config.perm),
        "topicSysFlag": config.topic_sys_flag,
    }


def _number_keys(broker: dict[str, Any]) -> str:
    """Write a broker with bare numbers as keys, as fastjson does in cluster info."""
    addresses = ",".join(f"{key}:{json.dumps(addr)}" for key, addr in broker["brokerAddrs"].items())
    rest = json.dumps({name: value for name, value in broker.items() if name != "brokerAddrs"})
    return f'{{"brokerAddrs":{{{addresses}}},{rest[1:]}'
