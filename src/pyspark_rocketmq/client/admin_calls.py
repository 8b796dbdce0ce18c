"""What administration requests from brokers: calls, and the change of a topic's settings."""

# Facts (AdminBrokerProcessor.updateAndCreateTopic, BrokerController.registerIncrementBrokerData,
# RouteInfoManager.registerBroker and isTopicConfigChanged; 5.5.0)
# - A change of a topic increments the data version of the broker's topics. Then the broker registers it
#   with the version of that time: if it has created another topic meanwhile, such as the %RETRY%group of a
#   heartbeat, the registrations of both have the same version.
# - A name server ignores a known topic in a registration whose version it has seen. So it also ignores the
#   topic in the registrations of all topics, every 30 s, until one of them is the first with its version: the
#   change may never arrive. 4.9 also ignores topics that it does not know.
# - A broker that gets the settings that a topic has registers nothing (5.2 and later).
# - Of topicSysFlag only the two lowest bits mean something (TopicSysFlag).

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
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
    "internal_topics",
    "listed",
    "put_topic",
    "runtime_info_call",
]

_ROUTE_POLL_S: Final = 0.01
_ROUTE_TIMEOUT_MS: Final = 40_000

_LOST_MS: Final = 2_000
"""A registration that does not show after this time counts as ignored."""

_UNUSED_FLAG: Final = 1 << 30
"""A bit of ``topicSysFlag`` without a meaning."""


def config_call(client: Client, topic: str) -> Call[TopicConfig | None]:
    """Return the call for a topic's settings at one broker; None where it does not exist."""
    on_server = client.namespace.qualify(topic)

    def parse(response: Response) -> TopicConfig | None:
        config = decode_topic_configs(response.require().body, only=on_server).get(on_server)
        return None if config is None else replace(config, topic=topic)

    return Call(GetAllTopicConfigRequest(), parse)


def consume_stats_call(group: str, topic: str | None = None) -> Call[dict[MessageQueue, ConsumerOffset]]:
    """Return the call for a group's progress at one broker, with the server's names of topics."""
    request = GetConsumeStatsRequest(consumer_group=group, topic=topic)
    return Call(
        request, lambda response: decode_consume_stats(response.require(group=group, topic=topic).body)
    )


def consumer_connection_call(client: Client, group: str) -> Call[ConsumerConnection | None]:
    """Return the call for a group's consumers at one broker; None if none is connected."""
    plain = client.namespace.plain

    def parse(response: Response) -> ConsumerConnection | None:
        if response.code == ResponseCode.CONSUMER_NOT_ONLINE:
            return None
        found = decode_consumer_connection(response.require(group=group).body)
        subscriptions = {plain(topic): selector for topic, selector in found.subscriptions.items()}
        return replace(found, subscriptions=subscriptions)

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

    Raises
    ------
    RequestTimeoutError
        As `await_route`.
    RocketMQError
        As `call_until_done`.
    """
    _put(client, topic, configs, attributes)
    await_route(
        client,
        topic,
        lambda route: all(_shows(route, name, config) for name, config in configs.items()),
        homes=configs.keys(),
    )


def _shows(route: TopicRoute | None, broker_name: str, config: TopicConfig) -> bool:
    """Whether a route has a broker's queues, without other permissions: a broker may take some away."""
    data = () if route is None else route.queues
    return any(
        (each.broker_name, each.read_queues, each.write_queues)
        == (broker_name, config.read_queues, config.write_queues)
        and not each.perm & ~config.perm
        for each in data
    )


def await_route(
    client: Client,
    topic: str,
    settled: Callable[[TopicRoute | None], bool],
    *,
    homes: Collection[str] = (),
) -> None:
    """Wait until the name servers' route shows a change, of which the broker tells them by itself.

    Parameters
    ----------
    settled : callable
        Whether a route shows the change.
    homes : collection of str
        The brokers that register the topic again every two seconds until the route shows it: name servers
        may ignore a registration.

    Raises
    ------
    RequestTimeoutError
        The route does not show the change within 40 s.
    """
    deadline, lost = client.deadline(_ROUTE_TIMEOUT_MS), client.deadline(_LOST_MS)
    while True:
        client.invalidate(topic)
        if settled(client.routes.find_many((topic,), deadline=client.deadline())[topic]):
            return
        if deadline.expired:
            raise RequestTimeoutError("the name servers' route did not follow the change", topic=topic)
        if homes and lost.expired:
            _register_again(client, topic, homes)
            lost = client.deadline(_LOST_MS)
        client.clock.sleep(_ROUTE_POLL_S)


def _register_again(client: Client, topic: str, names: Collection[str]) -> None:
    """Make brokers register a topic as it is now, each with a new version: they only register changes."""
    found = call_until_done(client, names, config_call(client, topic))
    configs = {name: config for name, config in found.items() if config is not None}
    flagged = {
        name: replace(config, topic_sys_flag=config.topic_sys_flag ^ _UNUSED_FLAG)
        for name, config in configs.items()
    }
    _put(client, topic, flagged, None)
    _put(client, topic, configs, None)


def _put(
    client: Client,
    topic: str,
    configs: Mapping[str, TopicConfig],
    attributes: Mapping[str, str | None] | None,
) -> None:
    """Put a topic's settings at brokers; equal ones in parallel."""
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


def listed(brokers: Iterable[str]) -> tuple[str, ...]:
    """Return brokers as a tuple; a text, which is an iterable of letters, is the name of one."""
    return (brokers,) if isinstance(brokers, str) else tuple(brokers)


def internal_topics(client: Client) -> frozenset[str]:
    """Return the topics that brokers create for themselves; none is in a namespace."""
    if client.namespace.name:
        return frozenset()
    return client.name_servers.cluster_info(deadline=client.deadline()).internal_topics
