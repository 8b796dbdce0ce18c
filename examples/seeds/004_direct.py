"""The article's direct mode: each batch is a range of offsets per queue, committed after the output.

    python examples/seeds/004_direct.py 127.0.0.1:9876 OrderTopic

The stream does what the article codes by hand for each queue (pull, keep the offset table, create an RDD).
For offsets in a database see examples/dstream_own_store.py.
"""

import json
import sys

from pyspark import SparkConf, SparkContext
from pyspark.streaming import StreamingContext

from pyspark_rocketmq import ConsumerStrategy, RocketMQUtils


class Order:
    def __init__(self, orderNo, cost):
        self.orderNo = orderNo
        self.cost = cost

    def __str__(self):
        return f"Order{{orderNo='{self.orderNo}', cost={self.cost}}}"


def deserialize(message):
    try:
        return Order(**json.loads(message.body))
    except (ValueError, TypeError):
        return None


namesrvAddr, topic = sys.argv[1:]

conf = SparkConf().setAppName("RocketMQDirectStreamExample").setMaster("local[2]")
ssc = StreamingContext(SparkContext(conf=conf), 5)

stream = RocketMQUtils.createMQPullStream(
    ssc,
    "spark_consumer_group",
    topic,
    ConsumerStrategy.earliest,
    autoCommit=False,
    options={"nameServer": namesrvAddr, "pull.max.batch.size": 32},
)


def output(rdd):
    orders = rdd.map(deserialize).filter(lambda order: order is not None)
    orders.foreach(lambda order: print("Got Order:", order))
    stream.commitAsync(rdd.offsetRanges)


stream.foreachRDD(output)

ssc.start()
ssc.awaitTermination()
