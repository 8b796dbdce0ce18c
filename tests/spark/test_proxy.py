"""Spark through a real proxy: batch, stream with its checkpoint, and sink."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from tests.spark.conftest import Batches, Sender, same_messages
from tests.support.patient import PATIENCE_MS
from tests.support.topics import create_topic
from tests.support.wait import eventually

pytestmark = pytest.mark.needs("cluster")


@pytest.fixture
def cluster(proxied):
    return proxied


def test_batch_and_sink(spark, proxied, proxied_topic):
    """At least once: on a busy machine, an answer may not come in time, and its rows are sent again."""
    rows = spark.range(5_000).selectExpr("encode(string(id), 'UTF-8') AS body", "cast(id AS string) AS keys")
    place = {"nameServer": proxied.proxy, "topic": proxied_topic}
    rows.write.format("rocketmq").options(**place, sendTimeoutMs=PATIENCE_MS).mode("append").save()

    def keys():
        read = spark.read.format("rocketmq").options(**place).load()  # plans once
        return {int(row["keys"]) for row in read.select("keys").collect()}

    eventually(lambda: keys() == set(range(5_000)), 30, what="all rows")


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


@pytest.mark.parametrize("visibility", ["committed", "staged"])
def test_transactions_that_need_no_half_messages(spark, proxied, proxied_topic, stream, visibility):
    """A failed write, the same one again, and its repetition; then the next job, and a stream of it all."""
    extra = {"committed": {"-commits": 1}, "staged": {"-staging": 2, "-staging-commits": 1}}[visibility]
    for suffix, queues in extra.items():
        create_topic(proxied, f"{proxied_topic}{suffix}", queues, 6, ["broker-a"])
    place = {"nameServer": proxied.proxy, "topic": proxied_topic}
    isolation = {"isolation": "read_committed"} if visibility == "committed" else {}
    guarantee = {"deliveryGuarantee": "transactional", "transactionVisibility": visibility}

    def write(job, first, *, fails=False):
        body = f"if({str(fails).lower()} and id = {first + 999}, raise_error('a row is wrong'), string(id))"
        rows = spark.range(first, first + 1_000, 1, 2).selectExpr(f"{body} AS body")
        rows.write.format("rocketmq").mode("append").options(**place, **guarantee, jobId=job).save()

    def read():
        rows = spark.read.format("rocketmq").options(**place, **isolation).load()
        return sorted(int(row.body) for row in rows.selectExpr("string(body) body").collect())

    with pytest.raises(PySparkException, match="a row is wrong"):
        write("monday", 0, fails=True)
    assert read() == []
    for _ in range(2):  # the job comes again, as schedulers do
        write("monday", 0)
        assert read() == list(range(1_000))
    batches = Batches()
    for days in (1, 2):
        if days == 2:
            write("tuesday", 1_000)
        options = {"nameServer": proxied.proxy, "startingOffsets": "earliest", **isolation}
        assert stream(proxied_topic, batches, **options).awaitTermination(120)
        assert sorted(int(body) for *_, body in batches.all()) == list(range(days * 1_000))
