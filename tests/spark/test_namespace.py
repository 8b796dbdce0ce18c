"""Queries within a namespace: other names on the servers, the user's own everywhere else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.support.patient import PATIENCE_MS, patient_producer
from tests.support.topics import fresh_name
from tests.support.wait import eventually

from pyspark_rocketmq.client import Admin, Client, MessageQueue, OutgoingMessage
from pyspark_rocketmq.options import ClientOptions, parse_options
from pyspark_rocketmq.spark.features import FEATURES


@pytest.fixture
def place(mq) -> dict[str, str]:
    return {"nameServer": mq.name_server, "namespace": fresh_name("ns").replace("-", "")}


@pytest.fixture
def inside(place: dict[str, str]) -> Iterator[Client]:
    with Client(parse_options(ClientOptions, place, environ={})) as client:
        Admin(client).create_topic("orders", queues=1)
        (queue,) = client.read_queues("orders")
        patient_producer(client).send_batch(
            [OutgoingMessage("orders", b"%d" % n, tags="a") for n in range(5)], queue
        )
        eventually(lambda: client.max_offsets([queue]) == {queue: 5}, what="five messages")
        yield client


def test_batches_streams_groups_and_the_sink(
    spark: SparkSession, client: Client, inside: Client, place: dict[str, str], tmp_path: Path
) -> None:
    batch = spark.read.format("rocketmq").options(**place, topic="orders", tags="a").load()
    assert [(row.topic, row.queueOffset) for row in batch.collect()] == [("orders", n) for n in range(5)]

    def run() -> None:
        query = (
            spark.readStream.format("rocketmq")
            .options(**place, topic="orders", consumerGroup="report", startingOffsets="earliest")
            .load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "table"))
        )
        assert query.awaitTermination(240)

    run()
    batch.where("queueOffset < 2").select("body").write.format("rocketmq").options(
        **place, topic="orders", sendTimeoutMs=PATIENCE_MS
    ).mode("append").save()
    queue = MessageQueue("orders", "broker-a", 0)
    eventually(lambda: inside.max_offsets([queue]) == {queue: 7}, what="two copies")
    run()
    table = spark.read.parquet(str(tmp_path / "table"))
    assert sorted(row.queueOffset for row in table.where("topic = 'orders'").collect()) == list(range(7))

    on_server = MessageQueue(f"{place['namespace']}%orders", "broker-a", 0)
    committed = client.committed_offsets(f"{place['namespace']}%report", [on_server])
    assert committed == {on_server: 7 if FEATURES.passes_positions else 5}  # else when the next run begins
    assert client.committed_offsets("report", [on_server]) == {on_server: None}
