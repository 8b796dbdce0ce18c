"""RDDs and DStreams of RocketMQ for PySpark, with rocketmq-spark's API. Classic Spark only."""

import pyspark_rocketmq.spark  # noqa: F401 - one sentence, if PySpark is missing or too old

# isort: split
from pyspark_rocketmq.dstream.api import RocketMQUtils
from pyspark_rocketmq.dstream.compat import RocketMQConfig, RocketMqUtils, explain_missing_ranges
from pyspark_rocketmq.dstream.direct.stream import RocketMQDStream
from pyspark_rocketmq.dstream.foreach_rdd import transactional_output
from pyspark_rocketmq.dstream.ranges import CanCommitOffsets, HasOffsetRanges, OffsetRanges, TopicQueueId
from pyspark_rocketmq.dstream.rdd import RocketMQRDD
from pyspark_rocketmq.dstream.receiver.received_rdd import ReceivedRDD
from pyspark_rocketmq.dstream.receiver.receivers import ReliableRocketMQReceiver, RocketMQReceiver
from pyspark_rocketmq.dstream.receiver.server import ReceiverInfo
from pyspark_rocketmq.dstream.receiver.stream import RocketMQReceiverStream
from pyspark_rocketmq.dstream.strategies import ConsumerStrategy, LocationStrategies, LocationStrategy
from pyspark_rocketmq.model import OffsetRange

__all__ = [
    "CanCommitOffsets",
    "ConsumerStrategy",
    "HasOffsetRanges",
    "LocationStrategies",
    "LocationStrategy",
    "OffsetRange",
    "OffsetRanges",
    "ReceivedRDD",
    "ReceiverInfo",
    "ReliableRocketMQReceiver",
    "RocketMQConfig",
    "RocketMQDStream",
    "RocketMQRDD",
    "RocketMQReceiver",
    "RocketMQReceiverStream",
    "RocketMQUtils",
    "RocketMqUtils",
    "TopicQueueId",
    "explain_missing_ranges",
    "transactional_output",
]
