"""A direct stream that keeps its offsets in RocketMQ, with commitAsync after the output: at least once.

    python examples/dstream_commits.py 127.0.0.1:9876 orders results.db

Kill it and restart it, with changed code if you like: it continues from the group's offsets.
"""

from __future__ import annotations

import sqlite3
import sys
from datetime import datetime

from pyspark import SparkConf, SparkContext
from pyspark.streaming import StreamingContext

from pyspark_rocketmq import ConsumerStrategy, RocketMQUtils


def main(name_server: str, topic: str, database: str) -> None:
    """Stream until the process ends."""
    conf = SparkConf().setMaster("local[2,8]").setAppName("commits")
    ssc = StreamingContext(SparkContext(conf=conf), 0.5)
    stream = RocketMQUtils.createMQPullStream(
        ssc,
        "commits-example",
        topic,
        ConsumerStrategy.earliest,
        autoCommit=False,
        options={"nameServer": name_server, "pull.max.speed.per.partition": 500},
    )

    def save(time: datetime, rdd) -> None:
        messages = rdd.map(lambda m: (m.broker_name, m.queue_id, m.queue_offset, m.body.decode()))
        rows = [(time.isoformat(), *row) for row in messages.collect()]
        connection = sqlite3.connect(database)
        with connection:
            connection.execute("CREATE TABLE IF NOT EXISTS orders (batch, broker, queue, position, body)")
            connection.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", rows)
        connection.close()
        # The rows are stored. Commit only now.
        stream.commitAsync(rdd.offsetRanges, told)

    stream.foreachRDD(save)
    ssc.start()
    ssc.awaitTermination()


def told(offsets: dict, error: Exception | None) -> None:
    """Report the result of a commit."""
    if error is not None:
        print(f"{len(offsets)} offsets are not committed, they will be with the next batch: {error}")


if __name__ == "__main__":
    main(*sys.argv[1:])
