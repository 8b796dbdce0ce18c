"""The pull stream of rocketmq-spark's README: reading, getting the offsets, committing them.

Start it with the name server, the group and the topic::

    python examples/seeds/000_pull_stream.py 127.0.0.1:9876 groupId topic
"""

import sys

from pyspark import SparkContext, TaskContext
from pyspark.streaming import StreamingContext

from pyspark_rocketmq import ConsumerStrategy, RocketMqUtils

nameServer, groupId, topic = sys.argv[1:]

streamingContext = StreamingContext(SparkContext(appName="rocketmq-spark"), 1)
dStream = RocketMqUtils.createMQPullStream(
    streamingContext,
    groupId,
    topic,
    ConsumerStrategy.earliest,
    autoCommit=False,
    forceSpecial=False,
    failOnDataLoss=False,
    options={"nameServer": nameServer},
)

dStream.map(lambda message: message.body).pprint()


def output(rdd):
    """Print the offsets of each partition, then commit them."""
    offsetRanges = rdd.offsetRanges

    def forPartition(messages):
        offsets = offsetRanges[TaskContext.get().partitionId()]
        yield f"{offsets}: {sum(1 for _ in messages)} messages"

    for line in rdd.mapPartitions(forPartition).collect():
        print(line, flush=True)
    # some time later, after outputs have completed
    dStream.commitAsync(offsetRanges)


dStream.foreachRDD(output)

streamingContext.start()
streamingContext.awaitTermination()
