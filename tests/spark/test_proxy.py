"""Spark through a real proxy: batch, stream with its checkpoint, and sink."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.spark.conftest import Batches, Sender, same_messages
from tests.support.topics import create_topic, fresh_name
from tests.support.wait import eventually

from pyspark_rocketmq.client import Client
from pyspark_rocketmq.devcluster import DevCluster

pytestmark = pytest.mark.needs("cluster")


@pytest.fixture(scope="module")
def proxied() -> Iterator[DevCluster]:
    with DevCluster(brokers=2, proxies=1) as cluster:
        yield cluster


@pytest.fixture
def client(proxied: DevCluster) -> Iterator[Client]:
    with Client(proxied.proxy) as client:
        yield client


@pytest.fixture
def name(proxied: DevCluster, client: Client) -> str:
    name = fresh_name("proxied")
    create_topic(proxied, name, 2, 6)
    eventually(lambda: client.find_route(name) is not None or client.invalidate(name), 30, what="the route")
    return name


def test_batch_and_sink(spark, client, proxied, name):
    rows = spark.range(5_000).selectExpr("encode(string(id), 'UTF-8') AS body", "cast(id AS string) AS keys")
    rows.write.format("rocketmq").options(nameServer=proxied.proxy, topic=name).mode("append").save()
    read = spark.read.format("rocketmq").options(nameServer=proxied.proxy, topic=name).load()
    eventually(lambda: read.count() == 5_000, 30, what="all rows")
    assert read.select("keys").distinct().count() == 5_000


def test_a_stream_goes_on_after_a_restart(stream, client, proxied, name, group):
    send = Sender(client)
    options = {"nameServer": proxied.proxy, "startingOffsets": "earliest", "consumerGroup": group}
    first = send(name, 400)
    batches = Batches()
    assert stream(name, batches, **options).awaitTermination(120)
    same_messages(batches.all(), first)
    second = send(name, 200)
    assert stream(name, batches, **options).awaitTermination(120)
    same_messages(batches.all(), [*first, *second])
    queues = client.read_queues(name)
    eventually(lambda: client.committed_offsets(group, queues) == client.max_offsets(queues), 30)


def test_a_pattern_says_what_to_do(spark, proxied):
    reader = spark.read.format("rocketmq").options(nameServer=proxied.proxy, subscribePattern="orders.*")
    with pytest.raises(Exception, match="set the name servers' address"):
        reader.load().count()
