"""Values of queues as nested JSON objects: by topic, broker name and queue id, as in options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pyspark_rocketmq.model.queues import MessageQueue

__all__ = ["flatten", "nest"]

T = TypeVar("T")


def nest(values: Mapping[MessageQueue, T]) -> dict[str, dict[str, dict[str, T]]]:
    """Return values by topic, broker name and queue id (as text), in the order of the queues."""
    nested: dict[str, dict[str, dict[str, T]]] = {}
    for queue, value in sorted(values.items(), key=lambda item: item[0]):
        nested.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = value
    return nested


def flatten(nested: Mapping[str, Mapping[str, Mapping[str, T]]]) -> dict[MessageQueue, T]:
    """Return the values of `nest` by queue.

    Raises
    ------
    AttributeError, ValueError
        The value has another form.
    """
    return {
        MessageQueue(topic, broker_name, int(queue_id)): value
        for topic, brokers in nested.items()
        for broker_name, queues in brokers.items()
        for queue_id, value in queues.items()
    }
