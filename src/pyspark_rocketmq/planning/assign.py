"""Which consumer of a group reads which queues: the strategies of the Java client, bit for bit.

Members of a group share no state. Each computes the same assignment from the same two sorted lists, so a
Python member beside Java members must agree with them exactly.
"""

# Facts: org.apache.rocketmq.client.consumer.rebalance (5.4.0): AllocateMessageQueueAveragely,
# AllocateMessageQueueAveragelyByCircle, AllocateMessageQueueConsistentHash (10 virtual nodes), with
# org.apache.rocketmq.common.consistenthash.ConsistentHashRouter and MessageQueue.toString() as keys.

from __future__ import annotations

import enum
import hashlib
from bisect import bisect_left
from collections.abc import Collection, Sequence
from typing import Final, assert_never

from pyspark_rocketmq.model import MessageQueue

__all__ = ["AllocateStrategy", "allocate"]

_VIRTUAL_NODES: Final = 10
_HASH_BYTES: Final = 4


class AllocateStrategy(enum.Enum):
    """How queues are assigned to members."""

    AVERAGELY = "average"
    """Neighboring queues to the same member, as evenly as possible; the Java client's default."""
    AVERAGELY_BY_CIRCLE = "circle"
    """Queues to members in turn (round-robin)."""
    CONSISTENT_HASH = "consistentHash"
    """Each queue to its place on a ring: few queues move when members come or go."""


def allocate(
    strategy: AllocateStrategy,
    queues: Collection[MessageQueue],
    members: Collection[str],
    member: str,
) -> tuple[MessageQueue, ...]:
    """Return the queues of one member, sorted.

    Parameters
    ----------
    strategy : AllocateStrategy
    queues : collection of MessageQueue
        All queues of the topic.
    members : collection of str
        The client ids of the group.
    member : str
        The client id that asks; one that is not in the group gets nothing.
    """
    everyone = sorted(set(members))
    if member not in everyone:
        return ()
    deck = sorted(set(queues))
    index = everyone.index(member)
    match strategy:
        case AllocateStrategy.AVERAGELY:
            size, more = divmod(len(deck), len(everyone))
            begin = index * size + min(index, more)
            return tuple(deck[begin : begin + size + (index < more)])
        case AllocateStrategy.AVERAGELY_BY_CIRCLE:
            return tuple(deck[index :: len(everyone)])
        case AllocateStrategy.CONSISTENT_HASH:
            ring = _ring(everyone)
            return tuple(queue for queue in deck if _owner(ring, queue) == member)
    assert_never(strategy)


def _ring(members: Sequence[str]) -> list[tuple[int, str]]:
    """Return the virtual nodes by place; where two meet the later member wins, as in a Java map."""
    places = {
        _place(f"{member}-{replica}"): member for member in members for replica in range(_VIRTUAL_NODES)
    }
    return sorted(places.items())


def _owner(ring: Sequence[tuple[int, str]], queue: MessageQueue) -> str:
    key = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
    index = bisect_left(ring, (_place(key), ""))
    return ring[index % len(ring)][1]


def _place(key: str) -> int:
    digest = hashlib.md5(key.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:_HASH_BYTES], "big")
