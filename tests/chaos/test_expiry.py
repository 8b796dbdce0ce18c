"""Messages that a real broker deletes from its disk before they are read."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from tests.support.patient import patient_producer
from tests.support.topics import create_topic
from tests.support.wait import eventually

from pyspark_rocketmq.client import Client, MessageQueue, OutgoingMessage
from pyspark_rocketmq.devcluster import DevCluster

pytestmark = pytest.mark.needs("cluster")

QUEUE = MessageQueue("expiring", "broker-a", 0)
READ, MESSAGES = 5, 90
A_FILE = 15
"""How many of the messages fill a file of the log: no more are in the last one, which stays."""


@pytest.mark.timeout(300)
def test_a_stream_meets_messages_that_expired_on_disk(
    forgetful: DevCluster, spark: SparkSession, tmp_path: Path
) -> None:
    create_topic(forgetful, QUEUE.topic, 1, 6)
    with Client(forgetful.name_server) as client:
        producer = patient_producer(client)
        for number in range(READ + MESSAGES):  # nothing that compresses: they shall fill files of the log
            producer.send(OutgoingMessage(QUEUE.topic, random.Random(number).randbytes(64 << 10)), QUEUE)
            if number == READ - 1:
                assert run(spark, forgetful, tmp_path) == list(range(READ))
        first = eventually(lambda: min_offset(client), 150, what="a deletion")
        with pytest.raises(StreamingQueryException) as caught:
            run(spark, forgetful, tmp_path)
        for part in ("cannot be read", f"the queue now begins at {first}", "failOnDataLoss=false"):
            assert part in str(caught.value)
        found = run(spark, forgetful, tmp_path, failOnDataLoss="false")
        assert min_offset(client) == first
    assert found == list(range(first, READ + MESSAGES))


def min_offset(client: Client) -> int:
    """Return where the queue begins, once every full file is gone."""
    (first,) = client.min_offsets([QUEUE]).values()
    return first if first >= READ + MESSAGES - A_FILE else 0


def run(spark: SparkSession, cluster: DevCluster, folder: Path, **options: str) -> list[int]:
    """Read what is new until the end; return the offsets."""
    found: list[int] = []

    def take(batch: DataFrame, _: int) -> None:
        found.extend(row.queueOffset for row in batch.select("queueOffset").collect())

    rows = (
        spark.readStream.format("rocketmq")
        .options(nameServer=cluster.name_server, topic=QUEUE.topic, startingOffsets="earliest", **options)
        .load()
    )
    query = (
        rows.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(240), "the query does not end"
    finally:
        query.stop()
    return sorted(found)
