"""The settings of a topic that a user gives: what they change, and what that would hide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark_rocketmq.errors import OptionError, TopicExistsError
from pyspark_rocketmq.inventory import TopicConfig
from pyspark_rocketmq.model import MAX_QUEUES, MessageQueue, Permission, QueueStats
from pyspark_rocketmq.model.arguments import require, require_whole

__all__ = [
    "TopicChange",
    "TopicSettings",
    "changes_of",
    "hidden_messages",
    "permission_text",
    "require_unchanged",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """The settings of a topic that a user gave. None means "not given".

    Parameters
    ----------
    read_queues, write_queues : int, optional
        Queues per broker. Queues that are written can always be read: more ``write_queues`` alone raise both.
    perm : Permission, optional
    order : bool, optional
    attributes : mapping
        Attributes (RocketMQ 5) by name; None removes one.
    """

    read_queues: int | None = None
    write_queues: int | None = None
    perm: Permission | None = None
    order: bool | None = None
    attributes: Mapping[str, str | None] | None = None

    def __post_init__(self) -> None:
        for name, count in (("read_queues", self.read_queues), ("write_queues", self.write_queues)):
            if count is not None:  # brokers check nothing, and no client can read a route with such a number
                require_whole(count, f"a topic's number of queues ({name})", 0, MAX_QUEUES)
        if self.perm is not None:
            require(self.perm, int, "perm", must="a Permission, such as Permission.READ | Permission.WRITE")
        given = self.attributes
        if given is not None and not (isinstance(given, Mapping) and all(map(_is_attribute, given.items()))):
            raise OptionError("attributes must be a mapping of texts to texts, or to None, which removes one")

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
            order=config.order if self.order is None else self.order,
            attributes={name: value for name, value in attributes.items() if value is not None},
        )


def _is_attribute(item: tuple[object, object]) -> bool:
    name, value = item
    return isinstance(name, str) and isinstance(value, str | None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChange:
    """One setting that changes at one broker."""

    broker_name: str
    setting: str
    before: str
    after: str


def changes_of(configs: Mapping[str, TopicConfig], settings: TopicSettings) -> tuple[TopicChange, ...]:
    """Return what the settings change, broker by broker; empty if they hold already."""
    return tuple(
        TopicChange(broker_name=broker, setting=setting, before=shown[setting], after=wanted[setting])
        for broker, config in sorted(configs.items())
        for shown, wanted in [(_show(config), _show(settings.applied_to(config)))]
        for setting in sorted(shown.keys() | wanted.keys())
        if shown.setdefault(setting, "") != wanted.setdefault(setting, "")
    )


def require_unchanged(
    topic: str, configs: Mapping[str, TopicConfig], settings: TopicSettings, *, remedy: str
) -> None:
    """Raise an error if brokers that have the topic have it with other settings.

    Raises
    ------
    TopicExistsError
        Names the first difference, and ``remedy``, which alters a topic.
    """
    for first in changes_of(configs, settings)[:1]:
        raise TopicExistsError(
            f"{topic} already exists and was not changed ({first.setting}: {first.before or 'not set'}, "
            f"not {first.after}); `{remedy}` changes it",
            topic=topic,
            broker_name=first.broker_name,
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


def _show(config: TopicConfig) -> dict[str, str]:
    return {
        "read queues": str(config.read_queues),
        "write queues": str(config.write_queues),
        "permission": permission_text(config.perm),
        "order": str(config.order).lower(),
        **{f"attribute {name}": value for name, value in config.attributes.items()},
    }


def permission_text(perm: Permission) -> str:
    """Return a permission as people read it."""
    names = [name for bit, name in ((Permission.READ, "read"), (Permission.WRITE, "write")) if bit in perm]
    return ", ".join(names) or "none"
