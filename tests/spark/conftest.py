"""Messages on a real broker, and what a query saw of them."""

from __future__ import annotations

import contextlib
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.streaming import StreamingContext
from tests.support.patient import patient_producer
from tests.support.topics import wait_for_messages
from tests.support.wait import eventually

from pyspark_rocketmq.client import Client, OutgoingMessage
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.spark.features import FEATURES
from pyspark_rocketmq.streams.api.output import StreamOutput
from pyspark_rocketmq.streams.run.runner import finish

INTERVAL_S = 0.4
"""Of the batches of DStreams."""


def cut(offsets: int) -> dict[str, int]:
    """Return the options that cut a backlog into micro-batches. Before Spark 4.2 it is one batch."""
    return {"maxOffsetsPerTrigger": offsets} if FEATURES.passes_positions else {}


def runs_after_a_failure() -> range:
    """Return the AvailableNow runs that read everything. Before Spark 4.2, the first repeats the batch."""
    return range(1 if FEATURES.passes_positions else 2)


Row = tuple[str, int, int, str]
"""brokerName, queueId, queueOffset, body."""


@dataclass
class Sender:
    """Sends numbered bodies round robin over a topic's queues and remembers where each one is."""

    client: Client
    sent: dict[str, list[Row]] = field(default_factory=dict)

    def __call__(self, topic: str, count: int, **parts: object) -> list[Row]:
        """Send ``count`` messages and return when the broker shows them all to readers."""
        producer, queues = patient_producer(self.client), self.client.write_queues(topic)
        rows = self.sent.setdefault(topic, [])
        first = len(rows)
        for index, queue in enumerate(queues):
            bodies = [f"{topic} {number}" for number in range(first + index, first + count, len(queues))]
            if not bodies:
                continue
            messages = [
                OutgoingMessage(topic, body.encode(), keys=f"k{body.rsplit(' ')[-1]}", **parts)
                for body in bodies
            ]
            result = producer.send_batch(messages, queue)
            rows += [
                (queue.broker_name, queue.queue_id, result.queue_offset + at, body)
                for at, body in enumerate(bodies)
            ]
        eventually(lambda: sum(self.ends(topic).values()) == len(rows), what=f"{len(rows)} messages to read")
        return rows[first:]

    def ends(self, topic: str) -> dict[MessageQueue, int]:
        return self.client.max_offsets(self.client.read_queues(topic))


@pytest.fixture
def send(client: Client) -> Sender:
    return Sender(client)


@pytest.fixture
def settled(client: Client) -> Callable[[str, int], None]:
    """``settled(topic, count)``: wait until readers see this number of messages in a topic."""
    return lambda topic, count: wait_for_messages(client, topic, count)


@pytest.fixture
def read(spark: SparkSession, mq: DevCluster) -> Callable[..., DataFrame]:
    """``read(topic, option=value, ...)``: a batch DataFrame."""

    def load(
        topic: str, *, source: str = "rocketmq", schema: str | None = None, **options: object
    ) -> DataFrame:
        reader = spark.read.format(source).options(nameServer=mq.name_server, topic=topic, **options)
        return (reader.schema(schema) if schema else reader).load()

    return load


@pytest.fixture
def contexts(spark) -> Iterator[Callable[[], StreamingContext]]:
    """Make StreamingContexts on the suite's SparkContext; each is stopped at the end."""
    made: list[StreamingContext] = []

    def make(get: Callable[[], StreamingContext] | None = None) -> StreamingContext:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "DStream is deprecated", FutureWarning)
            ssc = get() if get else StreamingContext(spark.sparkContext, INTERVAL_S)
        made.append(ssc)
        return ssc

    yield make
    for ssc in made:
        ssc.stop(stopSparkContext=False)


@pytest.fixture
def conf(spark) -> Iterator[Callable[..., None]]:
    """Set keys of the SparkContext's conf for a test."""
    before = dict(spark.sparkContext._conf.getAll())

    def set_all(settings: dict[str, str]) -> None:
        for key, value in settings.items():
            spark.sparkContext._conf.set(key, value)

    yield set_all
    for key in dict(spark.sparkContext._conf.getAll()).keys() - before.keys():
        spark.sparkContext._conf._jconf.remove(key)


