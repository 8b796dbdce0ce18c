"""Transactional writes that are committed by ranges, and reads of what is committed, in a real session."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.streaming import StreamingContext
from tests.spark.conftest import Sender, cut, runs_after_a_failure
from tests.support.page_code import python_blocks
from tests.support.topics import TopicFactory, create_topic
from tests.support.wait import eventually

from pyspark_rocketmq.client import Client, OffsetRange
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.dstream import RocketMQUtils
from pyspark_rocketmq.errors import OptionError

Read = Callable[..., DataFrame]


@pytest.fixture
def committed_topic(mq: DevCluster, topic: TopicFactory) -> Callable[[], str]:
    """Create a topic with its commit topic."""

    def create() -> str:
        name = topic(queues=2)
        create_topic(mq, f"{name}-commits", 1, 6)
        return name

    return create


COMMITTED = {"deliveryGuarantee": "transactional", "transactionVisibility": "committed"}


def bodies(read: Read, topic: str, **options: str) -> Counter[str]:
    return Counter(row.body for row in read(topic, columns="body", bodyAs="string", **options).collect())


def committed(read: Read, topic: str) -> Counter[str]:
    return bodies(read, topic, isolation="read_committed")


def test_a_batch_write_is_read_whole_and_once_for_each_job(
    spark: SparkSession, mq: DevCluster, committed_topic: Callable[[], str], read: Read
) -> None:
    name = committed_topic()
    rows = spark.range(0, 5_000, 1, 2).select(F.col("id").cast("string").alias("body"))

    def write(df: DataFrame, job: str) -> None:
        options = {"nameServer": mq.name_server, "topic": name, "jobId": job, **COMMITTED}
        df.write.format("rocketmq").mode("append").options(**options).save()

    failing = rows.select(F.expr("if(body = '4999', raise_error('a row is wrong'), body)").alias("body"))
    with pytest.raises(PySparkException, match="a row is wrong"):
        write(failing, "monday")
    assert committed(read, name) == Counter()
    for _ in range(2):  # the job comes again, as schedulers do
        write(rows, "monday")
        assert committed(read, name) == Counter(str(number) for number in range(5_000))
    assert bodies(read, name).total() > 5_000, "who reads without isolation sees the failed write, too"
    with Client(mq.name_server) as client:
        ends = client.max_offsets(client.read_queues(name))
    given = {"nameServer": mq.name_server, "isolation": "read_committed"}
    ranges = [OffsetRange(queue, 0, end) for queue, end in ends.items()]
    rdd = RocketMQUtils.createRDD(spark.sparkContext, "reader", ranges, given)
    assert rdd.count() == 5_000
    assert Counter(rdd.map(lambda message: message.body.decode()).collect()) == committed(read, name)
    batches = rdd.recordBatches(["body"], bodyAs="string")
    assert batches.map(lambda batch: batch.num_rows).sum() == 5_000
    with pytest.raises(OptionError, match=r"use spark\.read with isolation=read_committed"):
        rdd.toDF(spark)


def test_a_direct_stream_has_each_committed_batch_whole_and_its_group_continues(
    spark: SparkSession,
    mq: DevCluster,
    client: Client,
    group: str,
    committed_topic: Callable[[], str],
    contexts: Callable[[], StreamingContext],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pyspark_rocketmq.client.commits.holds.HOLD_MS", 3_000)  # for the write that fails
    name = committed_topic()

    def write(job: str, *, fails: bool = False) -> None:
        body = f"if({str(fails).lower()} and id = 999, raise_error('a row is wrong'), concat('{job}-', id))"
        options = {"nameServer": mq.name_server, "topic": name, "jobId": job, **COMMITTED}
        rows = spark.range(0, 1_000, 1, 2).select(F.expr(body).alias("body"))
        rows.write.format("rocketmq").mode("append").options(**options).save()

    def read(expected: set[str], job: str) -> None:
        """Run a stream until it has these rows, and the group their offsets."""
        ssc, batches = contexts(), list[list[str]]()
        given = {"nameServer": mq.name_server, "isolation": "read_committed"}
        stream = RocketMQUtils.createMQPullStream(ssc, group, name, options=given)
        stream.foreachRDD(
            lambda rdd: batches.append(rdd.map(lambda message: message.body.decode()).collect())
        )
        ssc.start()
        write(job)
        eventually(lambda: expected <= {row for batch in batches for row in batch}, 90, what="the batch")
        assert Counter(row for batch in batches for row in batch) == Counter(expected)
        for each in {row.partition("-")[0] for row in expected}:
            assert len([batch for batch in batches if any(row.startswith(f"{each}-") for row in batch)]) == 1
        queues = [*client.read_queues(name), *client.read_queues(f"{name}-commits")]
        ends = client.max_offsets(queues)
        eventually(lambda: client.committed_offsets(group, queues) == ends, 60, what="the group's offsets")
        ssc.stop(stopSparkContext=False)

    with pytest.raises(PySparkException, match="a row is wrong"):
        write("failing", fails=True)
    write("monday")
    days = {day: {f"{day}-{number}" for number in range(1_000)} for day in ("monday", "tuesday", "friday")}
    read(days["monday"] | days["tuesday"], "tuesday")
    read(days["friday"], "friday")


def test_a_stream_copies_committed_batches_also_after_a_crash(
    spark: SparkSession,
    mq: DevCluster,
    topic: TopicFactory,
    committed_topic: Callable[[], str],
    send: Sender,
    read: Read,
    tmp_path: Path,
) -> None:
    source, middle, last = topic(queues=2), committed_topic(), committed_topic()
    checkpoints = {source: tmp_path / "first", middle: tmp_path / "second"}

    def copy(begin: str, end: str, **options: str) -> None:
        for _ in runs_after_a_failure():
            run(begin, end, **options)

    def run(begin: str, end: str, **options: str) -> None:
        rows = (
            spark.readStream.format("rocketmq")
            .options(nameServer=mq.name_server, topic=begin, startingOffsets="earliest", columns="body")
            .options(**cut(100), **options)
            .load()
        )
        query = (
            rows.writeStream.format("rocketmq")
            .options(nameServer=mq.name_server, topic=end, **COMMITTED)
            .option("checkpointLocation", str(checkpoints[begin]))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(240)

    def crash(begin: str) -> None:
        """Remove the last batch from Spark's commit log: it was written, and Spark does not know."""
        commits = checkpoints[begin] / "commits"
        newest = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
        for path in (commits / str(newest), commits / f".{newest}.crc"):
            path.unlink()

    send(source, 250)
    copy(source, middle)
    crash(source)
    copy(middle, last, isolation="read_committed")
    send(source, 30)
    copy(source, middle)
    crash(middle)
    copy(middle, last, isolation="read_committed")
    sent = bodies(read, source)
    assert committed(read, middle) == committed(read, last) == sent
    shutil.rmtree(checkpoints[middle])
    copy(middle, last, isolation="read_committed")
    assert committed(read, last) == Counter({body: 2 * count for body, count in sent.items()}), "a new query"


def test_what_committed_ranges_md_shows(
    spark: SparkSession,
    mq: DevCluster,
    topic: TopicFactory,
    committed_topic: Callable[[], str],
    send: Sender,
    tmp_path: Path,
    capsys,
) -> None:
    events, orders = topic(queues=2), committed_topic()
    send(events, 20)
    for block in python_blocks("committed-ranges.md"):
        code = block.replace("127.0.0.1:9876", mq.name_server).replace("/tmp/committed", str(tmp_path))
        exec(code.replace('"events"', repr(events)).replace('"orders"', repr(orders)), {"spark": spark})
        assert capsys.readouterr().out.strip() == "20"
