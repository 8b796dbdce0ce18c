"""The code-level API of rocketmq-flink, on the data source. Each name behaves as the one in rocketmq-flink.

A ``DataStream`` is a DataFrame here: ``source.load(spark)`` replaces ``env.addSource``, and
``sink.writeStream(rows)`` replaces ``addSink``.
"""

from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.sql.flink.config import OffsetResetStrategy, RocketMQConfig
from pyspark_rocketmq.sql.flink.schemas import (
    KeyValueDeserializationSchema,
    KeyValueSerializationSchema,
    SimpleKeyValueDeserializationSchema,
    SimpleKeyValueSerializationSchema,
    SimpleStringDeserializationSchema,
    SimpleTupleDeserializationSchema,
)
from pyspark_rocketmq.sql.flink.selectors import DefaultTopicSelector, SimpleTopicSelector, TopicSelector
from pyspark_rocketmq.sql.flink.sink import RocketMQSink
from pyspark_rocketmq.sql.flink.source import RocketMQSourceFunction

__all__ = [
    "DefaultTopicSelector",
    "KeyValueDeserializationSchema",
    "KeyValueSerializationSchema",
    "MessageQueue",
    "OffsetResetStrategy",
    "RocketMQConfig",
    "RocketMQSink",
    "RocketMQSourceFunction",
    "SimpleKeyValueDeserializationSchema",
    "SimpleKeyValueSerializationSchema",
    "SimpleStringDeserializationSchema",
    "SimpleTopicSelector",
    "SimpleTupleDeserializationSchema",
    "TopicSelector",
]
