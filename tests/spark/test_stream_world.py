"""Queries while the world around them changes: groups, queues, topics, brokers, time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as sf
from tests.spark.conftest import Batches, Sender, same_messages
from tests.support.patient import patient_producer
from tests.support.topics import fresh_name
from tests.support.wait import eventually

from pyspark_rocketmq.client import Admin, Client, OutgoingMessage
from pyspark_rocketmq.devcluster import DevCluster

RUNNING = {"available_now": False, "startingOffsets": "earliest", "routeRefreshMs": 100}


def finish(query) -> None:
    assert query.awaitTermination(240), "the query did not end"


@pytest.mark.since_spark("4.2")
def test_the_groups_lag_is_that_of_the_finished_batches(stream, send, client, topic, group):
    name = topic(queues=3)
    expected = send(name, 30)
    batches = Batches()

    def fail(batch: int) -> None:
        if batch == 1:
            raise RuntimeError("the sink is down")

    batches.on_batch = fail
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 12, "consumerGroup": group}
    with pytest.raises(StreamingQueryException, match="the sink is down"):
        finish(stream(name, batches, commitIntervalMs=0, **options))
    finished = {q: sum(row[1] == q.queue_id for row in batches.rows[0]) for q in client.read_queues(name)}
    assert sum(finished.values()) == 12
    for queue, offset in client.committed_offsets(group, finished).items():
        assert (offset or 0) <= finished[queue], "what is not finished is not committed"

    batches.on_batch = lambda _: None
    finish(stream(name, batches, **options))
    same_messages(batches.all(), expected)
    stats = Admin(client).consume_stats(group, name)
    assert {
        queue: seen.broker_offset - seen.consumer_offset for queue, seen in stats.items()
    } == dict.fromkeys(client.read_queues(name), 0)


def test_queues_that_grow_and_shrink_lose_nothing(stream, send, client, topic):
    name = topic(queues=2)
    batches = Batches()
    expected = list(send(name, 4))
    query = stream(name, batches, **RUNNING)
    eventually(lambda: len(batches.all()) == 4, 60, what="the first messages")
    admin = Admin(client)
    admin.alter_topic(name, queues=4)
    client.invalidate(name)
    expected += send(name, 8)
    assert {queue for _, queue, _, _ in expected} == {0, 1, 2, 3}
    eventually(lambda: len(batches.all()) == 12, 60, what="the messages of new queues")

    admin.alter_topic(name, queues=1, read_queues=1)
    client.invalidate(name)
    rows = send.sent.pop(name)  # what the sender waits for is only what can be read now
    send.sent[name] = [row for row in rows if row[1] == 0]
    more = send(name, 3)
    eventually(lambda: len(batches.all()) == 15, 60, what="the messages of the queue that stayed")
    same_messages(batches.all(), expected + more)
    assert query.isActive


def test_unread_messages_of_a_hidden_queue_are_told(stream, send, client, topic):
    name = topic(queues=2)
    expected = list(send(name, 4))
    batches = Batches()
    finish(stream(name, batches, startingOffsets="earliest"))
    expected += send(name, 4)
    Admin(client).alter_topic(name, queues=1, read_queues=1)
    with pytest.raises(StreamingQueryException, match="2 unread messages are in a queue that cannot be read"):
        finish(stream(name, batches, startingOffsets="earliest"))
    Admin(client).alter_topic(name, read_queues=2)
    finish(stream(name, batches, startingOffsets="earliest"))
    same_messages(batches.all(), expected)


def test_a_topic_that_was_created_anew_is_told(stream, send, client, topic):
    name = topic(queues=1)
    send(name, 9)
    finish(stream(name, Batches(), startingOffsets="earliest"))
    admin = Admin(client)
    admin.delete_topic(name)
    admin.create_topic(name, queues=1)
    client.invalidate(name)
    send.sent.pop(name)
    for count in (4, 20):  # shorter than before, then longer: offsets alone tell nothing any more
        send(name, count)
        with pytest.raises(StreamingQueryException, match="the topic was created again") as caught:
            finish(stream(name, Batches(), startingOffsets="earliest"))
        assert "OFFSET_WENT_BACK" in str(caught.value)


def test_topics_of_a_pattern_are_found_while_running(stream, send, client):
    prefix = fresh_name("pattern")
    admin = Admin(client)
    admin.create_topic(f"{prefix}-a", queues=1)
    batches = Batches()
    stream(None, batches, subscribePattern=f"{prefix}-.*", **RUNNING)
    expected = list(send(f"{prefix}-a", 3))
    eventually(lambda: len(batches.all()) == 3, 60, what="the first topic's messages")
    admin.create_topic(f"{prefix}-b", queues=1)
    expected += send(f"{prefix}-b", 5)
    eventually(lambda: len(batches.all()) == 8, 60, what="the new topic's messages")
    same_messages(batches.all(), expected)


@pytest.mark.since_spark("4.2")
def test_an_idle_topics_windows_close_and_none_is_late(spark, topic, client, mq, tmp_path):
    """Queues of different rates, small batches, and then silence: every message is counted in a window."""
    name = topic(queues=2)
    producer = patient_producer(client)
    for _ in range(12):
        for queue, count in zip(client.write_queues(name), (3, 1), strict=True):
            producer.send_batch([OutgoingMessage(name, b"x")] * count, queue)
    df = (
        spark.readStream.format("rocketmq")
        .options(nameServer=mq.name_server, topic=name, startingOffsets="earliest", maxOffsetsPerTrigger=9)
        .options(eventTimeAlignment="store", heartbeatInterval="1s", columns="topic,storeTimestamp")
        .load()
    )
    counts = (
        df.withWatermark("storeTimestamp", "0 seconds")
        .where("topic is not null or storeTimestamp is null")
        .groupBy(sf.window("storeTimestamp", "10 milliseconds"))
        .count()
    )
    table = fresh_name("windows").replace("-", "_")
    query = counts.writeStream.format("memory").queryName(table).option("checkpointLocation", str(tmp_path))
    running = query.start()
    try:
        total = f"select coalesce(sum(count), 0) from {table}"
        eventually(
            lambda: not running.isActive or spark.sql(total).first()[0] == 48,
            100,
            what="48 messages in closed windows",
        )
        assert running.exception() is None
        assert spark.sql(total).first()[0] == 48
    finally:
        running.stop()


@pytest.fixture
def pair() -> Iterator[DevCluster]:
    """Two brokers of the test's own: one is killed and started again."""
    with DevCluster(brokers=2) as cluster:
        yield cluster


@pytest.mark.needs("cluster")
def test_a_broker_that_dies_and_comes_back_loses_and_repeats_nothing(stream, pair):
    with Client(pair.name_server) as client:
        Admin(client).create_topic("orders", queues=1)
        send, batches = Sender(client), Batches()
        expected = list(send("orders", 6))
        query = stream("orders", batches, cluster=pair, **RUNNING)
        eventually(lambda: len(batches.all()) == 6, 60, what="messages of both brokers")
        broker = pair.broker("broker-b")
        rows = send.sent.pop("orders")
        broker.kill()
        client.invalidate("orders")
        eventually(
            lambda: len(Admin(client).topic_route("orders").brokers) == 1, 20, what="a route without it"
        )
        send.sent["orders"] = [row for row in rows if row[0] == "broker-a"]
        expected += send("orders", 4)
        eventually(lambda: len(batches.all()) == 10, 60, what="messages of the other broker")
        broker.start()
        eventually(lambda: len(Admin(client).topic_route("orders").brokers) == 2, 20, what="the old route")
        send.sent["orders"] = expected[:]
        expected += send("orders", 4)
        eventually(lambda: len(batches.all()) == 14, 60, what="messages of both brokers again")
        same_messages(batches.all(), expected)
        assert query.isActive
