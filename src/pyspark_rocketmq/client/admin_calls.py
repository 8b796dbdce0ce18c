"""What administration requests from brokers: calls, and the change of a topic's settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from pyspark_rocketmq.client.broker_calls import call_until_done
from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.net.connection import Response
from pyspark_rocketmq.client.net.pipelining import Call
from pyspark_rocketmq.errors import RequestTimeoutError
from pyspark_rocketmq.inventory import ConsumerConnection, TopicConfig
from pyspark_rocketmq.model import ConsumerOffset, MessageQueue, TopicRoute
from pyspark_rocketmq.remoting.body import (
    decode_consume_stats,
    decode_consumer_connection,
    decode_runtime_info,
    decode_topic_configs,
    encode_topic_attributes,
)
from pyspark_rocketmq.remoting.codes import ResponseCode
from pyspark_rocketmq.remoting.header import (
    CreateTopicRequest,
    GetAllTopicConfigRequest,
    GetBrokerRuntimeInfoRequest,
    GetConsumerConnectionListRequest,
    GetConsumeStatsRequest,
)

__all__ = [
    "await_route",
    "config_call",
    "consume_stats_call",
    "consumer_connection_call",
    "done",
    "put_topic",
    "runtime_info_call",
]

_ROUTE_POLL_S: Final = 0.01
_ROUTE_TIMEOUT_MS: Final = 40_000


def config_call(client: Client, topic: str) -> Call[TopicConfig | None]:
    """Return the call for a topic's settings at one broker; None where it does not exist."""
    on_server = client.namespace.qualify(topic)

    def parse(response: Response) -> TopicConfig | None:
        config = decode_topic_configs(response.require().body).get(on_server)
        return None if config is None else replace(config, topic=topic)

    return Call(GetAllTopicConfigRequest(), parse)


def consume_stats_call(group: str, topic: str | None = None) -> Call[dict[MessageQueue, ConsumerOffset]]:
    """Return the call for a group's progress at one broker, with the server's names of topics."""
    request = GetConsumeStatsRequest(consumer_group=group, topic=topic)
    return Call(
        request, lambda response: decode_consume_stats(response.require(group=group, topic=topic).body)
    )


def consumer_connection_call(group: str) -> Call[ConsumerConnection | None]:
    """Return the call for a group's consumers at one broker; None if none is connected."""

    def parse(response: Response) -> ConsumerConnection | None:
        if response.code == ResponseCode.CONSUMER_NOT_ONLINE:
            return None
        return decode_consumer_connection(response.require(group=group).body)

    return Call(GetConsumerConnectionListRequest(consumer_group=group), parse)


def runtime_info_call() -> Call[dict[str, str]]:
    """Return the call for a broker's version, log positions and rates."""
    return Call(GetBrokerRuntimeInfoRequest(), lambda response: decode_runtime_info(response.require().body))


def done(response: Response) -> None:
    """Require success of a call that returns nothing."""
    response.require()


def put_topic(
    client: Client,
    topic: str,
    configs: Mapping[str, TopicConfig],
    attributes: Mapping[str, str | None] | None,
) -> None:
    """Create or change a topic at brokers, and wait for its route.

    Parameters
    ----------
    configs : mapping
        The settings by the broker's name, without attributes.
    attributes : mapping, optional
        The attributes that change; None removes one.
    """
    changes = encode_topic_attributes(attributes) if attributes else None
    homes: dict[CreateTopicRequest, list[str]] = {}
    for name, config in configs.items():
        request = CreateTopicRequest(
            topic=topic,
            read_queue_nums=config.read_queues,
            write_queue_nums=config.write_queues,
            perm=int(config.perm),
            topic_filter_type=config.topic_filter_type,
            topic_sys_flag=config.topic_sys_flag,
            order=config.order,
            attributes=changes,
        )
        homes.setdefault(request, []).append(name)
    for request, names in homes.items():
        call_until_done(client, names, Call(request, done))
    wanted = {name: (config.read_queues, config.write_queues) for name, config in configs.items()}
    await_route(client, topic, lambda route: wanted.items() <= _queue_counts(route).items())


def _queue_counts(route: TopicRoute | None) -> dict[str, tuple[int, int]]:
    if route is None:
        return {}
    return {data.broker_name: (data.read_queues, data.write_queues) for data in route.queues}


def await_route(client: Client, topic: str, settled: Callable[[TopicRoute | None], bool]) -> None:
    """Wait until the name servers' route shows a change, of which the broker tells them by itself.

    A registration from before the change may reach them after it, such as that of another topic's change
    (``RouteInfoManager.registerBroker``). The broker's next one within 30 s puts it right.
    """
    deadline = client.deadline(_ROUTE_TIMEOUT_MS)
    while True:
        client.invalidate(topic)
        if settled(client.routes.find_many((topic,), deadline=client.deadline())[topic]):
            return
        if deadline.expired:
            raise RequestTimeoutError("the name servers' route did not follow the change", topic=topic)
        client.clock.sleep(_ROUTE_POLL_S)
