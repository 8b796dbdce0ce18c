"""Queries with Spark's asynchronous progress: nothing is lost; what comes again comes in other batches."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from tests.spark.conftest import Sender
from tests.support.topics import TopicFactory
from tests.support.wait import eventually

from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.spark import SqlOffsetStore, transactional_writer

Read = Callable[..., DataFrame]

FAST = {
    "asyncProgressTrackingEnabled": "true",
    "asyncProgressTrackingCheckpointIntervalMs": "3600000",  # the first batch of a run is recorded, no other
    "_asyncProgressTrackingOverrideSinkSupportCheck": "true",
}


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    """A session of the test's own: in Spark 4.3 such queries stay in its `streams.active` after `stop()`."""
    return spark.newSession()


def start(mq: DevCluster, spark: SparkSession, topic: str, checkpoint: Path, write: object) -> StreamingQuery:
    """Start a query with asynchronous progress: ``write`` is a function of a batch, or a topic."""
    reader = spark.readStream.format("rocketmq").options(nameServer=mq.name_server, topic=topic)
    frame = reader.options(startingOffsets="earliest", columns="body").load()
    writer = frame.writeStream.options(checkpointLocation=str(checkpoint), **FAST)
    writer = writer.trigger(processingTime="0 seconds")
    if callable(write):
        return writer.foreachBatch(write).start()
    return writer.format("rocketmq").options(nameServer=mq.name_server, topic=write).start()


def test_batches_that_were_not_recorded_come_again_as_one(
    mq: DevCluster, session: SparkSession, topic: TopicFactory, send: Sender, tmp_path: Path
) -> None:
    name = topic(queues=2)
    first: dict[int, list[str]] = {}
    again: dict[int, list[str]] = {}

    def take(rows: DataFrame, batch: int, into: dict[int, list[str]]) -> None:
        if bodies := [bytes(row.body).decode() for row in rows.collect()]:
            if f"{name} 39" in bodies and into is first:
                raise RuntimeError("the power fails")
            into[batch] = bodies

    send(name, 10)
    query = start(mq, session, name, tmp_path, lambda rows, batch: take(rows, batch, first))
    for count in (20, 30):
        eventually(lambda count=count: sum(map(len, first.values())) == count - 10, what="a batch")
        send(name, 10)
    eventually(lambda: sum(map(len, first.values())) == 30, what="three batches")
    send(name, 10)
    with pytest.raises(StreamingQueryException, match="the power fails"):
        query.awaitTermination(60)

    query = start(mq, session, name, tmp_path, lambda rows, batch: take(rows, batch, again))
    try:
        eventually(lambda: bool(again), what="a batch")
    finally:
        query.stop()
    assert sorted(first[0] + again[1]) == sorted(f"{name} {number}" for number in range(40))
    assert len(first[1]) < len(again[1])


def test_a_store_that_needs_every_batch_says_so(
    mq: DevCluster, session: SparkSession, topic: TopicFactory, send: Sender, tmp_path: Path
) -> None:
    name = topic(queues=1)
    checkpoint = tmp_path / "checkpoint"
    with closing(SqlOffsetStore(f"sqlite:///{tmp_path}/store.db", job="copy")) as store:
        write = transactional_writer(checkpoint=str(checkpoint), store=store, write=lambda *_: None)
        query = start(mq, session, name, checkpoint, write)

        def has_failed() -> bool:
            send(name, 10)
            return query.awaitTermination(0.5)

        try:
            with pytest.raises(StreamingQueryException, match="without asyncProgressTrackingEnabled"):
                eventually(has_failed, what="the end of the query")
        finally:
            query.stop()


def test_a_topic_is_copied_at_least_once(
    mq: DevCluster,
    session: SparkSession,
    topic: TopicFactory,
    send: Sender,
    read: Callable[..., DataFrame],
    tmp_path: Path,
) -> None:
    name, copy = topic(queues=2), topic(queues=2)
    for count in (10, 20):
        send(name, 10)
        query = start(mq, session, name, tmp_path, copy)
        try:
            eventually(
                lambda count=count: len(set(map(str, read(copy, columns="body").collect()))) == count,
                what=f"{count} messages",
            )
        finally:
            query.stop()
