"""Transactional writes from a real session into a real broker: a batch is seen whole, or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from tests.spark.conftest import Sender
from tests.support.topics import TopicFactory
from tests.support.wait import eventually

from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.spark import TransactionResolver, start_transactional
from pyspark_rocketmq.spark.write.transaction_log import TransactionLog

Read = Callable[..., DataFrame]


def bodies(read: Read, topic: str) -> Counter[str]:
    return Counter(row.body for row in read(topic, columns="body", bodyAs="string").collect())


def test_a_batch_write_to_two_topics_is_seen_whole_and_once_for_each_job(
    spark: SparkSession, mq: DevCluster, topic: TopicFactory, read: Read, tmp_path: Path
) -> None:
    names = topic(queues=3), topic(queues=1)
    destination = F.expr(f"if(id % 2 = 0, '{names[0]}', '{names[1]}')").alias("topic")
    rows = spark.range(0, 400, 1, 2).select(F.col("id").cast("string").alias("body"), destination)
    options = {
        "nameServer": mq.name_server,
        "deliveryGuarantee": "transactional",
        "transactionLog": f"file://{tmp_path}/log",
    }

    def write(df: DataFrame, job: str) -> None:
        df.write.format("rocketmq").mode("append").options(**options, jobId=job).save()

    failing = rows.withColumn("body", F.expr("if(body = '399', raise_error('a row is wrong'), body)"))
    with pytest.raises(PySparkException, match="a row is wrong"):
        write(failing, "monday")
    for _ in range(2):  # the job comes again, as schedulers do
        write(rows, "monday")
    for first, name in enumerate(names):
        expected = {str(number): 1 for number in range(first, 400, 2)}
        eventually(lambda name=name, expected=expected: bodies(read, name) == expected, what="every row once")
    assert TransactionLog(f"{tmp_path}/log").undone("monday") == ()
    with pytest.raises(PySparkException, match="jobId"):
        rows.write.format("rocketmq").mode("append").options(**options).save()


@pytest.mark.since_spark("4.2")
def test_a_stream_shows_whole_batches(
    spark: SparkSession, mq: DevCluster, topic: TopicFactory, send: Sender, read: Read, tmp_path: Path
) -> None:
    source, sink = topic(queues=2), topic(queues=2)
    send(source, 300)
    rows = (
        spark.readStream.format("rocketmq")
        .options(nameServer=mq.name_server, topic=source, startingOffsets="earliest", columns="body")
        .option("maxOffsetsPerTrigger", "100")
        .load()
    )
    writer = rows.writeStream.trigger(availableNow=True)
    with start_transactional(
        writer, nameServer=mq.name_server, topic=sink, checkpointLocation=str(tmp_path / "checkpoint")
    ) as running:
        running.query.awaitTermination(240)
        assert running.query.exception() is None
    sent = Counter(row.body for row in read(source, columns="body", bodyAs="string").collect())
    eventually(lambda: bodies(read, sink) == sent, what="every row once")
    batches = Counter(
        row.transaction
        for row in read(sink, columns="body,properties")
        .selectExpr("properties['transaction'] AS transaction")
        .collect()
    )
    assert sorted(batches) == [f"{running.query.id}/{number}" for number in range(len(batches))]
    assert len(batches) >= 3


def test_a_checkpoint_on_hadoops_default_file_system_needs_its_scheme(
    spark: SparkSession, mq: DevCluster, topic: TopicFactory, tmp_path: Path
) -> None:
    """Spark's checkpoint is on `fs.defaultFS`; the sink takes the same path for one of the local disk."""
    path, target = tmp_path / "mounted" / "checkpoint", tmp_path / "target"
    target.mkdir()
    settings = {
        "fs.defaultFS": "viewfs://cluster/",
        f"fs.viewfs.mounttable.cluster.link.{path.parent}": f"file://{target}",
    }
    rows = spark.readStream.format("rate").load().selectExpr("cast(value AS string) AS body")
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        query = (
            rows.writeStream.format("rocketmq")
            .options(nameServer=mq.name_server, topic=topic(queues=1), checkpointLocation=str(path))
            .option("deliveryGuarantee", "transactional")
            .start()
        )
        with pytest.raises(PySparkException, match="with its scheme"):
            query.awaitTermination(240)
    finally:
        for name in settings:
            spark.conf.unset(name)
    assert (target / "checkpoint" / "metadata").exists()
    assert not path.exists()


def test_a_stream_without_a_place_for_decisions_says_so(
    spark: SparkSession, mq: DevCluster, tmp_path: Path
) -> None:
    options = {"nameServer": mq.name_server, "topic": "orders", "deliveryGuarantee": "transactional"}
    with pytest.raises(OptionError, match="checkpointLocation"):
        TransactionResolver(**options)
    with pytest.raises(OptionError, match="deliveryGuarantee"):
        TransactionResolver(nameServer=mq.name_server, topic="orders", checkpointLocation="/tmp/x")
    rows = spark.readStream.format("rate").load().selectExpr("cast(value AS string) AS body")
    spark.conf.set(
        "spark.sql.streaming.checkpointLocation", str(tmp_path)
    )  # where a data source cannot see it
    try:
        query = rows.writeStream.format("rocketmq").options(**options).start()
        with pytest.raises(PySparkException, match="checkpointLocation"):
            query.awaitTermination(240)
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
