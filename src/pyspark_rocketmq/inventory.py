"""What name servers and brokers report about themselves, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pyspark_rocketmq.model import BrokerData, MessageSelector, Permission

__all__ = ["ClientConnection", "ClusterInfo", "ConsumerConnection", "GroupConfig", "TopicConfig"]

_REPLY_SUFFIX: Final = "_REPLY_TOPIC"


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """Every broker by name, and the broker names of every cluster (``ClusterInfo``)."""

    brokers: Mapping[str, BrokerData]
    clusters: Mapping[str, tuple[str, ...]]

    @property
    def internal_topics(self) -> frozenset[str]:
        """The topics that bear the names of brokers and clusters: brokers create them for themselves."""
        replies = {cluster + _REPLY_SUFFIX for cluster in self.clusters}
        return frozenset({*self.brokers, *self.clusters, *replies})


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The settings of a topic at one broker (``TopicConfig``).

    ``attributes`` such as ``message.type`` and ``queue.type`` exist since 5.0.
    """

    topic: str
    read_queues: int
    write_queues: int
    perm: Permission
    order: bool = False
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The settings of a consumer group at one broker (``SubscriptionGroupConfig``), with its defaults."""

    group: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClientConnection:
    """A client that is connected to a broker (``Connection``); ``addr`` is its ``ip:port`` at the broker."""

    client_id: str
    addr: str
    language: str
    version: int


@dataclass(frozen=True, slots=True)
class ConsumerConnection:
    """The connected consumers of a group and what they registered (``ConsumerConnection``)."""

    clients: tuple[ClientConnection, ...]
    consume_type: str
    message_model: str
    consume_from_where: str
    subscriptions: Mapping[str, MessageSelector]
