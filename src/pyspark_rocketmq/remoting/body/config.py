"""Bodies about settings: topics, groups, brokers, accounts.

# Facts
#
# ``TopicConfig``, ``TopicConfigSerializeWrapper``, ``SubscriptionGroupConfig``,
# ``SubscriptionGroupWrapper``, ``KVTable``, ``MixAll``, ``UserInfo``, ``AclInfo`` (5.4.0).
#
# * A group's body needs ``groupName`` only; what is left out takes the default.
# * GET_BROKER_CONFIG sends ``key=value`` lines unescaped. UPDATE_BROKER_CONFIG reads the body with
#   ``java.util.Properties``: a backslash escapes, and only Latin-1 bytes survive.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from pyspark_rocketmq.errors import LocalProtocolError, RemoteProtocolError
from pyspark_rocketmq.inventory import GroupConfig, TopicConfig
from pyspark_rocketmq.model import MAX_QUEUES
from pyspark_rocketmq.remoting.body.route import permission
from pyspark_rocketmq.remoting.body.shape import Node, read, write
from pyspark_rocketmq.remoting.command import Buffer

__all__ = [
    "decode_broker_properties",
    "decode_group_config",
    "decode_group_configs",
    "decode_runtime_info",
    "decode_topic_config",
    "decode_topic_configs",
    "encode_acl",
    "encode_broker_properties",
    "encode_group_config",
    "encode_topic_attributes",
    "encode_user",
]

_PROPERTY_NAME: Final = re.compile(r"[A-Za-z0-9_.\-]+")
_ATTRIBUTE: Final = re.compile(r"[^,=+\s][^,=\s]*")


def decode_topic_config(view: Buffer) -> TopicConfig:
    """Read the answer to GET_TOPIC_CONFIG.

    Raises
    ------
    RemoteProtocolError
    """
    return _topic_config(read(view, "topic config"))


def decode_topic_configs(view: Buffer, *, only: str | None = None) -> dict[str, TopicConfig]:
    """Read the answer to GET_ALL_TOPIC_CONFIG: settings by topic.

    Raises
    ------
    RemoteProtocolError
    """
    table = read(view, "topic configs")["topicConfigTable"]
    named = ((table.name(topic), config) for topic, config in table.members())
    return {name: _topic_config(config) for name, config in named if only is None or name == only}


def encode_topic_attributes(attributes: Mapping[str, str | None]) -> str:
    """Write the field ``attributes`` of UPDATE_AND_CREATE_TOPIC; None takes an attribute away.

    Raises
    ------
    LocalProtocolError
        A name or value has a character that the list cannot hold.
    """
    for text in (*attributes, *filter(None, attributes.values())):
        if not _ATTRIBUTE.fullmatch(text):
            raise LocalProtocolError("a topic attribute cannot hold commas, equal signs or spaces", text=text)
    return ",".join(f"-{name}" if value is None else f"+{name}={value}" for name, value in attributes.items())


def decode_group_config(view: Buffer) -> GroupConfig:
    """Read the answer to GET_SUBSCRIPTIONGROUP_CONFIG.

    Raises
    ------
    RemoteProtocolError
    """
    return _group_config(read(view, "group config"))


def decode_group_configs(view: Buffer) -> dict[str, GroupConfig]:
    """Read the answer to GET_ALL_SUBSCRIPTIONGROUP_CONFIG: settings by group.

    Raises
    ------
    RemoteProtocolError
    """
    table = read(view, "group configs")["subscriptionGroupTable"]
    return {table.name(group): _group_config(config) for group, config in table.members()}


def encode_group_config(config: GroupConfig) -> bytes:
    """Write the body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP."""
    return write(
        {
            "groupName": config.group,
            "consumeEnable": config.consume_enable,
            "consumeFromMinEnable": config.consume_from_min_enable,
            "consumeBroadcastEnable": config.consume_broadcast_enable,
            "consumeMessageOrderly": config.consume_message_orderly,
            "retryQueueNums": config.retry_queue_nums,
            "retryMaxTimes": config.retry_max_times,
            "brokerId": config.broker_id,
            "whichBrokerWhenConsumeSlowly": config.which_broker_when_consume_slowly,
            "notifyConsumerIdsChangedEnable": config.notify_consumer_ids_changed_enable,
            "groupSysFlag": config.group_sys_flag,
            "consumeTimeoutMinute": config.consume_timeout_minute,
            "attributes": dict(config.attributes),
        }
    )


def decode_runtime_info(view: Buffer) -> dict[str, str]:
    """Read the answer to GET_BROKER_RUNTIME_INFO.

    Raises
    ------
    RemoteProtocolError
    """
    return read(view, "runtime info")["table"].texts()


def decode_broker_properties(view: Buffer) -> dict[str, str]:
    """Read the answer to GET_BROKER_CONFIG: settings by name.

    Raises
    ------
    RemoteProtocolError
        It is no text.
    """
    try:
        lines = str(view, "utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise RemoteProtocolError("the peer sent settings that are no text", size=len(view)) from error
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {name: value.removesuffix("\r") for name, _, value in pairs}


def encode_broker_properties(settings: Mapping[str, str]) -> bytes:
    """Write the body of UPDATE_BROKER_CONFIG.

    Raises
    ------
    LocalProtocolError
        A name is none of a setting.
    """
    for name in settings:
        if not _PROPERTY_NAME.fullmatch(name):
            raise LocalProtocolError("not the name of a broker's setting", setting=name)
    return "".join(f"{name}={_escape(value)}\n" for name, value in settings.items()).encode("ascii")


def encode_user(
    username: str, password: str, *, user_type: str = "Normal", user_status: str = "enable"
) -> bytes:
    """Write the body of AUTH_CREATE_USER; ``user_type`` is ``Normal`` or ``Super``."""
    return write(
        {"username": username, "password": password, "userType": user_type, "userStatus": user_status}
    )


def encode_acl(
    subject: str, resources: Iterable[str], actions: Iterable[str], *, decision: str = "Allow"
) -> bytes:
    """Write the body of AUTH_CREATE_ACL: one policy that gives the same actions on every resource.

    Parameters
    ----------
    subject : str
        ``User:name``.
    resources : iterable of str
        ``Topic:t``, ``Group:g``, ``Cluster:c``; ``*`` stands for all, at the end for a prefix.
    actions : iterable of str
        ``Pub``, ``Sub``, ``Get``, ``Create``, ``Update``, ``Delete``, ``List`` or ``All``.
    decision : str, default "Allow"
        Or ``Deny``.
    """
    granted = list(actions)
    entries = [
        {"resource": resource, "actions": granted, "sourceIps": [], "decision": decision}
        for resource in resources
    ]
    return write({"subject": subject, "policies": [{"policyType": "Custom", "entries": entries}]})


def _topic_config(config: Node) -> TopicConfig:
    return TopicConfig(
        config["topicName"].string(),
        config["readQueueNums"].integer(low=0, high=MAX_QUEUES),
        config["writeQueueNums"].integer(low=0, high=MAX_QUEUES),
        permission(config["perm"]),
        order=config["order"].boolean(default=False),
        topic_filter_type=config["topicFilterType"].string("SINGLE_TAG"),
        topic_sys_flag=config["topicSysFlag"].integer(0),
        attributes=config["attributes"].texts(),
    )


def _group_config(config: Node) -> GroupConfig:
    return GroupConfig(
        config["groupName"].string(),
        consume_enable=config["consumeEnable"].boolean(default=True),
        consume_from_min_enable=config["consumeFromMinEnable"].boolean(default=True),
        consume_broadcast_enable=config["consumeBroadcastEnable"].boolean(default=True),
        consume_message_orderly=config["consumeMessageOrderly"].boolean(default=False),
        retry_queue_nums=config["retryQueueNums"].integer(1),
        retry_max_times=config["retryMaxTimes"].integer(16),
        broker_id=config["brokerId"].integer(0),
        which_broker_when_consume_slowly=config["whichBrokerWhenConsumeSlowly"].integer(1),
        notify_consumer_ids_changed_enable=config["notifyConsumerIdsChangedEnable"].boolean(default=True),
        group_sys_flag=config["groupSysFlag"].integer(0),
        consume_timeout_minute=config["consumeTimeoutMinute"].integer(15),
        attributes=config["attributes"].texts(),
    )


def _escape(value: str) -> str:
    """Escape a value for ``java.util.Properties``; UTF-16 code units, as Java has them."""
    units = value.encode("utf-16-be", "surrogatepass")
    plain = re.compile(r"[!-\[\]-~]")
    out = []
    for at in range(0, len(units), 2):
        char = chr(int.from_bytes(units[at : at + 2], "big"))
        out.append(char if plain.match(char) else f"\\u{ord(char):04x}")
    return "".join(out)
