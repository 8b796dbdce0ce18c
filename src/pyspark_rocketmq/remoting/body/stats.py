"""Bodies about offsets: topic statistics, consume statistics, reset offsets.

# Facts
#
# ``TopicStatsTable``, ``ConsumeStats``, ``ResetOffsetBody`` (5.4.0). All are tables whose keys are
# objects, which is no standard JSON. In consume statistics a queue without a committed offset shows 0.
"""

from __future__ import annotations

from pyspark_rocketmq.model import ConsumerOffset, MessageQueue, QueueStats
from pyspark_rocketmq.remoting.body.shape import queue_key, read
from pyspark_rocketmq.remoting.command import Buffer

__all__ = ["decode_consume_stats", "decode_reset_offsets", "decode_topic_stats"]


def decode_topic_stats(view: Buffer) -> dict[MessageQueue, QueueStats]:
    """Read the answer to GET_TOPIC_STATS_INFO.

    Raises
    ------
    RemoteProtocolError
    """
    table = read(view, "topic stats")["offsetTable"]
    return {
        queue_key(key, table.path): QueueStats(
            stats["minOffset"].integer(),
            stats["maxOffset"].integer(),
            stats["lastUpdateTimestamp"].integer(0),
        )
        for key, stats in table.members()
    }


def decode_consume_stats(view: Buffer) -> dict[MessageQueue, ConsumerOffset]:
    """Read the answer to GET_CONSUME_STATS.

    Raises
    ------
    RemoteProtocolError
    """
    table = read(view, "consume stats")["offsetTable"]
    return {
        queue_key(key, table.path): ConsumerOffset(
            stats["brokerOffset"].integer(),
            stats["consumerOffset"].integer(),
            stats["lastTimestamp"].integer(0),
        )
        for key, stats in table.members()
    }


def decode_reset_offsets(view: Buffer) -> dict[MessageQueue, int]:
    """Read the answer to INVOKE_BROKER_TO_RESET_OFFSET: the new offsets.

    Raises
    ------
    RemoteProtocolError
    """
    table = read(view, "reset offsets")["offsetTable"]
    return {queue_key(key, table.path): offset.integer() for key, offset in table.members()}
