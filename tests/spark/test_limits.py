"""What a trigger takes, and what a broker filters, in real queries."""

from __future__ import annotations

from collections import Counter

import pytest
from pyspark.errors import PySparkException
from tests.spark.conftest import Batches, same_messages
from tests.support.patient import patient_producer
from tests.support.settings import broker_settings
from tests.support.wait import eventually

from pyspark_rocketmq.client import OutgoingMessage

pytestmark = pytest.mark.since_spark("4.2")


def sizes(batches: Batches) -> list[int]:
    return [len(rows) for _, rows in sorted(batches.rows.items())]


def test_a_trigger_takes_at_most_so_many_messages(stream, send, topic):
    name, batches = topic(queues=3), Batches()
    sent = send(name, 50)
    assert stream(name, batches, startingOffsets="earliest", maxOffsetsPerTrigger=20).awaitTermination(240)
    same_messages(batches.all(), sent)
    assert sizes(batches) == [20, 20, 10]


def test_a_trigger_takes_at_most_so_many_bytes(stream, client, topic):
    name, batches = topic(queues=1), Batches()
    producer, (queue,) = patient_producer(client), client.write_queues(name)
    for _ in range(40):
        producer.send(OutgoingMessage(name, b"x" * 1_000), queue)
    eventually(lambda: client.max_offsets([queue])[queue] == 40, what="the messages")
    assert stream(name, batches, startingOffsets="earliest", maxBytesPerTrigger="12k").awaitTermination(240)
    assert sum(sizes(batches)) == 40
    assert all(5 <= size <= 12 for size in sizes(batches)[:-1]), sizes(batches)


def test_a_trigger_takes_each_queue_at_its_rate(stream, send, topic):
    name, batches = topic(queues=2), Batches()
    sent = send(name, 60)
    query = stream(name, batches, startingOffsets="earliest", maxRatePerQueue=10)
    assert query.awaitTermination(240)
    same_messages(batches.all(), sent)
    first = Counter(queue_id for _, queue_id, _, _ in batches.rows[min(batches.rows)])
    assert set(first) == {0, 1}
    assert max(first.values()) <= 10, "the first trigger counts as a second"
    assert len(batches.rows) >= 2, "the rest comes as time passes: in one trigger, if that takes seconds"


def test_sql_filters_in_batches_and_streams(mq, read, stream, client, topic):
    name, batches = topic(queues=2), Batches()
    with broker_settings(mq, enablePropertyFilter="true"):
        producer, queues = patient_producer(client), client.write_queues(name)
        for number in range(20):
            message = OutgoingMessage(name, f"{number}".encode(), properties={"amount": str(number)})
            producer.send(message, queues[number % 2])
        eventually(lambda: sum(client.max_offsets(queues).values()) == 20, what="the messages")
        wanted = sorted(map(str, range(15, 20)))
        found = read(name, sqlFilter="amount >= 15").selectExpr("string(body) AS body").collect()
        assert sorted(row.body for row in found) == wanted
        query = stream(name, batches, startingOffsets="earliest", sqlFilter="amount >= 15")
        assert query.awaitTermination(240)
        assert sorted(body for _, _, _, body in batches.all()) == wanted
        with pytest.raises(PySparkException, match="does not parse"):
            read(name, sqlFilter="amount >=").count()


def test_a_topic_of_a_thousand_queues(mq, stream, client, topic):
    name, batches = topic(queues=1_000), Batches()
    producer, queues = patient_producer(client), client.write_queues(name)
    assert len(queues) == 1_000
    for queue in queues[::100]:
        producer.send(OutgoingMessage(name, b"first"), queue)
    eventually(lambda: sum(client.max_offsets(queues).values()) == 10, what="the messages")
    assert stream(name, batches, startingOffsets="earliest").awaitTermination(240)
    assert [(queue_id, body) for _, queue_id, _, body in batches.all()] == [
        (queue.queue_id, "first") for queue in sorted(queues[::100])
    ]
    producer.send(OutgoingMessage(name, b"second"), queues[-1])
    eventually(lambda: client.max_offsets([queues[-1]])[queues[-1]] == 1, what="one more")
    assert stream(name, batches, startingOffsets="earliest").awaitTermination(240)
    assert batches.all()[-1] == ("broker-a", 999, 0, "second")
