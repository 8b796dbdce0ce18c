"""The receivers of rocketmq-spark's README: the reliable one if a checkpoint directory is given.

Start it with the name server, the group, the topic, and optionally a directory::

    python examples/seeds/000_receiver.py 127.0.0.1:9876 groupId topic /tmp/checkpoint
"""

import sys

from pyspark import SparkConf, SparkContext, StorageLevel
from pyspark.streaming import StreamingContext

from pyspark_rocketmq import RocketMQConfig, RocketMQUtils

NAMESERVER_ADDR, CONSUMER_GROUP, CONSUMER_TOPIC, *checkpoint = sys.argv[1:]

conf = SparkConf().setMaster("local[2]").setAppName("NetworkWordCount")
ssc = StreamingContext(SparkContext(conf=conf), 1)
properties = {}
properties[RocketMQConfig.NAME_SERVER_ADDR] = NAMESERVER_ADDR
properties[RocketMQConfig.CONSUMER_GROUP] = CONSUMER_GROUP
properties[RocketMQConfig.CONSUMER_TOPIC] = CONSUMER_TOPIC

if not checkpoint:
    # no fault-tolerance guarantees
    ds = RocketMQUtils.createInputDStream(ssc, properties, StorageLevel.MEMORY_ONLY)
else:
    # fault-tolerance guarantees
    ssc.checkpoint(checkpoint[0])
    ds = RocketMQUtils.createReliableInputDStream(ssc, properties, StorageLevel.MEMORY_ONLY)
ds.map(lambda message: message.body).pprint()
ssc.start()
ssc.awaitTerminationOrTimeout(60)
