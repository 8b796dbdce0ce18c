"""The RDD of rocketmq-spark's README. By mistake its ranges name the group there: it must be the topic.

Start it with the name server and a topic that has a hundred messages in its queues 1 and 2::

    python examples/seeds/000_rdd.py 127.0.0.1:9876 groupId topic broker-a
"""

import sys

from pyspark import SparkContext

from pyspark_rocketmq import LocationStrategies, OffsetRange, RocketMqUtils, TopicQueueId

nameServer, groupId, topic, *brokers = sys.argv[1:]

offsetRanges = {}
topicQueueId1 = TopicQueueId(topic, 1)
offsetRanges[topicQueueId1] = [OffsetRange.create(topic, 1, broker, 0, 100) for broker in brokers]
topicQueueId2 = TopicQueueId(topic, 2)
offsetRanges[topicQueueId2] = [OffsetRange.create(topic, 2, broker, 0, 100) for broker in brokers]

optionParams = {"nameServer": nameServer}
locationStrategy = LocationStrategies.PreferConsistent()

sparkContext = SparkContext(appName="rocketmq-spark")
rdd = RocketMqUtils.createRDD(sparkContext, groupId, offsetRanges, optionParams, locationStrategy)
for bodyCRC in rdd.map(lambda messageExt: messageExt.body_crc).collect():
    print(bodyCRC)
sparkContext.stop()