@dataclass
class Batches:
    """A sink that takes each batch once: the rows by batch id, replaced when a batch is replayed."""

    rows: dict[int, list[Row]] = field(default_factory=dict)
    on_batch: Callable[[int], None] = lambda _: None

    def write(self, df: DataFrame, batch: int) -> None:
        rows = df.selectExpr("brokerName", "queueId", "queueOffset", "string(body)").collect()
        self.on_batch(batch)
        self.rows[batch] = [tuple(row) for row in rows]

    def all(self) -> list[Row]:
        return sorted(row for rows in self.rows.values() for row in rows)


@pytest.fixture
def stream(spark: SparkSession, mq: DevCluster, tmp_path: Path) -> Iterator[Callable[..., StreamingQuery]]:
    """``stream(topic, batches, option=value, ...)``: a query with the test's checkpoint.

    Without a topic the options say what is read; ``cluster`` is where, if not on the shared broker.
    """
    queries: list[StreamingQuery] = []

    def start(
        topic: str | None,
        batches: Batches,
        *,
        available_now: bool = True,
        source: str = "rocketmq",
        cluster: DevCluster | None = None,
        **options: object,
    ) -> StreamingQuery:
        given = {"nameServer": (cluster or mq).name_server} | ({"topic": topic} if topic else {}) | options
        df = spark.readStream.format(source).options(**given).load()
        trigger = {"availableNow": True} if available_now else {"processingTime": "0 seconds"}
        query = (
            df.writeStream.foreachBatch(batches.write)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(**trigger)
            .start()
        )
        queries.append(query)
        return query

    yield start
    for query in queries:
        query.stop()


def same_messages(found: list[Row], expected: list[Row]) -> bool:
    """Assert equal content, duplicates counted; the difference is in the failure."""
    missing, surplus = Counter(expected) - Counter(found), Counter(found) - Counter(expected)
    assert not missing, f"lost: {sorted(missing)[:10]}"
    assert not surplus, f"too much: {sorted(surplus)[:10]}"
    return True


@contextlib.contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Change a setting of the session for a while."""
    before = spark.conf.getAll
    spark.conf.set(name, value)
    try:
        yield
    finally:
        restore(spark, before)


def restore(spark: SparkSession, before: dict[str, str]) -> set[tuple[str, str]]:
    """Give the session the settings that it had. Return what was set meanwhile."""
    surplus, missing = spark.conf.getAll.items() - before.items(), before.items() - spark.conf.getAll.items()
    for name, _ in surplus:
        spark.conf.unset(name)
    for name, value in missing:
        spark.conf.set(name, value)
    return surplus | missing


@pytest.fixture(autouse=True)
def same_settings(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves settings in the session: which test comes next is chance."""
    if "spark" not in request.fixturenames:
        yield
        return
    spark = request.getfixturevalue("spark")
    before = spark.conf.getAll
    yield
    left = restore(spark, before)
    assert not left, f"this test leaves settings in the session: {sorted(left)}"


@pytest.fixture(autouse=True)
def no_query_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves a query running: another test in this session may count them."""
    if "spark" not in request.fixturenames:
        yield
        return
    spark = request.getfixturevalue("spark")
    before = {query.runId for query in spark.streams.active}
    yield
    left = [query for query in spark.streams.active if query.runId not in before]
    for query in left:
        query.stop()
    assert not left, f"this test leaves queries running: {[query.name or query.id for query in left]}"


@pytest.fixture
def running() -> Iterator[Callable[..., StreamingQuery]]:
    """Start pipelines, which are stopped after the test together with their queries of dead letters."""
    queries: list[StreamingQuery] = []

    def start(pipeline: StreamOutput, **trigger: Any) -> StreamingQuery:
        query = pipeline.asyncStart(**trigger)
        assert query is not None, "a source of this pipeline is bounded"
        queries.append(query)
        return query

    yield start
    for query in queries:
        query.stop()
        finish(query)


@pytest.fixture(scope="module")
def lean(spark: SparkSession) -> Iterator[None]:
    """Keep state in one partition."""
    with setting(spark, "spark.sql.shuffle.partitions", "1"):
        yield
