"""Receiver or direct: the same job with both. Each recovers from its checkpoint and loses no message.

    python examples/dstream_receivers.py receiver 127.0.0.1:9876 orders results.db /tmp/receiver
    python examples/dstream_receivers.py direct   127.0.0.1:9876 orders results.db /tmp/direct

The differences: receivers are members of the consumer group, use a core each, and write messages to a log
below the checkpoint before they acknowledge them. After a crash a message may come twice, and in another
batch than before. The direct stream has no receiver and no log: its batches are ranges of offsets, and a
repeated batch has the same messages.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable
from datetime import datetime

from pyspark import SparkConf, SparkContext
from pyspark.streaming import DStream, StreamingContext

from pyspark_rocketmq import ConsumerStrategy, RocketMQConfig, RocketMQUtils

MASTER = "local[4,8]"


def receiver(ssc: StreamingContext, name_server: str, topic: str) -> DStream:
    """Two receivers. Their blocks are in a write-ahead log before they are acknowledged to RocketMQ."""
    properties = {
        RocketMQConfig.NAME_SERVER_ADDR: name_server,
        RocketMQConfig.CONSUMER_GROUP: "receiver-example",
        RocketMQConfig.CONSUMER_TOPIC: topic,
        RocketMQConfig.CONSUMER_OFFSET_RESET_TO: RocketMQConfig.CONSUMER_OFFSET_EARLIEST,
        RocketMQConfig.CONSUMER_OFFSET_PERSIST_INTERVAL: 500,
    }
    return RocketMQUtils.createReliableInputDStream(ssc, properties, "MEMORY_AND_DISK", receivers=2)


def direct(ssc: StreamingContext, name_server: str, topic: str) -> DStream:
    """No receiver: each batch is a range of offsets per queue, read by the batch's tasks."""
    options = {"nameServer": name_server}
    return RocketMQUtils.createMQPullStream(
        ssc, "direct-example", topic, ConsumerStrategy.earliest, autoCommit=False, options=options
    )


def main(kind: str, name_server: str, topic: str, database: str, checkpoint: str) -> None:
    """Stream until the process ends."""
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--master {MASTER} pyspark-shell"

    def set_up() -> StreamingContext:
        """Build the stream. Called only if there is no checkpoint."""
        conf = SparkConf().setMaster(MASTER).setAppName("receivers")
        ssc = StreamingContext(SparkContext(conf=conf), 0.5)
        ssc.checkpoint(checkpoint)
        stream = {"receiver": receiver, "direct": direct}[kind](ssc, name_server, topic)
        stream.foreachRDD(save_to(database))
        return ssc

    ssc = StreamingContext.getOrCreate(checkpoint, set_up)
    ssc.start()
    ssc.awaitTermination()


def save_to(database: str) -> Callable[..., None]:
    """Return an output operation that counts how often each message arrived."""

    def save(time: datetime, rdd) -> None:
        messages = rdd.map(lambda m: (m.broker_name, m.queue_id, m.queue_offset, m.body.decode()))
        rows = [(time.isoformat(), *row) for row in messages.collect()]
        connection = sqlite3.connect(database)
        with connection:
            connection.execute("CREATE TABLE IF NOT EXISTS orders (batch, broker, queue, position, body)")
            connection.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", rows)
        connection.close()

    return save


if __name__ == "__main__":
    main(*sys.argv[1:])
