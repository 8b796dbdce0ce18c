"""Administration: topics, groups, clusters, statistics, settings of brokers."""

# Facts (AdminBrokerProcessor, DefaultRequestProcessor of the name server; 4.9 and 5.4)
# - A broker registers a new topic with the name servers before it answers: the route exists immediately.
# - Deleting a topic is two steps: at every broker, then at every name server. Unknown names are no error.
# - UPDATE_BROKER_CONFIG returns success for unknown keys and bad values: read the settings back to check.
# - In consume statistics a queue without a stored offset shows as 0, and so does an unknown group.

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from pyspark_rocketmq.client.admin_calls import (
    await_route,
    config_call,
    consume_stats_call,
    consumer_connection_call,
    done,
    internal_topics,
    listed,
    put_topic,
    runtime_info_call,
)
from pyspark_rocketmq.client.broker_calls import OnAway, call_until_done, glance
from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.net.pipelining import Call
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.inventory import ClusterInfo, ConsumerConnection, GroupConfig, TopicConfig
from pyspark_rocketmq.model import ConsumerOffset, MessageQueue, Permission, QueueStats, TopicRoute
from pyspark_rocketmq.model.arguments import require
from pyspark_rocketmq.model.names import is_system_group, is_system_topic
from pyspark_rocketmq.planning.topics.topic_settings import TopicSettings, require_unchanged
from pyspark_rocketmq.remoting.body import (
    decode_broker_properties,
    decode_group_configs,
    decode_topic_stats,
    encode_broker_properties,
    encode_group_config,
)
from pyspark_rocketmq.remoting.header import (
    DeleteSubscriptionGroupRequest,
    DeleteTopicFromNamesrvRequest,
    DeleteTopicRequest,
    GetAllSubscriptionGroupRequest,
    GetBrokerConfigRequest,
    GetTopicStatsInfoRequest,
    UpdateAndCreateSubscriptionGroupRequest,
    UpdateBrokerConfigRequest,
)

__all__ = ["Admin"]

T = TypeVar("T")
V = TypeVar("V")

READ_WRITE: Final = Permission.READ | Permission.WRITE
_BROKER_CONFIG: Final = Call(
    GetBrokerConfigRequest(), lambda response: decode_broker_properties(response.require().body)
)


