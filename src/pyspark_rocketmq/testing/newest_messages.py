"""Read a topic's newest messages without side effects."""

from __future__ import annotations

from typing import Final

from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.read.queue_reader import read_messages
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.client.requests import TOOLS_GROUP
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import Message, OffsetRange
from pyspark_rocketmq.options import ClientOptions

__all__ = ["peek"]

_STALL_MS: Final = 30_000


def peek(name_server: str | ClientOptions, topic: str, n: int = 10) -> list[Message]:
    """Return the newest messages of a topic, oldest first.

    Commits nothing and creates no group. A message that expires during the call is omitted.

    Parameters
    ----------
    name_server : str or ClientOptions
    topic : str
    n : int, default 10
        Number of messages over all queues.

    Raises
    ------
    TopicNotFoundError, NameServerError, BrokerNotFoundError, TransportError, BrokerError
    """
    if n < 1:
        raise OptionError("peek needs n from 1 on", n=n)
    with Client(name_server) as client:
        queues = client.read_queues(topic)
        mins, maxs = client.min_offsets(queues), client.max_offsets(queues)
        ranges = [OffsetRange(queue, max(mins[queue], maxs[queue] - n), maxs[queue]) for queue in queues]
        options = ReadOptions(consumer_group=TOOLS_GROUP, fail_on_data_loss=False, stall_timeout_ms=_STALL_MS)
        found = list(read_messages(client, ranges, options))
    found.sort(key=lambda message: (message.store_timestamp, message.queue_offset, message.queue))
    return found[-n:]
