"""The code-level API of rocketmq-flink, over the data source: each name does what its twin does.

A ``DataStream`` is a DataFrame here: ``source.load(spark)`` is what ``env.addSource`` gives, and
``sink.writeStream(rows)`` what ``addSink`` takes.
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