class Admin:
    """Creates, describes and deletes the resources of a RocketMQ cluster.

    Every call runs at all affected masters in parallel, and is retried during short outages. Raises
    `NameServerError`, `BrokerNotFoundError`, `TransportError` and `BrokerError` as `Client` does.

    Parameters
    ----------
    client : Client
        The client. It is not closed.

    Examples
    --------
    >>> with Client("127.0.0.1:9876") as client:  # doctest: +SKIP
    ...     admin = Admin(client)
    ...     admin.create_topic("orders", queues=4)
    ...     admin.topic_stats("orders")
    """

    def __init__(self, client: Client) -> None:
        self._client = require(client, Client, "client", must="a Client: Client(name_servers)")

    # --- clusters and brokers ---

    def cluster_info(self) -> ClusterInfo:
        """Return every broker and cluster that is registered at a name server; none is no error here."""
        return self._client.name_servers.cluster_info(deadline=self._client.deadline())

    def broker_config(self, broker_name: str) -> dict[str, str]:
        """Return the settings of a broker's master."""
        return self._at(self._names(None, broker_name), _BROKER_CONFIG)[broker_name]

    def set_broker_config(self, broker_name: str, settings: Mapping[str, str]) -> None:
        """Change settings of a broker's master at runtime, and read them back.

        Raises
        ------
        OptionError
            The broker did not apply a setting: its name is unknown or its value is malformed.
        """
        names = self._names(None, broker_name)
        self._at(names, Call(UpdateBrokerConfigRequest(), done, encode_broker_properties(settings)))
        now = self._at(names, _BROKER_CONFIG)[broker_name]
        for name, value in settings.items():
            if now.get(name) != value:
                raise OptionError(
                    "the broker did not accept the setting", broker_name=broker_name, setting=name
                )

    def broker_runtime_info(self, broker_name: str) -> dict[str, str]:
        """Return version, log positions and rates of a broker's master, by the broker's names."""
        return self._at(self._names(None, broker_name), runtime_info_call())[broker_name]

    def runtime_infos(self, *, on_away: OnAway) -> dict[str, dict[str, str]]:
        """Return `broker_runtime_info` of every broker that answers soon; ``on_away`` gets the others."""
        return glance(self._client, self._everywhere(), runtime_info_call(), on_away)[0]

    # --- topics ---

    def topics(self, *, include_system: bool = False) -> tuple[str, ...]:
        """Return the names of all topics, sorted; on request, including system topics.

        Raises
        ------
        BrokerNotFoundError
            No broker is registered.
        """
        name_servers = self._client.name_servers
        all_names = name_servers.topics(deadline=self._client.deadline())
        if not all_names:  # every broker has internal topics: none was registered, and perhaps one is now
            self._everywhere()
            all_names = name_servers.topics(deadline=self._client.deadline())
        namespace = self._client.namespace
        names = tuple(sorted(namespace.plain(name) for name in all_names if namespace.holds(name)))
        if include_system:
            return names
        hidden = internal_topics(self._client)
        return tuple(name for name in names if name not in hidden and not is_system_topic(name))

    def topic_route(self, topic: str) -> TopicRoute:
        """Return the topic's route, without cache.

        Raises
        ------
        TopicNotFoundError
        """
        self._client.invalidate(topic)
        return self._client.route(topic)

    def create_topic(
        self,
        topic: str,
        *,
        queues: int = 8,
        read_queues: int | None = None,
        perm: Permission = READ_WRITE,
        order: bool = False,
        attributes: Mapping[str, str] | None = None,
        cluster: str | None = None,
        brokers: Iterable[str] | None = None,
    ) -> None:
        """Create a topic at each broker that lacks it. The topic is usable when this returns.

        A broker that has the topic is left as it is: `alter_topic` changes it.

        Parameters
        ----------
        queues, read_queues : int
            Queues per broker, and those that can be read; by default all.
        attributes : mapping, optional
            RocketMQ 5 only: such as ``{"message.type": "FIFO"}``.
        cluster, brokers : optional
            Where to create it; by default at every broker of every cluster.

        Raises
        ------
        TopicExistsError
            One of these brokers has the topic with other settings. Nothing was created.
        OptionError
            No broker is selected, or one that no name server knows.
        BrokerError
            The broker rejects the name (INVALID_PARAMETER) or an attribute.
        """
        names = self._names(cluster, brokers)
        read_queues = queues if read_queues is None else read_queues
        settings = TopicSettings(
            read_queues=read_queues, write_queues=queues, perm=perm, order=order, attributes=attributes
        )
        self._client.invalidate(topic)
        route = self._client.find_route(topic)
        homes = {data.broker_name for data in route.queues} if route is not None else set()
        existing = self._configs_at(homes.intersection(names), topic)
        require_unchanged(topic, existing, settings, remedy="alter_topic")
        config = TopicConfig(topic, read_queues, queues, perm, order)
        absent = [name for name in names if name not in existing]
        put_topic(self._client, topic, dict.fromkeys(absent, config), attributes)

    def alter_topic(
        self,
        topic: str,
        *,
        queues: int | None = None,
        read_queues: int | None = None,
        perm: Permission | None = None,
        attributes: Mapping[str, str | None] | None = None,
        brokers: Iterable[str] | None = None,
    ) -> None:
        """Change a topic's settings at the brokers that have it. What is not given stays as it is.

        Parameters
        ----------
        queues : int, optional
            Queues per broker that receive messages. More of them can also be read; fewer stop writes only.
        read_queues : int, optional
            Queues per broker that can be read. Fewer hide the messages of the others: first reduce
            ``queues``, then ``read_queues`` after the remaining messages are read.
        attributes : mapping, optional
            RocketMQ 5 only; None removes an attribute.
        brokers : optional
            Where to change it; by default wherever it exists.

        Raises
        ------
        TopicNotFoundError, OptionError
            It does not exist, or not at one of ``brokers``.
        BrokerError
            A broker rejects an attribute.
        """
        wanted = TopicSettings(read_queues=read_queues, write_queues=queues, perm=perm, attributes=attributes)
        configs = self.topic_configs(topic)
        names = tuple(configs) if brokers is None else listed(brokers)
        for name in names:
            if name not in configs:
                raise OptionError("the broker does not have the topic", topic=topic, broker_name=name)
        altered = {name: wanted.applied_to(configs[name]) for name in names}
        put_topic(self._client, topic, altered, attributes)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic at every broker and name server. No error if it does not exist."""
        self._at(self._everywhere(), Call(DeleteTopicRequest(topic=topic), done))
        for answer in self._client.name_servers.call_each(
            DeleteTopicFromNamesrvRequest(topic=topic), deadline=self._client.deadline()
        ):
            answer.require(topic=topic)
        self._client.routes.forget(topic)
        await_route(self._client, topic, lambda route: route is None)

    def topic_configs(self, topic: str, *, on_away: OnAway | None = None) -> dict[str, TopicConfig]:
        """Return the topic's settings by broker. ``on_away``: as of `consume_stats`.

        Raises
        ------
        TopicNotFoundError
        """
        return self._configs_at(self._homes(topic), topic, on_away)

    def topic_stats(self, topic: str, *, on_away: OnAway | None = None) -> dict[MessageQueue, QueueStats]:
        """Return min and max offset and the last store time of every queue.

        ``on_away``: as of `consume_stats`.

        Raises
        ------
        TopicNotFoundError
        """
        call = Call(
            GetTopicStatsInfoRequest(topic=topic),
            lambda response: decode_topic_stats(response.require(topic=topic).body),
        )
        return self._plain(_merge(self._at(self._homes(topic), call, on_away)))

    # --- groups ---

    def create_group(
        self, group: str | GroupConfig, *, cluster: str | None = None, brokers: Iterable[str] | None = None
    ) -> None:
        """Create a consumer group, or change it. A name alone uses every default.

        Raises
        ------
        BrokerError
            The broker rejects the name.
        """
        given = GroupConfig(group) if isinstance(group, str) else group
        config = require(given, GroupConfig, "group", must="a text or a GroupConfig")
        config = replace(config, group=self._client.namespace.qualify(config.group))
        call = Call(UpdateAndCreateSubscriptionGroupRequest(), done, encode_group_config(config))
        self._at(self._names(cluster, brokers), call)

    def delete_group(self, group: str, *, clean_offsets: bool = True) -> None:
        """Delete a consumer group and its committed offsets. No error if it does not exist."""
        request = DeleteSubscriptionGroupRequest(group_name=group, clean_offset=clean_offsets)
        self._at(self._everywhere(), Call(request, done))

    def groups(
        self, *, include_system: bool = False, on_away: OnAway | None = None
    ) -> dict[str, GroupConfig]:
        """Return all consumer groups and their settings; on request, including system groups.

        ``on_away``: as of `consume_stats`.
        """
        call = Call(
            GetAllSubscriptionGroupRequest(), lambda response: decode_group_configs(response.require().body)
        )
        namespace = self._client.namespace
        found = {
            namespace.plain(name): replace(config, group=namespace.plain(name))
            for name, config in _merge(self._at(self._everywhere(), call, on_away)).items()
            if namespace.holds(name)
        }
        return {name: found[name] for name in sorted(found) if include_system or not is_system_group(name)}

    def consume_stats(
        self, group: str, topic: str | None = None, *, on_away: OnAway | None = None
    ) -> dict[MessageQueue, ConsumerOffset]:
        """Return a group's progress in every queue for which it has offsets, or in those of one topic.

        A queue without a committed offset is reported as 0, also for a group that does not exist.

        Parameters
        ----------
        on_away : Callable, optional
            Called with the name of each broker that does not answer soon, and the cause. Without it, or if
            none answers, that is an error.
        """
        call = consume_stats_call(group, topic)
        names = self._homes(topic) if topic is not None else self._everywhere()
        return self._plain(_merge(self._at(names, call, on_away)))

    def consumer_connections(
        self, group: str, *, on_away: OnAway | None = None
    ) -> dict[str, ConsumerConnection]:
        """Return the group's connected consumers by broker; brokers without consumers are omitted.

        ``on_away``: as of `consume_stats`.
        """
        found = self._at(self._everywhere(), consumer_connection_call(self._client, group), on_away)
        return {name: connection for name, connection in found.items() if connection is not None}

    # --- how ---

    def _plain(self, table: Mapping[MessageQueue, V]) -> dict[MessageQueue, V]:
        """Return a table of the namespace's queues, by the user's names."""
        namespace = self._client.namespace
        return {
            replace(queue, topic=namespace.plain(queue.topic)): value
            for queue, value in table.items()
            if namespace.holds(queue.topic)
        }

    def _configs_at(
        self, names: Iterable[str], topic: str, on_away: OnAway | None = None
    ) -> dict[str, TopicConfig]:
        found = self._at(names, config_call(self._client, topic), on_away)
        return {name: config for name, config in found.items() if config is not None}

    def _homes(self, topic: str) -> tuple[str, ...]:
        """Return the names of the brokers that have queues of a topic."""
        return tuple(dict.fromkeys(data.broker_name for data in self._client.route(topic).queues))

    def _everywhere(self) -> tuple[str, ...]:
        """Return the names of all registered brokers, or raise: nothing can be done at none."""
        names = tuple(self.cluster_info().brokers)
        if not names:
            raise self._client.routes.no_broker()
        return names

    def _names(self, cluster: str | None, brokers: Iterable[str] | None) -> tuple[str, ...]:
        """Return the names of the selected brokers, all of them registered: no wait helps a wrong name."""
        known = self._everywhere()
        if brokers is not None:
            names = listed(brokers)
        else:
            names = known if cluster is None else self.cluster_info().clusters.get(cluster, ())
        unknown = sorted(set(names).difference(known))
        if unknown or not names:
            text = "no such broker or cluster at this name server, or it is down"
            raise OptionError(text, cluster=cluster, brokers=unknown or None, known=known)
        return names

    def _at(self, broker_names: Iterable[str], call: Call[T], on_away: OnAway | None = None) -> dict[str, T]:
        """Make the same call at masters until each succeeds; with ``on_away`` once, and one must answer."""
        if on_away is None:
            return call_until_done(self._client, broker_names, call)
        found, failed = glance(self._client, broker_names, call, on_away)
        if failed and not found:
            raise next(iter(failed.values()))
        return found


def _merge(tables: Mapping[str, dict[T, V]]) -> dict[T, V]:
    return {key: value for table in tables.values() for key, value in table.items()}
