"""A DStream from your own consumer, with ``RocketMQUtils.queueStream``, if no ready-made stream fits.

    python examples/dstream_own_consumer.py 127.0.0.1:9876 orders

A thread in the driver consumes messages and puts them into a bounded queue. Each batch takes the queue's
content. All messages go through the driver, and this code must manage the offsets: it commits them after the
output, so messages may repeat after a crash (at least once). ``createMQPullStream`` needs none of this.
"""

from __future__ import annotations

import queue
import sys
import threading

from pyspark import SparkConf, SparkContext
from pyspark.streaming import StreamingContext

from pyspark_rocketmq import Message, MessageQueue, RocketMQUtils
from pyspark_rocketmq.client import PullConsumer, PullStatus

GROUP = "own-consumer-example"


def main(name_server: str, topic: str) -> None:
    """Stream until the process ends."""
    ssc = StreamingContext(SparkContext(conf=SparkConf().setMaster("local[2]").setAppName(GROUP)), 1)

    waiting: queue.Queue[Message] = queue.Queue(maxsize=10_000)  # if full, the consumer waits
    threading.Thread(target=consume, args=(name_server, topic, waiting), daemon=True).start()
    committer = PullConsumer(GROUP, name_server=name_server)

    def output(rdd) -> None:
        messages = rdd.collect()
        for message in messages:
            print(message.queue, message.queue_offset, message.body.decode())
        ends: dict[MessageQueue, int] = {}
        for message in messages:
            ends[message.queue] = max(ends.get(message.queue, 0), message.queue_offset + 1)
        for source, offset in ends.items():
            committer.update_consume_offset(source, offset)

    RocketMQUtils.queueStream(ssc, waiting).foreachRDD(output)
    ssc.start()
    ssc.awaitTermination()


def consume(name_server: str, topic: str, waiting: queue.Queue[Message]) -> None:
    """Pull the queues in turn, from the group's offsets on."""
    with PullConsumer(GROUP, name_server=name_server) as consumer:
        sources = consumer.fetch_subscribe_message_queues(topic)
        offsets = {source: consumer.fetch_consume_offset(source) for source in sources}
        positions = {s: consumer.min_offset(s) if o is None else o for s, o in offsets.items()}
        pause = threading.Event()
        while True:
            news = False
            for source in sources:
                result = consumer.pull(source, "*", positions[source], 32)
                for message in result.messages:
                    waiting.put(message)
                positions[source] = result.next_begin_offset
                news = news or result.status is PullStatus.FOUND
            if not news:
                pause.wait(0.2)


if __name__ == "__main__":
    main(*sys.argv[1:])
