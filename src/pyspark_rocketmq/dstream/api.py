"""The entry points, by rocketmq-spark's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark import SparkContext

from pyspark_rocketmq.dstream.ranges import RangesLike, to_ranges
from pyspark_rocketmq.dstream.rdd import MessageHandler, RocketMQRDD, key_value
from pyspark_rocketmq.dstream.strategies import LocationStrategies, LocationStrategy
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options import parse_direct_options
from pyspark_rocketmq.options.kinds import GROUP

__all__ = ["RocketMQUtils"]


class RocketMQUtils:
    """RDDs and DStreams of RocketMQ; ``RocketMqUtils`` is the same class."""

    keyValue = staticmethod(key_value)
    """A message handler: (keys, body) pairs."""

    @staticmethod
    def createRDD(
        sc: SparkContext,
        groupId: str,
        offsetRanges: RangesLike,
        options: Mapping[str, Any] | None = None,
        locationStrategy: LocationStrategy = LocationStrategies.PreferConsistent,
        *,
        messageHandler: MessageHandler | None = None,
    ) -> RocketMQRDD:
        """Return the messages of offset ranges as an RDD.

        Nothing is committed; the group is only named to the brokers.

        Parameters
        ----------
        sc : SparkContext
            Of classic Spark.
        groupId : str
        offsetRanges : iterable of OffsetRange, or Mapping
            Also by `TopicQueueId`, as rocketmq-spark has them.
        options : Mapping, optional
            See `DirectOptions`; the name servers may also come from ``$NAMESRV_ADDR``.
        locationStrategy : LocationStrategy
        messageHandler : Callable, optional
            Applied to each `Message` in the reader; its answers are the RDD's elements.

        Returns
        -------
        RocketMQRDD
            Of `Message`, or of what the handler returns; ``.offsetRanges`` has the ranges.

        Raises
        ------
        OptionError
            A range, the group or an option is wrong.
        """
        ranges = to_ranges(offsetRanges)
        topics = tuple(sorted({found.topic for found in ranges}))
        if not topics:
            raise OptionError("an RDD needs at least one offset range, an empty one perhaps")
        given = dict(options or {})
        source = parse_direct_options(given).source(topics, _group(groupId))
        return RocketMQRDD(sc, ranges, source, given, locationStrategy, handler=messageHandler)


def _group(name: str) -> str:
    try:
        return GROUP.parse(name)
    except ValueError as error:
        raise OptionError(f"groupId is malformed: {error}", groupId=name) from None
