"""Changes of a topic's settings: what would change at each broker, and what it would hide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark_rocketmq.client.admin import Admin
from pyspark_rocketmq.errors import OptionError, TopicNotFoundError
from pyspark_rocketmq.inventory import TopicConfig
from pyspark_rocketmq.model import MessageQueue, Permission, QueueStats

__all__ = [
    "TopicChange",
    "TopicSettings",
    "alterable_configs",
    "apply_changes",
    "changes_of",
    "existing_configs",
    "hidden_messages",
    "permission_text",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """The settings of a topic that a user gave. None means "not given".

    Parameters
    ----------
    read_queues, write_queues : int, optional
        Queues per broker. Queues that are written can always be read: more ``write_queues`` alone raise both.
    perm : Permission, optional
    attributes : mapping
        Attributes (RocketMQ 5) by name; None removes one.
    """

    read_queues: int | None = None
    write_queues: int | None = None
    perm: Permission | None = None
    attributes: Mapping[str, str | None] | None = None

    def applied_to(self, config: TopicConfig) -> TopicConfig:
        """Return a broker's configuration with these settings."""
        attributes = {**config.attributes, **(self.attributes or {})}
        written = config.write_queues if self.write_queues is None else self.write_queues
        readable = max(config.read_queues, self.write_queues or 0)
        return replace(
            config,
            read_queues=readable if self.read_queues is None else self.read_queues,
            write_queues=written,
            perm=config.perm if self.perm is None else self.perm,
            attributes={name: value for name, value in attributes.items() if value is not None},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChange:
    """One setting that changes at one broker."""

    broker_name: str
    setting: str
    before: str
    after: str


def existing_configs(admin: Admin, topic: str, *, cluster: str | None = None) -> dict[str, TopicConfig]:
    """Return a topic's configuration at each broker that has it; empty if it does not exist.

    Raises
    ------
    OptionError
        There is no such cluster.
    """
    try:
        admin.topic_route(topic)
    except TopicNotFoundError:
        return {}
    configs = admin.topic_configs(topic)
    if cluster is None:
        return configs
    members = admin.cluster_info().clusters.get(cluster)
    if members is None:
        raise OptionError("no such cluster at this name server", cluster=cluster)
    return {name: config for name, config in configs.items() if name in members}


def alterable_configs(admin: Admin, topic: str, *, cluster: str | None = None) -> dict[str, TopicConfig]:
    """Return the configurations of a topic that can be altered.

    Raises
    ------
    TopicNotFoundError
    OptionError
        There is no such cluster, it does not have the topic, or the topic is a static one.
    """
    if admin.topic_route(topic).static_queues:
        raise OptionError("a static topic is remapped by mqadmin, not altered", topic=topic)
    configs = existing_configs(admin, topic, cluster=cluster)
    if not configs:
        raise OptionError("the cluster does not have the topic", topic=topic, cluster=cluster)
    return configs


def changes_of(configs: Mapping[str, TopicConfig], settings: TopicSettings) -> tuple[TopicChange, ...]:
    """Return what the settings change, broker by broker; empty if they hold already."""
    return tuple(
        TopicChange(broker_name=broker, setting=setting, before=shown[setting], after=wanted[setting])
        for broker, config in sorted(configs.items())
        for shown, wanted in [(_show(config), _show(settings.applied_to(config)))]
        for setting in sorted(shown.keys() | wanted.keys())
        if shown.setdefault(setting, "") != wanted.setdefault(setting, "")
    )


def hidden_messages(
    configs: Mapping[str, TopicConfig], settings: TopicSettings, stats: Mapping[MessageQueue, QueueStats]
) -> int:
    """Return the number of messages in queues that could no longer be read."""
    kept = {broker: settings.applied_to(config).read_queues for broker, config in configs.items()}
    return sum(
        seen.max_offset - seen.min_offset
        for queue, seen in stats.items()
        if queue.broker_name in kept and queue.queue_id >= kept[queue.broker_name]
    )


def apply_changes(
    admin: Admin, topic: str, configs: Mapping[str, TopicConfig], settings: TopicSettings
) -> None:
    """Change the topic at the brokers that have it. What the settings do not give stays as it is.

    Raises
    ------
    BrokerError
        A broker rejects an attribute.
    """
    for broker, config in sorted(configs.items()):
        wanted = settings.applied_to(config)
        admin.create_topic(
            topic,
            queues=wanted.write_queues,
            read_queues=wanted.read_queues,
            perm=wanted.perm,
            order=wanted.order,
            attributes=settings.attributes or None,
            brokers=(broker,),
        )


def _show(config: TopicConfig) -> dict[str, str]:
    return {
        "read queues": str(config.read_queues),
        "write queues": str(config.write_queues),
        "permission": permission_text(config.perm),
        **{f"attribute {name}": value for name, value in config.attributes.items()},
    }


def permission_text(perm: Permission) -> str:
    """Return a permission as people read it."""
    names = [name for bit, name in ((Permission.READ, "read"), (Permission.WRITE, "write")) if bit in perm]
    return ", ".join(names) or "none"
