"""Messages that do not decode: what `onCorrupt` makes of them on a real broker, however they are read."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.errors import PySparkException
from tests.spark.conftest import Batches
from tests.support.clocks import WrongClock
from tests.support.patient import patient_producer
from tests.support.wait import eventually

from pyspark_rocketmq import RocketMQUtils
from pyspark_rocketmq.client import Client, OutgoingMessage, SendPipeline, encode_one
from pyspark_rocketmq.model import OffsetRange

NANOSECONDS = 1_700_000_000_000_000_000
"""Taken for milliseconds by a producer."""


@pytest.fixture
def odd(mq, client, topic):
    """A topic with one queue: sound, unknown compression, born in nanoseconds, sound."""
    name = topic(queues=1)
    (queue,) = client.write_queues(name)
    producer = patient_producer(client)
    with SendPipeline(producer) as pipeline, Client(mq.name_server) as strange:
        outcomes = [*pipeline.submit(encode_one(OutgoingMessage(name, b"0"), producer.ids), queue)]
        outcomes += pipeline.flush()  # sends in flight together may be stored in any order
        unknown = replace(encode_one(OutgoingMessage(name, b"1"), producer.ids), sys_flag=0x401)
        outcomes += [*pipeline.submit(unknown, queue), *pipeline.flush()]
        assert [outcome.error for outcome in outcomes] == [None, None]
        in_nanoseconds = patient_producer(strange)
        strange.clock = WrongClock(NANOSECONDS / 1000)  # a producer that mistakes the unit
        in_nanoseconds.send(OutgoingMessage(name, b"2"), queue)
        producer.send(OutgoingMessage(name, b"3"), queue)
    eventually(lambda: client.max_offsets([queue])[queue] == 4, what="four messages to read")
    return queue


def rows(df):
    # A time of that kind is beyond Python's, too: only whether it is null is compared.
    found = df.selectExpr("queueOffset", "body", "bornTimestamp is null").orderBy("queueOffset").collect()
    return [tuple(row) for row in found]


NULLS = [(0, b"0", False), (1, None, False), (2, b"2", True), (3, b"3", False)]
SKIPPED = [(0, b"0", False), (3, b"3", False)]


def test_a_batch_fails_or_has_nulls_or_leaves_them_out(read, odd):
    with pytest.raises(PySparkException, match="compression type 4"):
        rows(read(odd.topic))
    assert rows(read(odd.topic, onCorrupt="null")) == NULLS
    assert rows(read(odd.topic, onCorrupt="skip", checkCrc="true")) == SKIPPED


def test_a_stream_goes_on_after_them(stream, odd):
    batches = Batches()
    query = stream(odd.topic, batches, startingOffsets="earliest", onCorrupt="skip")
    assert query.awaitTermination(240)
    assert query.exception() is None
    assert [row[2] for row in batches.all()] == [0, 3]


def test_objects_of_an_rdd_are_skipped(spark, mq, odd):
    given = {"nameServer": mq.name_server, "onCorrupt": "skip"}
    ranges = [OffsetRange(odd, 0, 4)]
    rdd = RocketMQUtils.createRDD(spark.sparkContext, "odd", ranges, given)
    # An object's born time is a number: nothing of it is lost.
    assert [m.queue_offset for m in rdd.collect()] == [0, 2, 3]
    assert [batch.column("queueOffset").to_pylist() for batch in rdd.recordBatches().collect()] == [[0, 3]]
