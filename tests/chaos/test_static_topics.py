"""A static topic that is remapped again and again while it is written and read."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.support.static_topics import create_static_topic, remap
from tests.support.wait import eventually

from pyspark_rocketmq.client import (
    Client,
    MessageQueue,
    OffsetRange,
    OutgoingMessage,
    Producer,
    ProducerOptions,
)
from pyspark_rocketmq.client.read.queue_reader import read_messages
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.dstream import RocketMQUtils

TOPIC, GROUP = "moving", "moving-group"
REMAPS = ("broker-b", "broker-a") * (3 if int(os.environ.get("CHAOS_KILLS", "1")) >= 20 else 1)


class Writer:
    """Sends numbers to the queues in turn, each until it is acknowledged."""

    def __init__(self, client: Client, queues: tuple[MessageQueue, ...]) -> None:
        self._producer = Producer(client, options=ProducerOptions(retries=100))
        self._queues = queues
        self._stop = threading.Event()
        self.sent: list[bytes] = []

    @contextmanager
    def writing(self) -> Iterator[None]:
        thread = threading.Thread(target=self._write)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join(60)
        assert not thread.is_alive()

    def wait_for_more(self, messages: int) -> None:
        wanted = len(self.sent) + messages
        eventually(lambda: len(self.sent) >= wanted, 60, what=f"{messages} more messages")

    def _write(self) -> None:
        while not self._stop.wait(0.005):
            body = b"%d" % len(self.sent)
            self._producer.send(
                OutgoingMessage(TOPIC, body), self._queues[len(self.sent) % len(self._queues)]
            )
            self.sent.append(body)


Row = tuple[str, int, int, bytes]


def stored(client: Client, queues: tuple[MessageQueue, ...]) -> list[Row]:
    """Return what the brokers have."""
    ends = client.max_offsets(queues)
    ranges = [OffsetRange(queue, 0, ends[queue]) for queue in queues]
    found = read_messages(client, ranges, ReadOptions(consumer_group="moving-look"))
    return [(m.broker_name, m.queue_id, m.queue_offset, m.body) for m in found]


@pytest.mark.needs("cluster")
@pytest.mark.timeout(900)
def test_each_message_is_read_once_over_remaps(spark: SparkSession, tmp_path: Path) -> None:
    rows: list[Row] = []

    def take(batch: DataFrame, _: int) -> None:
        seen = batch.select("brokerName", "queueId", "queueOffset", "body").collect()
        rows.extend((row.brokerName, row.queueId, row.queueOffset, bytes(row.body)) for row in seen)

    with DevCluster(brokers=2) as cluster, Client(cluster.name_server) as client:
        queues = create_static_topic(cluster, TOPIC, 2, "broker-a")
        options = {"nameServer": cluster.name_server, "routeRefreshMs": "1000"}
        query = (
            spark.readStream.format("rocketmq")
            .options(**options, topic=TOPIC, startingOffsets="earliest")
            .options(consumerGroup=GROUP, commitIntervalMs="0")
            .load()
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="1 second")
            .start()
        )
        try:
            writer = Writer(client, queues)
            with writer.writing():
                eventually(lambda: rows or not query.isActive, 120, what="the first micro-batch")
                for broker in REMAPS:
                    writer.wait_for_more(100)
                    before = client.max_offsets(queues)
                    ranges = [OffsetRange(queue, 0, before[queue]) for queue in queues]
                    planned = RocketMQUtils.createRDD(spark.sparkContext, "moving-rdd", ranges, options)
                    remap(cluster, TOPIC, broker)
                    found = {(m.queue_id, m.queue_offset) for m in planned.collect()}
                    assert found == {
                        (m[1], m[2]) for m in stored(client, queues) if m[2] < before[queues[m[1]]]
                    }
                writer.wait_for_more(100)
            expected = sorted(stored(client, queues))
            eventually(lambda: len(rows) >= len(expected) or not query.isActive, 120, what="every message")
            assert query.exception() is None
            assert sorted(rows) == expected
            assert {row[3] for row in expected} == set(writer.sent)
            in_order = {
                queue.queue_id: [row[2] for row in rows if row[1] == queue.queue_id] for queue in queues
            }
            assert all(offsets == sorted(offsets) for offsets in in_order.values())
            ends = client.max_offsets(queues)
            eventually(lambda: client.committed_offsets(GROUP, queues) == ends, 60, what="the last commit")
        finally:
            query.stop()
