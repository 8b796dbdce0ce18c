"""Spark through a real proxy: batch, stream with its checkpoint, and sink."""

from __future__ import annotations

import pytest
from tests.spark.conftest import Batches, Sender, same_messages
from tests.support.patient import PATIENCE_MS
from tests.support.wait import eventually

pytestmark = pytest.mark.needs("cluster")


@pytest.fixture
def cluster(proxied):
    return proxied


def test_batch_and_sink(spark, proxied, proxied_topic):
    rows = spark.range(5_000).selectExpr("encode(string(id), 'UTF-8') AS body", "cast(id AS string) AS keys")
    place = {"nameServer": proxied.proxy, "topic": proxied_topic}
    rows.write.format("rocketmq").options(**place, sendTimeoutMs=PATIENCE_MS).mode("append").save()

    def keys():
        read = spark.read.format("rocketmq").options(**place).load()  # plans once
        return sorted(int(row["keys"]) for row in read.select("keys").collect())

    eventually(lambda: len(keys()) >= 5_000, 30, what="all rows")
    assert keys() == list(range(5_000))


def test_a_stream_goes_on_after_a_restart(stream, proxied, client, proxied_topic, group):
    send = Sender(client)
    options = {"nameServer": proxied.proxy, "startingOffsets": "earliest", "consumerGroup": group}
    first = send(proxied_topic, 400)
    batches = Batches()
    assert stream(proxied_topic, batches, **options).awaitTermination(120)
    same_messages(batches.all(), first)
    second = send(proxied_topic, 200)
    assert stream(proxied_topic, batches, **options).awaitTermination(120)
    same_messages(batches.all(), [*first, *second])
    queues = client.read_queues(proxied_topic)
    eventually(lambda: client.committed_offsets(group, queues) == client.max_offsets(queues), 30)


def test_a_pattern_says_what_to_do(spark, proxied):
    reader = spark.read.format("rocketmq").options(nameServer=proxied.proxy, subscribePattern="orders.*")
    with pytest.raises(Exception, match="set the name servers' address"):
        reader.load().count()
