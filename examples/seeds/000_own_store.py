"""Results and offsets in one transaction of your own data store, as rocketmq-spark's README sketches it.

Start it with the name server, the group, the topic and a database, kill it and restart it::

    python examples/seeds/000_own_store.py 127.0.0.1:9876 groupId topic results.db

`examples/dstream_own_store.py` is shorter: its ``transactional_output`` does the same.
"""

import sqlite3
import sys

from pyspark import SparkContext
from pyspark.streaming import StreamingContext

from pyspark_rocketmq import ConsumerStrategy, MessageQueue, RocketMqUtils

nameServer, groupId, topic, database = sys.argv[1:]


def connect():
    """Return a connection with explicit transactions."""
    connection = sqlite3.connect(database, isolation_level=None)
    connection.execute("CREATE TABLE IF NOT EXISTS results (body TEXT PRIMARY KEY, total INTEGER)")
    connection.execute(
        "CREATE TABLE IF NOT EXISTS offsets (topic TEXT, broker TEXT, queueId INTEGER, nextOffset INTEGER,"
        " PRIMARY KEY (topic, broker, queueId))"
    )
    return connection


# begin from the offsets committed to the database
selectOffsets = "SELECT topic, broker, queueId, nextOffset FROM offsets"
fromOffsets = {
    MessageQueue(topic, broker, queueId): offset
    for topic, broker, queueId, offset in connect().execute(selectOffsets)
}

streamingContext = StreamingContext(SparkContext(appName="rocketmq-spark"), 1)
specificStrategy = ConsumerStrategy.specificOffset(fromOffsets)
stream = RocketMqUtils.createMQPullStream(
    streamingContext,
    groupId,
    topic,
    specificStrategy,
    autoCommit=False,
    forceSpecial=True,
    failOnDataLoss=True,
    options={"nameServer": nameServer},
)


def output(rdd):
    """Store a batch's counts and the ends of its ranges in one transaction."""
    offsetRanges = rdd.offsetRanges
    results = rdd.map(lambda message: (message.body.decode(), 1)).reduceByKey(lambda a, b: a + b).collect()
    connection = connect()
    # begin your transaction
    connection.execute("BEGIN IMMEDIATE")
    try:
        # update results
        connection.executemany(
            "INSERT INTO results VALUES (?, ?)"
            " ON CONFLICT (body) DO UPDATE SET total = total + excluded.total",
            results,
        )
        for found in offsetRanges:
            queue = (found.topic, found.broker_name, found.queue_id)
            connection.execute(
                "INSERT OR IGNORE INTO offsets VALUES (?, ?, ?, ?)", (*queue, found.from_offset)
            )
            # update offsets where the end of existing offsets matches the beginning of this batch of offsets
            updated = connection.execute(
                "UPDATE offsets SET nextOffset = ?"
                " WHERE topic = ? AND broker = ? AND queueId = ? AND nextOffset = ?",
                (found.until_offset, *queue, found.from_offset),
            )
            # assert that offsets were updated correctly
            if updated.rowcount != 1:
                raise RuntimeError(f"{found} does not follow what is stored")
        # end your transaction
        connection.execute("COMMIT")
    finally:
        connection.close()  # without a commit nothing is stored


stream.foreachRDD(output)

streamingContext.start()
streamingContext.awaitTermination()
