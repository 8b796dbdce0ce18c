"""Namespaces: a prefix that keeps the topics and groups of several owners apart on one RocketMQ.

# Facts (``NamespaceUtil``, ``TopicValidator``, ``MixAll``; 4.9 and 5.4)
#
# ``orders`` in the namespace ``ns`` is ``ns%orders`` on the server, the retry topic of the group ``g`` is
# ``%RETRY%ns%g``. Names of the system, and names that begin with the namespace already, stay as they are.
# Servers know nothing of it: the client adds the prefix to requests and takes it off answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark_rocketmq.model.names import GROUP_TOPIC_PREFIXES

__all__ = ["NO_NAMESPACE", "Namespace"]

_SEPARATOR: Final = "%"
_SYSTEM_PREFIXES: Final = ("rmq_sys_", "RMQ_SYS_", "CID_RMQ_SYS_")
_SYSTEM_NAMES: Final = frozenset(
    {
        *("TBW102", "SCHEDULE_TOPIC_XXXX", "BenchmarkTest", "TRANS_CHECK_MAX_TIME_TOPIC"),
        *("SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "TOOLS_CONSUMER"),
    }
)


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace, or none: ``Namespace(None)`` leaves every name as it is."""

    name: str | None = None

    def qualify(self, resource: str) -> str:
        """Return the server's name of a topic or group."""
        if not self.name or resource in _SYSTEM_NAMES or resource.startswith(_SYSTEM_PREFIXES):
            return resource
        prefix, rest = _part(resource)
        return resource if self._marks(rest) else f"{prefix}{self.name}{_SEPARATOR}{rest}"

    def plain(self, resource: str) -> str:
        """Return the user's name of a topic or group of this namespace; others stay as they are."""
        prefix, rest = _part(resource)
        return prefix + rest[len(self.name or "") + 1 :] if self._marks(rest) else resource

    def holds(self, resource: str) -> bool:
        """Whether a name on the server belongs to this namespace; without one, every name does."""
        return not self.name or self._marks(_part(resource)[1])

    def _marks(self, rest: str) -> bool:
        return bool(self.name) and rest.startswith(f"{self.name}{_SEPARATOR}")


NO_NAMESPACE: Final = Namespace()


def _part(resource: str) -> tuple[str, str]:
    prefix = next((prefix for prefix in GROUP_TOPIC_PREFIXES if resource.startswith(prefix)), "")
    return prefix, resource[len(prefix) :]
