"""Queries with named sources: offset logs of version 2, and sources that are added and removed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path

import pytest
import sqlalchemy as sa
from pyspark.sql import DataFrame, SparkSession
from tests.spark.conftest import Sender
from tests.support.topics import TopicFactory

from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.spark import SqlOffsetStore, append_to, transactional_writer
from pyspark_rocketmq.tools.checkpoint import read_finished_offsets, seek

pytestmark = pytest.mark.since_spark("4.2")

SETTINGS = {
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    "spark.sql.streaming.offsetLog.formatVersion": "2",  # 4.2 needs it; 4.3 follows from the other one
}

Write = Callable[[DataFrame, int], None]


@pytest.fixture
def run(spark: SparkSession, mq: DevCluster, tmp_path: Path) -> Iterator[Callable[..., None]]:
    """``run(write, one=topic, two=topic)``: write what the sources with these names have, and end."""

    def source(name: str, topic: str) -> DataFrame:
        reader = spark.readStream.format("rocketmq").name(name)
        options = {"nameServer": mq.name_server, "topic": topic, "startingOffsets": "earliest"}
        return reader.options(**options).load().selectExpr("CAST(body AS STRING) body")

    def read(write: Write, **sources: str) -> None:
        rows = reduce(DataFrame.union, [source(name, topic) for name, topic in sources.items()])
        writer = rows.writeStream.foreachBatch(write).trigger(availableNow=True)
        query = writer.start(checkpointLocation=str(tmp_path / "checkpoint"))
        try:
            assert query.awaitTermination(300)
        finally:
            query.stop()

    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    yield read
    for name in SETTINGS:
        spark.conf.unset(name)


def bodies(rows: list[tuple[str, int, int, str]]) -> list[str]:
    return [body for *_, body in rows]


def test_sources_come_and_go_and_every_row_is_stored_once(
    run: Callable[..., None], topic: TopicFactory, send: Sender, tmp_path: Path
) -> None:
    url, checkpoint = f"sqlite:///{tmp_path / 'seen.db'}", tmp_path / "checkpoint"
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE seen (body TEXT)"))
    store = SqlOffsetStore(url, job="named")
    write = transactional_writer(checkpoint=str(checkpoint), store=store, write=append_to("seen"))

    def stored() -> list[str]:
        with engine.begin() as connection:
            return sorted(connection.execute(sa.text("SELECT body FROM seen")).scalars())

    one, two, three = (topic(queues=1) for _ in range(3))
    expected = bodies(send(one, 3)) + bodies(send(two, 3))
    run(write, one=one, two=two)
    assert stored() == sorted(expected)
    (first,) = (checkpoint / "offsets").glob("[0-9]*")
    assert first.read_text().startswith("v2\n")
    expected += bodies(send(one, 2)) + bodies(send(three, 2))
    run(write, three=three, one=one, two=two)
    assert stored() == sorted(expected), "after a source was added"
    expected += bodies(send(one, 2)) + bodies(send(three, 2))
    run(write, one=one, three=three)
    assert stored() == sorted(expected), "after a source was removed"
    expected += bodies(send(two, 2)) + bodies(send(one, 1))
    run(write, two=two, one=one)
    assert stored() == sorted(expected), "after one came back and one was removed"
    store.close()
    engine.dispose()


def test_the_offsets_of_a_named_source_are_read_and_moved(
    run: Callable[..., None], topic: TopicFactory, send: Sender, tmp_path: Path
) -> None:
    found: list[str] = []

    def collect(batch: DataFrame, _number: int) -> None:
        found.extend(row.body for row in batch.collect())

    one, two, checkpoint = topic(queues=1), topic(queues=1), tmp_path / "checkpoint"
    expected = bodies(send(one, 3)) + bodies(send(two, 4))
    run(collect, one=one, two=two)
    (queue,) = read_finished_offsets(checkpoint, source="two").offsets
    assert queue == MessageQueue(two, queue.broker_name, 0)
    assert read_finished_offsets(checkpoint, source="two").offsets == {queue: 4}
    seek(checkpoint, {queue: 6}, source="two")
    send(two, 2)  # skipped
    expected += bodies(send(two, 1)) + bodies(send(one, 1))
    run(collect, two=two, one=one)
    assert sorted(found) == sorted(expected)
