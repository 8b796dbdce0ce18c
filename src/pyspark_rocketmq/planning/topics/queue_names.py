"""One name for each queue of a static topic, whichever release stored it.

A static topic's queue moves between brokers. Its broker name is that of the topic's scope, but users, and
checkpoints of releases that had no such name, call it by a broker that has it or had it. Ids are those of the
topic, whatever the broker: what is called so is the same queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from pyspark_rocketmq.model import MessageQueue

__all__ = ["named_as", "rename_queues"]

T = TypeVar("T")


def named_as(seen: Iterable[MessageQueue]) -> Callable[[MessageQueue], MessageQueue]:
    """Return the function from any name of a queue to the one that it has among the existing queues."""
    logical = {(queue.topic, queue.queue_id): queue for queue in seen if queue.logical}
    return lambda queue: logical.get((queue.topic, queue.queue_id), queue)


def rename_queues(
    values: Mapping[MessageQueue, T], seen: Iterable[MessageQueue], *, choose: Callable[[T, T], T]
) -> dict[MessageQueue, T]:
    """Return values by queue under the names of the existing queues.

    Parameters
    ----------
    values : Mapping
    seen : iterable of MessageQueue
        The queues that there are now.
    choose : Callable
        Which of two values counts that stand under two names of one queue.
    """
    name = named_as(seen)
    found: dict[MessageQueue, T] = {}
    for queue, value in values.items():
        now = name(queue)
        found[now] = choose(found[now], value) if now in found else value
    return found
