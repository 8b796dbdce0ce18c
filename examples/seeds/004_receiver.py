"""The article's receiver without a log: its own push consumer, and store().

    python examples/seeds/004_receiver.py 127.0.0.1:9876 OrderTopic

The article's bodies are serialized Java objects, these are JSON: {"orderNo": "A1", "cost": 20}. For bodies
written by ObjectOutputStream use javaobj.loads of the package javaobj-py3. onStart, onStop and the listener
are here because the article has them. A receiver with only deserialize does the same, see
004_receiver_wal.py.
"""

import json
import sys

from pyspark import SparkConf, SparkContext, StorageLevel
from pyspark.streaming import StreamingContext

from pyspark_rocketmq import RocketMQReceiver, RocketMQUtils
from pyspark_rocketmq.client import ConsumeResult, PushConsumer


class Order:
    def __init__(self, orderNo, cost):
        self.orderNo = orderNo
        self.cost = cost

    def __str__(self):
        return f"Order{{orderNo='{self.orderNo}', cost={self.cost}}}"


class OrderReceiver(RocketMQReceiver):
    def __init__(self, namesrvAddr, topic, group):
        super().__init__(namesrvAddr, topic, group, StorageLevel.MEMORY_AND_DISK_2)
        self.namesrvAddr = namesrvAddr
        self.topic = topic
        self.group = group
        self.consumer = None

    def onStart(self):
        self.consumer = PushConsumer(self.group, self.namesrvAddr)
        self.consumer.subscribe(self.topic, "*")
        self.consumer.start(self.consume)

    def consume(self, msgs):
        for msg in msgs:
            order = self.deserialize(msg.body)
            if order is not None:
                self.store(order)  # returns when Spark has stored it
        return ConsumeResult.SUCCESS

    def onStop(self):
        if self.consumer is not None:
            self.consumer.close()

    def deserialize(self, body):
        try:
            return Order(**json.loads(body))
        except (ValueError, TypeError):
            return None


namesrvAddr, topic = sys.argv[1:]

conf = SparkConf().setAppName("RocketMQReceiverExample").setMaster("local[2]")
ssc = StreamingContext(SparkContext(conf=conf), 5)

stream = RocketMQUtils.receiverStream(ssc, OrderReceiver(namesrvAddr, topic, "spark_group"))
stream.foreachRDD(lambda rdd: rdd.foreach(lambda order: print("Got order:", order)))

ssc.start()
ssc.awaitTermination()
