"""`drop_repeats` over a real Spark, and brokers whose clock the test sets."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from tests.support.clocks import WrongClock
from tests.support.deduplication import Deduplication
from tests.support.wait import PATIENCE

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import OutgoingMessage
from pyspark_rocketmq.spark import drop_repeats
from pyspark_rocketmq.testing import MockCluster

HOUR_S = 3_600
TIMEOUT_S = 120


class Orders:
    """A topic with two queues, and a query that reads it, run after run, from one checkpoint."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.clock = WrongClock()
        self.mq = MockCluster({"orders": 2, "refunds": 1}, clock=self.clock)
        self.read: Counter[str] = Counter()
        self._spark, self._folder = spark, folder

    def send(
        self, queue: int, rows: range, *, hours_ago: float, topic: str = "orders", ids: bool = True
    ) -> None:
        self.clock.ahead_s = -hours_ago * HOUR_S
        for row in rows:
            properties = {"writeId": f"id {row}"} if ids else {}
            message = OutgoingMessage(topic, b"row %d" % row, properties=properties)
            self.mq.send(message, self.mq.queue(topic, queue))

    def stream(self, **options: object) -> DataFrame:
        given = {"topic": "orders", "eventTimeAlignment": "store", "includeAlignedTimestamp": True} | options
        return (
            self._spark.readStream.format("rocketmq")
            .options(nameServer=self.mq.name_server, startingOffsets="earliest", bodyAs="string")
            .options(includeProperties=True, **{k: v for k, v in given.items() if v is not None})
            .load()
        )

    def run(self, **options: object) -> None:
        """Read what is there, as a query that is started again."""
        query = (
            drop_repeats(self.stream(**options), within="1 hour")
            .writeStream.foreachBatch(self._take)
            .option("checkpointLocation", str(self._folder))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(TIMEOUT_S * PATIENCE), "reading does not end"
        finally:
            query.stop()

    def _take(self, batch: DataFrame, _: int) -> None:
        self.read.update(row.body for row in batch.select("body").collect())


@pytest.fixture
def orders(spark: SparkSession, tmp_path: Path) -> Iterator[Orders]:
    topic = Orders(spark, tmp_path / "checkpoint")
    with topic.mq:
        yield topic


def bodies(*rows: range) -> Counter[str]:
    return Counter(f"row {row}" for some in rows for row in some)


@pytest.mark.since_spark("4.2")
def test_queues_that_are_hours_apart_lose_nothing(orders: Orders) -> None:
    orders.send(0, range(1000), hours_ago=3)
    orders.send(1, range(1000, 2000), hours_ago=1)
    orders.send(1, range(1000, 1500), hours_ago=0.9)  # a batch that was repeated
    orders.run(maxOffsetsPerTrigger=600)
    assert orders.read == bodies(range(2000))


@pytest.mark.since_spark("4.2")
def test_a_stream_that_rests_for_longer_than_within_drops_the_repeats_of_its_last_batch(
    orders: Orders,
) -> None:
    orders.send(0, range(100), hours_ago=5)
    orders.run()
    orders.send(1, range(50, 150), hours_ago=4.5)
    orders.send(0, range(200, 300), hours_ago=0)
    orders.run(maxOffsetsPerTrigger=40)
    assert orders.read == bodies(range(150), range(200, 300))


def test_what_has_no_write_id_or_another_topic_is_no_repeat(orders: Orders) -> None:
    for queue in range(2):
        orders.send(queue, range(3), hours_ago=0, ids=False)
    orders.send(0, range(10, 13), hours_ago=0)
    orders.send(0, range(10, 13), hours_ago=0, topic="refunds")
    expected = bodies(range(3), range(3), range(10, 13), range(10, 13))
    orders.run(topic="orders;refunds")
    assert orders.read == expected
    batch = orders._spark.read.format("rocketmq").options(
        nameServer=orders.mq.name_server, topic="orders;refunds", bodyAs="string", includeProperties=True
    )
    assert Counter(row.body for row in drop_repeats(batch.load()).collect()) == expected


def test_what_is_missing_is_said(orders: Orders) -> None:
    with pytest.raises(OptionError, match=r"alignedTimestamp.*eventTimeAlignment=store"):
        drop_repeats(orders.stream(includeAlignedTimestamp=None), within="1 hour")
    with pytest.raises(OptionError, match="within"):
        drop_repeats(orders.stream())
    with pytest.raises(OptionError, match="within"):
        drop_repeats(orders.stream(), within="0 seconds")
    with pytest.raises(Exception, match="alignedTimestamp needs eventTimeAlignment=store"):
        orders.run(eventTimeAlignment=None)


def test_the_model_of_sparks_operator_is_right(spark: SparkSession, tmp_path: Path) -> None:
    """The property tests stand on this model."""
    chance = random.Random(19)
    model, expected, aligned_s = Deduplication(10_000), Counter[tuple[str, int]](), 1_000
    folder = tmp_path / "batches"
    folder.mkdir()
    for number in range(40):
        aligned_s += chance.choice([0, 1, 4, 9, 10, 11, 25])
        rows = [(f"id {chance.randrange(5)}", place) for place in range(chance.randrange(1, 4))]
        passed = model.batch([(write_id, aligned_s * 1000) for write_id, _ in rows])
        expected.update((rows[place][0], number * 100 + place) for place in passed)
        file = folder / f"{number}.json"
        lines = [
            {"id": write_id, "at": aligned_s, "offset": number * 100 + place} for write_id, place in rows
        ]
        file.write_text("\n".join(map(json.dumps, lines)))
        os.utime(file, (number, number))
    files = spark.readStream.schema("id string, at long, offset long").option("maxFilesPerTrigger", 1)
    rows_read = files.json(str(folder)).select(
        F.lit("t").alias("topic"),
        F.lit("b").alias("brokerName"),
        F.lit(0).alias("queueId"),
        F.col("offset").alias("queueOffset"),
        F.create_map(F.lit("writeId"), "id").alias("properties"),
        F.timestamp_seconds("at").alias("storeTimestamp"),
        F.timestamp_seconds("at").alias("alignedTimestamp"),
    )
    found: list[Row] = []
    query = (
        drop_repeats(rows_read, within="10 seconds")
        .writeStream.foreachBatch(lambda batch, _: found.extend(batch.collect()))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(TIMEOUT_S * PATIENCE)
    assert Counter((row.properties["writeId"], row.queueOffset) for row in found) == expected
