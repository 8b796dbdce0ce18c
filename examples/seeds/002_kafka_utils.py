"""Spark's old ``KafkaUtils`` with RocketMQ: ``createStream`` with a receiver, or ``createDirectStream``.

Start it with the name server, the group, the topic, and one of the two names::

    python examples/seeds/002_kafka_utils.py 127.0.0.1:9876 groupId topic createDirectStream

Kill it and restart it: it continues from the folder ``checkpoint``.
"""

import sys

from pyspark import SparkConf, SparkContext
from pyspark.streaming import StreamingContext

from pyspark_rocketmq import ReliableRocketMQReceiver, RocketMQUtils

nameServer, groupId, topic, way = sys.argv[1:]


def createStream(ssc):
    """Receive with a write-ahead log. Two threads deserialize, as with ``Map(topic -> 2)`` in Kafka."""
    receiver = ReliableRocketMQReceiver(
        nameServer, {topic: 2}, groupId, "MEMORY_AND_DISK_SER_2", options={"auto.offset.reset": "smallest"}
    )
    return RocketMQUtils.receiverStream(ssc, receiver).map(RocketMQUtils.keyValue)


def createDirectStream(ssc):
    """Read each batch's offset ranges in its tasks, one partition for each queue."""
    kafkaParams = {
        "nameServer": nameServer,
        "auto.offset.reset": "smallest",
        "pull.max.speed.per.partition": 1_000,
    }
    return RocketMQUtils.createMQPullStream(
        ssc, groupId, topic, autoCommit=False, options=kafkaParams, messageHandler=RocketMQUtils.keyValue
    )


def setUp():
    """Build the job. Called only if there is no checkpoint."""
    ssc = StreamingContext(SparkContext(conf=SparkConf().setMaster("local[2]").setAppName(way)), 1)
    stream = {"createStream": createStream, "createDirectStream": createDirectStream}[way](ssc)
    stream.map(lambda pair: pair[1].decode()).pprint()
    return ssc


ssc = StreamingContext.getOrCreate("checkpoint", setUp)
ssc.start()
ssc.awaitTermination()
