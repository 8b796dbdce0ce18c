"""Transactional writes by a staging topic, which every consumer sees once and only if they are committed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from tests.spark.conftest import Sender
from tests.support.topics import TopicFactory, create_topic
from tests.support.wait import eventually

from pyspark_rocketmq.client import Client
from pyspark_rocketmq.devcluster import DevCluster

STAGED = {"deliveryGuarantee": "transactional", "transactionVisibility": "staged"}


@pytest.fixture
def staged_topic(mq: DevCluster, topic: TopicFactory) -> str:
    """Create a topic with its staging and commit topics."""
    name = topic(queues=2)
    create_topic(mq, f"{name}-staging", 2, 6)
    create_topic(mq, f"{name}-staging-commits", 1, 6)
    return name


def test_a_batch_write_is_there_once_for_each_job_and_not_if_it_fails(
    spark: SparkSession, mq: DevCluster, staged_topic: str, read: Callable[..., DataFrame]
) -> None:
    rows = spark.range(0, 5_000, 1, 2).select(
        F.col("id").cast("string").alias("body"),
        F.concat(F.lit("k"), "id").alias("keys"),
        F.create_map(F.lit("half"), (F.col("id") % 2).cast("string")).alias("properties"),
    )

    def write(df: DataFrame, job: str) -> None:
        options = {"nameServer": mq.name_server, "topic": staged_topic, "jobId": job, **STAGED}
        df.write.format("rocketmq").mode("append").options(**options).save()

    address, staging = mq.name_server, f"{staged_topic}-staging"

    def fail_when_others_are_stored(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.column("body")[0].as_py() != "0":
                with Client(address) as client:
                    eventually(lambda: sum(client.max_offsets(client.read_queues(staging)).values()))
                raise ValueError("a row is wrong")
            yield batch

    with pytest.raises(PySparkException, match="a row is wrong"):
        write(rows.mapInArrow(fail_when_others_are_stored, rows.schema), "monday")
    assert read(staged_topic).count() == 0
    for _ in range(2):  # the job comes again, as schedulers do
        write(rows, "monday")
        found = read(staged_topic, columns="body,keys,properties", bodyAs="string").collect()
        assert Counter((row.body, row.keys, row.properties["half"]) for row in found) == Counter(
            (str(number), f"k{number}", str(number % 2)) for number in range(5_000)
        )
    assert read(staging).count() > 5_000, "the failed write is there, and never appended"


def test_a_stream_whose_driver_failed_between_commit_and_append_goes_on(
    spark: SparkSession,
    mq: DevCluster,
    topic: TopicFactory,
    staged_topic: str,
    send: Sender,
    read: Callable[..., DataFrame],
    tmp_path: Path,
) -> None:
    source = topic(queues=2)
    expected = Counter(body for *_, body in send(source, 300))

    def copy(target: str) -> None:
        given = {"nameServer": mq.name_server, "topic": source, "startingOffsets": "earliest"}
        rows = spark.readStream.format("rocketmq").options(**given).load().selectExpr("body")
        names = {"stagingTopic": f"{staged_topic}-staging", "commitTopic": f"{staged_topic}-staging-commits"}
        options = {"nameServer": mq.name_server, "topic": target, "outageTimeout": "1s", **STAGED, **names}
        writer = rows.writeStream.format("rocketmq").options(**options).trigger(availableNow=True)
        query = writer.start(checkpointLocation=str(tmp_path / "checkpoint"))
        try:
            query.awaitTermination(240)
            assert not query.isActive
        finally:
            query.stop()

    with pytest.raises(PySparkException, match="does not exist"):
        copy(f"{staged_topic}-missing")
    copy(staged_topic)
    copy(staged_topic)
    found = read(staged_topic, columns="body", bodyAs="string").collect()
    assert Counter(row.body for row in found) == expected
