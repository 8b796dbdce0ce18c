"""Routes of topics: brokers, their queues, permissions."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from pyspark_rocketmq.model.queues import MASTER_ID, MessageQueue

__all__ = [
    "MAX_QUEUES",
    "BrokerData",
    "Permission",
    "QueueData",
    "TopicRoute",
]

MAX_QUEUES: Final = 65_536
"""More queues of a topic than this, at all its brokers, are taken for damage and not for a route."""


class Permission(enum.IntFlag):
    """The permission bits of a queue (``PermName`` of the Java client)."""

    NONE = 0
    INHERIT = 1
    WRITE = 2
    READ = 4
    PRIORITY = 8


@dataclass(frozen=True, slots=True)
class BrokerData:
    """One broker (replica group): addresses by broker id; 0 is the master.

    ``behind_proxy`` says that the address is that of a proxy, which all brokers share.
    """

    broker_name: str
    cluster: str
    addresses: Mapping[int, str]
    behind_proxy: bool = False

    @property
    def master(self) -> str | None:
        """The master's ``host:port``, or None while the group has no master."""
        return self.addresses.get(MASTER_ID)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the addresses, master first."""
        return iter([self.addresses[broker_id] for broker_id in sorted(self.addresses)])


@dataclass(frozen=True, slots=True)
class QueueData:
    """The numbers of a topic's queues at a broker, and their permissions."""

    broker_name: str
    read_queues: int
    write_queues: int
    perm: Permission


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """A topic's route as one name server reports it.

    ``static_queues`` is set for static topics only: the current owner of each queue, None if no broker of
    the route owns it (the owner is down). Each remap increases ``static_epoch``.
    """

    topic: str
    brokers: tuple[BrokerData, ...]
    queues: tuple[QueueData, ...]
    static_queues: Mapping[MessageQueue, str | None] = field(default_factory=dict)
    static_epoch: int = 0

    def broker(self, broker_name: str) -> BrokerData | None:
        """Return the broker of that name, or None."""
        return next((data for data in self.brokers if data.broker_name == broker_name), None)

    def owner(self, queue: MessageQueue) -> str | None:
        """Return the name of the broker that owns the queue now; None if no broker of the route does.

        A static topic's queue may also be given with the name of its current or a former owner.
        """
        if not self.static_queues:
            return queue.broker_name
        if queue in self.static_queues:
            return self.static_queues[queue]
        same = (owner for one, owner in self.static_queues.items() if one.queue_id == queue.queue_id)
        return next(same, None)

    def asked_broker(self, queue: MessageQueue) -> str:
        """Return the broker that is asked for the queue: its owner, else the one that it is named after."""
        return self.owner(queue) or queue.broker_name

    def read_queues(self) -> tuple[MessageQueue, ...]:
        """Return the queues that may be read, sorted."""
        if self.static_queues:
            return tuple(sorted(self.static_queues))
        return tuple(
            sorted(
                MessageQueue(self.topic, data.broker_name, queue_id)
                for data in self.queues
                if Permission.READ in data.perm
                for queue_id in range(data.read_queues)
            )
        )

    def write_queues(self) -> tuple[MessageQueue, ...]:
        """Return the queues that may be written, sorted: those of brokers that have a master."""
        if self.static_queues:
            return self.read_queues()
        masters = {data.broker_name for data in self.brokers if data.master is not None}
        return tuple(
            sorted(
                MessageQueue(self.topic, data.broker_name, queue_id)
                for data in self.queues
                if Permission.WRITE in data.perm and data.broker_name in masters
                for queue_id in range(data.write_queues)
            )
        )
