"""Writes from a real session into a real broker, read back by the source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from tests.spark.conftest import Sender
from tests.support.patient import PATIENCE_MS
from tests.support.topics import TopicFactory, fresh_name

from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.spark import (
    drop_repeats,
    identical_rows_together,
    json_messages,
    key_value_messages,
    ordered_by,
    with_topic,
)

Read = Callable[..., DataFrame]
Write = Callable[..., None]
Settled = Callable[[str, int], None]


@pytest.fixture
def write(mq: DevCluster) -> Write:
    """``write(df, topic=..., option=value)``: a batch write."""

    def save(df: DataFrame, *, source: str = "rocketmq", **options: object) -> None:
        options = {"nameServer": mq.name_server, "sendTimeoutMs": PATIENCE_MS} | options
        df.write.format(source).mode("append").options(**options).save()

    return save


def test_every_column_of_a_batch_write_reads_back(
    spark: SparkSession, topic: TopicFactory, write: Write, read: Read, settled: Settled
) -> None:
    name = topic(queues=3)
    rows = spark.range(0, 1_000, 1, 2).selectExpr(
        "concat('body ', id) AS body",
        "if(id % 2 = 0, 'even', null) AS tags",
        "array(concat('k', id), 'all') AS keys",
        "map('n', cast(id AS string)) AS properties",
        "cast(id % 5 AS string) AS shardingKey",
        "cast(id AS int) AS flag",
    )
    write(rows, topic=name)
    settled(name, 1_000)
    found = {
        row.body: row
        for row in read(name, columns="body,tags,keys,properties,flag", bodyAs="string").collect()
    }
    assert len(found) == 1_000
    for number in (0, 1, 999):
        row = found[f"body {number}"]
        assert (row.tags, row["keys"], row.flag) == (
            "even" if number % 2 == 0 else None,
            f"k{number} all",
            number,
        )
        assert (row.properties["n"], row.properties["__SHARDINGKEY"]) == (str(number), str(number % 5))


def test_the_seeds_spelling_writes_too(
    spark: SparkSession, mq: DevCluster, topic: TopicFactory, read: Read, settled: Settled
) -> None:
    name = topic()
    rows = spark.createDataFrame([("k1", "one")], "key string, body string")
    writer = rows.write.format("org.apache.rocketmq.spark").mode("append")
    writer.options(namesrvAddr=mq.name_server, producerGroup="result_group", topic=name).save()
    settled(name, 1)
    assert [(row.body, row["keys"]) for row in read(name, bodyAs="string").collect()] == [("one", "k1")]


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ("'x' AS body", {"topic": "no-such-topic"}, "createTopic=true"),
        ("'x' AS body", {}, "option topic, or a column"),
        ("'x' AS value", {"topic": "t"}, "no part of a message"),
        ("'x' AS body", {"topic": "t", "tag": "a"}, "did you mean tags"),
        (
            "'x' AS body",
            {"topic": "t", "deliveryGuarantee": "effectively-once"},
            "needs a column 'writeId', or",
        ),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_sent(
    spark: SparkSession, write: Write, columns: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        write(spark.range(1).selectExpr(columns), **options)


def test_a_topic_is_not_overwritten(spark: SparkSession, mq: DevCluster, topic: TopicFactory) -> None:
    rows = spark.range(1).selectExpr("'x' AS body")
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        rows.write.format("rocketmq").mode("overwrite").option("nameServer", mq.name_server).option(
            "topic", topic()
        ).save()


def test_a_row_that_cannot_be_sent_fails_the_write_or_is_put_aside(
    spark: SparkSession, topic: TopicFactory, write: Write, read: Read, settled: Settled
) -> None:
    name, dead = topic(), topic(queues=1)
    rows = spark.range(4).selectExpr("if(id = 2, '', concat('b', id)) AS body")
    with pytest.raises(PySparkException, match="it has no body"):
        write(rows, topic=name)
    good = topic()
    write(rows, topic=good, deadLetterTopic=dead)
    settled(good, 3)
    settled(dead, 1)
    (letter,) = read(dead, includeProperties=True).collect()
    assert "no body" in letter.properties["deadLetterCause"]


def test_each_write_keeps_its_dead_letters(
    spark: SparkSession, topic: TopicFactory, write: Write, tmp_path: Path
) -> None:
    name = topic()
    for day in ("monday", "tuesday"):
        rows = spark.createDataFrame([(day, "bad\x01tag")], "body string, tags string")
        write(rows, topic=name, deadLetterPath=f"file://{tmp_path}/dead")
    dead = spark.read.parquet(f"file://{tmp_path}/dead").selectExpr("cast(body AS string) AS body")
    assert sorted(row.body for row in dead.collect()) == ["monday", "tuesday"]


def test_rows_that_end_with_an_error_leave_no_dead_letters(
    spark: SparkSession, topic: TopicFactory, write: Write, settled: Settled, tmp_path: Path
) -> None:
    """Spark closes the connection to the task, which looks like the end of its rows."""
    batch = "spark.sql.execution.arrow.maxRecordsPerBatch"
    name, dead = topic(), tmp_path / "dead"
    large = f"if(id = 999, raise_error('an error of the rows'), repeat('x', {1 << 10}))"
    rows = spark.range(0, 1000, 1, 1).selectExpr(f"if(id % 2 = 0, '', {large}) AS body")
    spark.conf.set(batch, "100")
    try:
        with pytest.raises(PySparkException, match="an error of the rows"):
            write(rows, topic=name, deadLetterPath=f"file://{dead}", batchSize=50)
        assert not list(dead.glob("*.parquet"))
    finally:
        spark.conf.unset(batch)


def test_builders_make_messages(
    spark: SparkSession, topic: TopicFactory, write: Write, read: Read, settled: Settled
) -> None:
    users = spark.createDataFrame([(1, "Hangzhou Xihu"), (2, "Paris")], "id int, address string")
    assert [tuple(row) for row in key_value_messages(users, "id", "address").collect()] == [
        ("1", "Hangzhou Xihu"),
        ("2", "Paris"),
    ]
    assert json_messages(users, key="id", tags="address").first().asDict() == {
        "body": '{"id":1,"address":"Hangzhou Xihu"}',
        "keys": "1",
        "tags": "Hangzhou Xihu",
    }
    one, two = topic(queues=1), topic(queues=1)
    chosen = with_topic(
        json_messages(users, columns=["id"]), F.when(F.col("body").contains("1"), one).otherwise(two)
    )
    write(chosen)
    settled(one, 1)
    settled(two, 1)
    assert [row.body for row in read(two, bodyAs="string").collect()] == ['{"id":2}']


def test_rows_of_a_key_keep_their_order(
    spark: SparkSession, topic: TopicFactory, write: Write, read: Read, settled: Settled
) -> None:
    name = topic(queues=4)
    rows = spark.range(0, 3_000, 1, 3).selectExpr(
        "cast(id AS string) AS body", "id % 11 AS customer", "id AS n"
    )
    write(ordered_by(rows, "customer", order_by="n").select("body", "shardingKey"), topic=name, batchSize=50)
    settled(name, 3_000)
    last: dict[int, int] = {}
    places: dict[int, set[tuple[str, int]]] = {}
    for row in read(name, bodyAs="string").orderBy("brokerName", "queueId", "queueOffset").collect():
        number = int(row.body)
        customer = number % 11
        assert last.get(customer, -1) < number
        last[customer] = number
        places.setdefault(customer, set()).add((row.brokerName, row.queueId))
    assert {customer: len(found) for customer, found in places.items()} == dict.fromkeys(range(11), 1)
    assert [last[customer] for customer in range(11)] == [
        max(range(customer, 3_000, 11)) for customer in range(11)
    ]


# --- streams --------------------------------------------------------------------------------


@pytest.fixture
def copy(spark: SparkSession, mq: DevCluster, tmp_path: Path) -> Iterator[Callable[..., None]]:
    """``copy(source, target, option=value)``: an AvailableNow run from one topic to another."""

    def run(source: str, target: str, **options: object) -> None:
        df = (
            spark.readStream.format("rocketmq")
            .options(nameServer=mq.name_server, topic=source, startingOffsets="earliest")
            .load()
        )
        query = (
            df.writeStream.format("rocketmq")
            .options(nameServer=mq.name_server, topic=target, sendTimeoutMs=PATIENCE_MS, **options)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(240)

    yield run
    for query in spark.streams.active:
        query.stop()


def forget_last_batch(checkpoint: Path) -> None:
    """Let Spark believe that the last batch did not finish, as after a crash behind the writes."""
    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)


def test_a_stream_copies_a_topic_and_goes_on_after_a_restart(
    topic: TopicFactory,
    send: Sender,
    copy: Callable[..., None],
    read: Read,
    settled: Settled,
) -> None:
    source, target = topic(queues=2), topic(queues=3)
    send(source, 60)
    copy(source, target)
    send(source, 40)
    copy(source, target)
    settled(target, 100)
    found = Counter(row.body for row in read(target, bodyAs="string").collect())
    assert found == Counter(body for _, _, _, body in send.sent[source])


def test_a_batch_that_comes_again_is_dropped_by_the_reader(
    spark: SparkSession,
    mq: DevCluster,
    topic: TopicFactory,
    send: Sender,
    copy: Callable[..., None],
    read: Read,
    settled: Settled,
    tmp_path: Path,
) -> None:
    source, target = topic(queues=2), topic(queues=2)
    send(source, 50)
    copy(source, target, deliveryGuarantee="effectively-once")
    forget_last_batch(tmp_path / "checkpoint")
    copy(source, target, deliveryGuarantee="effectively-once")
    settled(target, 100)
    once = drop_repeats(read(target, includeProperties=True, bodyAs="string"))
    expected = Counter(body for _, _, _, body in send.sent[source])
    assert Counter(row.body for row in once.collect()) == expected

    stream = (
        spark.readStream.format("rocketmq")
        .options(nameServer=mq.name_server, topic=target, startingOffsets="earliest")
        .options(includeProperties=True, bodyAs="string")
        .options(eventTimeAlignment="store", includeAlignedTimestamp=True)
        .load()
    )
    name = fresh_name("once").replace("-", "_")
    query = (
        drop_repeats(stream, within="1 hour")
        .writeStream.format("memory")
        .queryName(name)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(240)
    assert Counter(row.body for row in spark.table(name).collect()) == expected


def test_a_job_that_is_run_again_gives_the_same_ids_whatever_the_order(
    spark: SparkSession, topic: TopicFactory, write: Write, read: Read, settled: Settled
) -> None:
    name = topic(queues=2)
    for partitions in (2, 3):
        rows = spark.range(0, 300, 1, partitions).selectExpr("concat('r', id % 200) AS body")
        write(
            identical_rows_together(rows), topic=name, deliveryGuarantee="effectively-once", jobId="nightly"
        )
    settled(name, 600)
    once = drop_repeats(read(name, includeProperties=True, bodyAs="string"))
    counts = Counter(Counter(row.body for row in once.collect()).values())
    assert counts == {2: 100, 1: 100}


def test_equal_rows_in_several_partitions_are_an_error_not_a_loss(
    spark: SparkSession, topic: TopicFactory, write: Write
) -> None:
    rows = spark.range(0, 4, 1, 2).selectExpr("'same' AS body")
    with pytest.raises(PySparkException, match="identical_rows_together"):
        write(rows, topic=topic(), deliveryGuarantee="effectively-once", jobId="j")


def test_the_users_write_ids_survive_a_new_checkpoint(
    topic: TopicFactory, spark: SparkSession, write: Write, read: Read, settled: Settled
) -> None:
    name = topic()
    rows = spark.range(20).selectExpr("concat('order ', id) AS body", "id AS writeId")
    for job in ("first", "second"):
        write(rows, topic=name, deliveryGuarantee="effectively-once", jobId=job)
    settled(name, 40)
    assert drop_repeats(read(name, includeProperties=True)).count() == 20
