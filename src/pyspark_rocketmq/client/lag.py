"""How much topics hold, and how far a consumer group is behind."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_rocketmq.client.admin import Admin
from pyspark_rocketmq.client.whole_routes import look_up
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.model.names import RETRY_PREFIX

if TYPE_CHECKING:
    from pyspark_rocketmq.client.client import Client

__all__ = ["QueueLag", "group_lag", "group_topics", "held_messages"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLag:
    """A group's place in a queue.

    Parameters
    ----------
    committed : int or None
        The next offset that the group will read; None where it never committed.
    consumed_timestamp : int
        When the last message that it consumed was stored (ms), 0 where the broker cannot tell.
    """

    queue: MessageQueue
    committed: int | None
    min_offset: int
    max_offset: int
    consumed_timestamp: int

    @property
    def lag(self) -> int:
        """Messages that are stored and not consumed; all of them where the group never committed."""
        begin = self.min_offset if self.committed is None else max(self.committed, self.min_offset)
        return max(0, self.max_offset - begin)


def group_topics(client: Client, group: str) -> tuple[str, ...]:
    """Return the topics that the group has committed offsets of, without its retry topic."""
    topics = {queue.topic for queue in Admin(client).consume_stats(group)}
    return tuple(sorted(topic for topic in topics if not topic.startswith(RETRY_PREFIX)))


def group_lag(client: Client, group: str, topics: Iterable[str]) -> tuple[QueueLag, ...]:
    """Return the group's place in every readable queue of the topics.

    Raises
    ------
    TopicNotFoundError, NameServerError, TransportError, BrokerError
    """
    topics = tuple(topics)
    admin = Admin(client)
    look_up(client, topics)
    queues = [queue for topic in topics for queue in client.read_queues(topic)]
    committed = client.committed_offsets(group, queues)
    mins, maxs = client.min_offsets(queues), client.max_offsets(queues)
    stats = {queue: seen for topic in topics for queue, seen in admin.consume_stats(group, topic).items()}
    return tuple(
        QueueLag(
            queue=queue,
            committed=committed[queue],
            min_offset=mins[queue],
            max_offset=maxs[queue],
            consumed_timestamp=stats[queue].last_timestamp if queue in stats else 0,
        )
        for queue in queues
    )


def held_messages(client: Client, topics: Iterable[str]) -> dict[str, dict[MessageQueue, int]]:
    """Return for each topic, in their order, how many messages each readable queue holds.

    Raises
    ------
    NameServerError, TransportError, BrokerError
    """
    names = tuple(topics)
    routes = client.routes.find_many(names, deadline=client.deadline())
    queues = {name: () if (route := routes[name]) is None else route.read_queues() for name in names}
    everything = [queue for own in queues.values() for queue in own]
    mins, maxs = client.min_offsets(everything), client.max_offsets(everything)
    return {topic: {queue: maxs[queue] - mins[queue] for queue in own} for topic, own in queues.items()}
