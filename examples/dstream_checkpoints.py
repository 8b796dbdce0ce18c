"""A direct stream that keeps its offsets in Spark's checkpoints: at least once, batches repeated exactly.

    python examples/dstream_checkpoints.py 127.0.0.1:9876 orders results.db /tmp/checkpoint

Kill it and restart it: it continues where it stopped. A repeated batch has the same time and the same
messages, so an output that replaces its earlier result of the batch is exactly once.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable
from datetime import datetime

from pyspark import SparkConf, SparkContext
from pyspark.streaming import StreamingContext

from pyspark_rocketmq import ConsumerStrategy, RocketMQUtils

MASTER = "local[2,8]"


def main(name_server: str, topic: str, database: str, checkpoint: str) -> None:
    """Stream until the process ends."""
    # Spark takes the master of a recovered job from how it is submitted now, not from the checkpoint.
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--master {MASTER} pyspark-shell"

    def set_up() -> StreamingContext:
        """Build the stream. Called only if there is no checkpoint."""
        ssc = StreamingContext(
            SparkContext(conf=SparkConf().setMaster(MASTER).setAppName("checkpoints")), 0.5
        )
        stream = RocketMQUtils.createMQPullStream(
            ssc,
            "checkpoints-example",
            topic,
            ConsumerStrategy.earliest,
            autoCommit=False,
            options={"nameServer": name_server, "pull.max.speed.per.partition": 500},
        )
        stream.foreachRDD(save_to(database))
        return ssc

    ssc = StreamingContext.getOrCreate(checkpoint, set_up)
    ssc.start()
    ssc.awaitTermination()


def save_to(database: str) -> Callable[..., None]:
    """Return an output operation. Spark stores it in the checkpoint, so it holds only a path."""

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
