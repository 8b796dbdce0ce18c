"""Names of RocketMQ's system topics and groups (``MixAll``, ``TopicValidator`` of 5.4.0), and near names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

__all__ = [
    "GROUP_TOPIC_PREFIXES",
    "MAX_GROUP_LENGTH",
    "RETRY_PREFIX",
    "commit_topic_of",
    "dead_letter_topic",
    "is_system_group",
    "is_system_topic",
    "retry_topic",
    "staging_topic_of",
    "suggest_names",
]

MAX_GROUP_LENGTH: Final = 120
"""Of a group's name (``Validators``): that of its topic of retries is a topic's."""

RETRY_PREFIX: Final = "%RETRY%"
_DEAD_LETTER_PREFIX: Final = "%DLQ%"

GROUP_TOPIC_PREFIXES: Final = (RETRY_PREFIX, _DEAD_LETTER_PREFIX)
"""The prefixes of the topics that brokers create for a group."""

_SYSTEM_TOPICS: Final = frozenset(
    {
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "CHECKPOINT_TOPIC",
    }
)
_SYSTEM_PREFIXES: Final = ("rmq_sys_", "RMQ_SYS_ROCKSDB_TRANS_", *GROUP_TOPIC_PREFIXES)

_SYSTEM_GROUPS: Final = frozenset(
    {
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_OWNER",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_SYS_RMQ_TRANS",
    }
)
_SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"


def retry_topic(group: str) -> str:
    """Return the topic through which a group's messages are redelivered."""
    return RETRY_PREFIX + group


def commit_topic_of(topic: str, given: str | None) -> str:
    """Return the commit topic of a topic, see ``planning.commits``, unless another one is given."""
    return given or f"{topic}-commits"


def staging_topic_of(topic: str, given: str | None) -> str:
    """Return the topic in which rows wait until they are committed, unless another one is given."""
    return given or f"{topic}-staging"


def dead_letter_topic(group: str) -> str:
    """Return the topic of a group's dead letters."""
    return _DEAD_LETTER_PREFIX + group


def is_system_topic(topic: str) -> bool:
    """Whether a name is a system topic's. Each broker and cluster also has a system topic with its name."""
    return topic in _SYSTEM_TOPICS or topic.startswith(_SYSTEM_PREFIXES)


def is_system_group(group: str) -> bool:
    """Whether a name is a system group's."""
    return group in _SYSTEM_GROUPS or group.startswith(_SYSTEM_GROUP_PREFIX)


def suggest_names(name: str, known: Iterable[str], *, most: int = 3) -> str:
    """Return the question whether one of the near names was meant; an empty text if none is near.

    Case does not count.
    """
    by_lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), by_lower, most)
    return f"did you mean {' or '.join(by_lower[each] for each in near)}?" if near else ""
