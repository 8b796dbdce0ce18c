"""The article's third variant: your own consumer in the driver, and a queue.

    python examples/seeds/004_queue.py 127.0.0.1:9876 OrderTopic

A message counts as consumed when it is in the queue: messages in the queue are lost with the driver. To
commit offsets after the output see examples/dstream_own_consumer.py.
"""

import queue
import sys

from pyspark import SparkConf, SparkContext
from pyspark.streaming import StreamingContext

from pyspark_rocketmq import RocketMQUtils
from pyspark_rocketmq.client import PushConsumer

namesrvAddr, topic = sys.argv[1:]

conf = SparkConf().setAppName("RocketMQQueueExample").setMaster("local[2]")
ssc = StreamingContext(SparkContext(conf=conf), 5)

waiting = queue.Queue(10_000)
stream = RocketMQUtils.queueStream(ssc, waiting)
stream.pprint()


def consume(msgs):
    for msg in msgs:
        waiting.put(msg.body.decode())


with PushConsumer("queue_group", namesrvAddr) as consumer:
    consumer.subscribe(topic, "*")
    consumer.start(consume)
    ssc.start()
    ssc.awaitTermination()
