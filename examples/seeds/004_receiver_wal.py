"""The article's receiver with a write-ahead log, in the short form with only deserialize.

python examples/seeds/004_receiver_wal.py 127.0.0.1:9876 OrderTopic hdfs://namenode:8020/spark-checkpoints/rocketmq
"""

import json
import sys

from pyspark import SparkConf, SparkContext
from pyspark.streaming import StreamingContext

from pyspark_rocketmq import ReliableRocketMQReceiver, RocketMQUtils


class Order:
    def __init__(self, orderNo, cost):
        self.orderNo = orderNo
        self.cost = cost

    def __str__(self):
        return f"Order{{orderNo='{self.orderNo}', cost={self.cost}}}"


class OrderReceiver(ReliableRocketMQReceiver):
    def __init__(self, namesrvAddr, topic, group):
        super().__init__(namesrvAddr, topic, group, "MEMORY_AND_DISK_SER_2")

    def deserialize(self, body):
        try:
            return Order(**json.loads(body))
        except (ValueError, TypeError):
            return None


namesrvAddr, topic, checkpoint = sys.argv[1:]

conf = SparkConf().setAppName("RocketMQReceiverWithWAL").setMaster("local[2]")
ssc = StreamingContext(SparkContext(conf=conf), 5)
ssc.checkpoint(checkpoint)

stream = RocketMQUtils.receiverStream(ssc, OrderReceiver(namesrvAddr, topic, "spark_group"))
stream.foreachRDD(lambda rdd: rdd.foreach(lambda order: print("Got order (with WAL):", order)))

ssc.start()
ssc.awaitTermination()
