"""The offsets of light message queues (LMQ), whose messages are stored in the topic that they were sent to.

Facts: ``MultiDispatch`` and ``LmqDispatch`` of 5.4.0, ``MixAll.LMQ_PREFIX``. A pull of ``%LMQ%name`` answers
records of the parent topic, with its offsets. The property INNER_MULTI_DISPATCH lists the light queues of a
message between commas, INNER_MULTI_QUEUE_OFFSET its offset in each, in the same order.
"""

from __future__ import annotations

from typing import Final

from pyspark_rocketmq.record.properties import (
    PROPERTY_INNER_MULTI_DISPATCH,
    PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    decode_properties,
)

__all__ = ["is_light", "light_offset"]

_PREFIX: Final = "%LMQ%"
_SEPARATOR: Final = ","


def is_light(topic: str) -> bool:
    """Return whether a topic is a light message queue."""
    return topic.startswith(_PREFIX)


def light_offset(properties: bytes | memoryview, topic: str) -> int:
    """Return a message's offset in a light queue, by its properties; -1 if they have none."""
    found = decode_properties(properties)
    names = found.get(PROPERTY_INNER_MULTI_DISPATCH, "").split(_SEPARATOR)
    offsets = found.get(PROPERTY_INNER_MULTI_QUEUE_OFFSET, "").split(_SEPARATOR)
    for name, offset in zip(names, offsets, strict=False):
        if name == topic and offset.isascii() and offset.isdigit():
            return int(offset)
    return -1
