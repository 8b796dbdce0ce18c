"""A direct stream that stores its offsets and its results in one transaction: exactly once.

    python examples/dstream_own_store.py 127.0.0.1:9876 orders sqlite:///results.db
    python examples/dstream_own_store.py 127.0.0.1:9876 orders postgresql+psycopg://user@host/database

Needs the extra ``sql``. Kill it and restart it, with changed code if you like: the sums stay correct. It uses
no checkpoint and commits nothing to RocketMQ.
"""

from __future__ import annotations

import sys

import sqlalchemy as sa
from pyspark import SparkConf, SparkContext
from pyspark.streaming import StreamingContext

from pyspark_rocketmq import ConsumerStrategy, RocketMQUtils
from pyspark_rocketmq.dstream import RocketMQRDD, transactional_output
from pyspark_rocketmq.spark import SqlOffsetStore

TABLES = (
    "CREATE TABLE IF NOT EXISTS orders (broker VARCHAR(99), queue INT, position BIGINT, body VARCHAR(999))",
    "CREATE TABLE IF NOT EXISTS totals (queue INT PRIMARY KEY, orders BIGINT)",
)


def main(name_server: str, topic: str, url: str) -> None:
    """Stream until the process ends."""
    store = SqlOffsetStore(url, job="own-store-example")
    with store.transaction() as transaction:
        for statement in TABLES:
            transaction.handle.execute(sa.text(statement))

    conf = SparkConf().setMaster("local[2,8]").setAppName("own-store")
    ssc = StreamingContext(SparkContext(conf=conf), 0.5)
    stream = RocketMQUtils.createMQPullStream(
        ssc,
        "own-store-example",
        topic,
        ConsumerStrategy.specificOffset(store.offsets()),
        autoCommit=False,
        forceSpecial=True,
        options={"nameServer": name_server, "pull.max.speed.per.partition": 500},
    )
    stream.foreachRDD(transactional_output(store, write))
    ssc.start()
    ssc.awaitTermination()


def write(connection: sa.Connection, rdd: RocketMQRDD) -> None:
    """Write a batch's rows and add its part of a sum, which must not be added twice."""
    found = rdd.map(lambda m: (m.broker_name, m.queue_id, m.queue_offset, m.body.decode())).collect()
    rows = [dict(zip(("broker", "queue", "position", "body"), row, strict=True)) for row in found]
    connection.execute(sa.text("INSERT INTO orders VALUES (:broker, :queue, :position, :body)"), rows)
    for offsets in rdd.offsetRanges:
        if len(offsets) == 0:
            continue
        part = {"queue": offsets.queue_id, "orders": len(offsets)}
        connection.execute(
            sa.text(
                "INSERT INTO totals VALUES (:queue, :orders) "
                "ON CONFLICT (queue) DO UPDATE SET orders = totals.orders + excluded.orders"
            ),
            part,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
