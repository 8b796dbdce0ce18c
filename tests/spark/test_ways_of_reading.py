"""One behaviour suite over all ways of reading: same messages, same order in each queue, same fields.

Each reads a topic of two brokers with tags, properties, compressed bodies of each kind, batches, an empty
queue, gaps, half messages; the mock cluster has faults on top. A proxy shows the same as the name servers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.streaming import StreamingContext
from tests.spark.conftest import cut
from tests.support.reading_world import TAG, World, create_world, of_message, of_row
from tests.support.topics import create_topic, fresh_name
from tests.support.wait import eventually

from pyspark_rocketmq.client import Client, PullConsumer
from pyspark_rocketmq.client.read.queue_reader import DecodeOptions, read_batches, read_messages
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.dstream import RocketMQRDD, RocketMQUtils
from pyspark_rocketmq.model import MessageSelector, OffsetRange
from pyspark_rocketmq.record.decode.arrow import COLUMNS
from pyspark_rocketmq.remoting.codes import RequestCode
from pyspark_rocketmq.spark.features import FEATURES
from pyspark_rocketmq.testing import Cut, HangUp, Injection, MockCluster, Reorder, Short

Found = list[tuple[Any, ...]]


@pytest.fixture(scope="module")
def brokers() -> Iterator[DevCluster]:
    with DevCluster(brokers=2, proxies=1) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def real(brokers: DevCluster) -> World:
    """Two brokers, with transactions."""
    topic = fresh_name("ways-of-reading")
    create_topic(brokers, topic, queues=3, perm=6)
    with Client(brokers.name_server) as client:
        return create_world(client, brokers.name_server, topic, transactions=True)


@pytest.fixture(scope="module")
def proxied(brokers: DevCluster, real: World) -> World:
    """The same through a proxy."""
    return replace(real, name_server=brokers.proxy)


@pytest.fixture(scope="module")
def mock() -> Iterator[World]:
    """Two brokers, with gaps, and faults in every read."""
    with (
        MockCluster(brokers=("broker-a", "broker-b")) as cluster,
        Client(cluster.name_server) as client,
    ):
        cluster.create_topic("orders", 3, attributes={"cleanup.policy": "COMPACTION"})

        def make_trouble() -> list[Injection]:
            cluster.heal()
            pull = RequestCode.PULL_MESSAGE
            return [
                cluster.inject(fault, on=pull, times=times, after=after)
                for fault, times, after in (
                    *((Short(3), 4, 1), (Cut(300), 2, 2), (HangUp(), 2, 3)),
                    *((Reorder(3), 6, 0), (Cut(20), 2, 1)),
                )
            ]

        yield create_world(
            client,
            cluster.name_server,
            "orders",
            gap=lambda queue: cluster.gap(queue, 5 + 40 * queue.queue_id),
            make_trouble=make_trouble,
        )
        cluster.heal()


@pytest.fixture(
    params=[
        pytest.param("real", marks=pytest.mark.needs("cluster")),
        pytest.param("proxied", marks=pytest.mark.needs("cluster")),
        "mock",
    ]
)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    found: World = request.getfixturevalue(request.param)
    faults = found.make_trouble()
    yield found
    assert [fault for fault in faults if not fault.hits] == []


class Ways:
    """The ways of reading a whole topic, each by a method of its name."""

    def __init__(self, spark: SparkSession, world: World, group: str, directory: Path) -> None:
        self._spark = spark
        self._world = world
        self._group = group
        self._directory = directory

    # --- DataFrames ---

    def batch_source(self, tag: str | None) -> Found:
        return _rows(self._spark.read.format("rocketmq").options(**self._options(tag), columns="*").load())

    def available_now_stream(self, tag: str | None) -> Found:
        found: Found = []
        options = {"columns": "*", "startingOffsets": "earliest"} | cut(90)
        df = self._spark.readStream.format("rocketmq").options(**self._options(tag), **options).load()
        query = (
            df.writeStream.foreachBatch(lambda batch, _: found.extend(_rows(batch)))
            .option("checkpointLocation", str(self._directory))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(240)
        batches = len([p for p in query.recentProgress if p.numInputRows])
        assert batches > 1 if FEATURES.passes_positions else batches == 1
        return found

    # --- RDDs ---

    def rdd(self, tag: str | None) -> Found:
        return [of_message(message) for message in self._rdd(tag).collect()]

    def rdd_of_record_batches(self, tag: str | None) -> Found:
        return _batches(self._rdd(tag))

    def rdd_to_df(self, tag: str | None) -> Found:
        return _rows(self._rdd(tag).toDF(self._spark, columns="*"))

    # --- direct streams ---

    def direct_stream(self, tag: str | None) -> Found:
        return self._direct(tag, lambda rdd: [of_message(message) for message in rdd.collect()])

    def direct_stream_of_record_batches(self, tag: str | None) -> Found:
        return self._direct(tag, _batches)

    # --- without Spark ---

    def pull_consumer(self, tag: str | None) -> Found:
        found: Found = []
        with PullConsumer(self._group, name_server=self._world.name_server) as consumer:
            for queue in consumer.fetch_subscribe_message_queues(self._world.topic):
                offset, end = consumer.min_offset(queue), consumer.max_offset(queue)
                while offset < end:
                    result = consumer.pull(queue, tag or "*", offset)
                    found += map(of_message, result.messages)
                    offset = result.next_begin_offset
        return found

    def queue_reader(self, tag: str | None) -> Found:
        with Client(self._world.name_server) as client:
            return [of_message(one) for one in read_messages(client, self._ranges(), self._reading(tag))]

    def queue_reader_of_record_batches(self, tag: str | None) -> Found:
        with Client(self._world.name_server) as client:
            decode = DecodeOptions(columns=tuple(COLUMNS))
            batches = read_batches(client, self._ranges(), self._reading(tag), decode)
            return [of_row(row) for batch in batches for row in batch.to_pylist()]

    # --- what they share ---

    def _options(self, tag: str | None) -> dict[str, str]:
        tags = {} if tag is None else {"tags": tag}
        return {"nameServer": self._world.name_server, "topic": self._world.topic, **tags}

    def _reading(self, tag: str | None) -> ReadOptions:
        return ReadOptions(consumer_group=self._group, selector=MessageSelector.by_tag(tag or "*"))

    def _ranges(self) -> list[OffsetRange]:
        return [OffsetRange(queue, 0, end) for queue, end in self._world.ends.items()]

    def _rdd(self, tag: str | None) -> RocketMQRDD:
        given = {key: value for key, value in self._options(tag).items() if key != "topic"}
        return RocketMQUtils.createRDD(self._spark.sparkContext, self._group, self._ranges(), given)

    def _direct(self, tag: str | None, take: Callable[[RocketMQRDD], Found]) -> Found:
        found: Found = []
        batches: list[int] = []
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "DStream is deprecated", FutureWarning)
            ssc = StreamingContext(self._spark.sparkContext, 0.4)
        options = {key: value for key, value in self._options(tag).items() if key != "topic"}
        options["pull.max.speed.per.partition"] = "80"
        stream = RocketMQUtils.createMQPullStream(ssc, self._group, self._world.topic, options=options)

        def output(rdd: RocketMQRDD) -> None:
            found.extend(take(rdd))
            batches.append(rdd.offsetRanges.planned)

        stream.foreachRDD(output)
        ssc.start()
        try:
            total = sum(self._world.ends.values())
            eventually(lambda: sum(batches) == total, 60, what=f"batches of {total} offsets")
        finally:
            ssc.stop(stopSparkContext=False)
        assert len([planned for planned in batches if planned]) > 1, "not cut into batches"
        return found


def _rows(df: DataFrame) -> Found:
    return [of_row(row.asDict()) for row in df.collect()]


def _batches(rdd: RocketMQRDD) -> Found:
    return [of_row(row) for batch in rdd.recordBatches(["*"]).collect() for row in batch.to_pylist()]


ALL = [name for name in vars(Ways) if not name.startswith("_")]


@pytest.fixture
def ways(spark: SparkSession, world: World, group: str, tmp_path: Path) -> Ways:
    return Ways(spark, world, group, tmp_path / "checkpoint")


@pytest.mark.parametrize("way", ALL)
def test_reads_everything_once_in_order_with_every_field(ways: Ways, world: World, way: str) -> None:
    world.check(getattr(ways, way)(None))


@pytest.mark.parametrize("way", ALL)
def test_reads_what_a_tag_selects(ways: Ways, world: World, way: str) -> None:
    assert 0 < world.count(TAG) < world.count()
    world.check(getattr(ways, way)(TAG), tag=TAG)
