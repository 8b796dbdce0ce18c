"""An outage and a missing topic in a real session: the words of the client and the command line."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.support.wait import eventually

from pyspark_rocketmq.client import OutgoingMessage
from pyspark_rocketmq.spark.monitor.query_log import QueryLog
from pyspark_rocketmq.testing import MockBroker

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def mq() -> Iterator[MockBroker]:
    with MockBroker({"orders": 1}) as broker:
        broker.send(OutgoingMessage("orders", b"1"))
        yield broker


def count(spark: SparkSession, mq: MockBroker, topic: str) -> int:
    reader = spark.read.format("rocketmq").option("nameServer", mq.name_server).option("topic", topic)
    return reader.load().count()


def test_a_misspelled_topic_and_a_cluster_without_brokers(spark: SparkSession, mq: MockBroker) -> None:
    missing = r"the topic does not exist.*did you mean orders"
    with pytest.raises(PySparkException, match=missing):
        count(spark, mq, "order")
    with pytest.raises(PySparkException, match=missing):
        spark.range(1).selectExpr("'x' AS body").write.format("rocketmq").mode("append").option(
            "nameServer", mq.name_server
        ).option("topic", "order").option("outageTimeout", "0s").save()
    mq.unregister("broker-a")
    with pytest.raises(PySparkException, match="no broker is registered"):
        count(spark, mq, "orders")


def test_a_batch_and_a_write_begin_during_an_outage(spark: SparkSession, mq: MockBroker) -> None:
    for act in (
        lambda: count(spark, mq, "orders"),
        lambda: spark.range(1).selectExpr("'x' AS body").write.format("rocketmq").mode("append").option(
            "nameServer", mq.name_server
        ).option("topic", "orders").save(),
    ):  # fmt: skip
        mq.unregister("broker-a")
        back = threading.Timer(3.0, lambda: mq.register("broker-a"))
        back.start()
        try:
            act()
        finally:
            back.join()
    assert len(mq.messages("orders")) == 2


def test_the_query_log_has_a_failure_s_last_cause(
    spark: SparkSession, mq: MockBroker, tmp_path: Path
) -> None:
    log = QueryLog(tmp_path / "log")
    spark.streams.addListener(log)
    reader = spark.readStream.format("rocketmq").option("nameServer", mq.name_server)
    query = (
        reader.option("topic", "order")
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        with pytest.raises(PySparkException, match="did you mean orders"):
            query.awaitTermination(240)

        def ended() -> dict[str, str] | None:
            texts = [file.read_text() for file in (tmp_path / "log").iterdir()]
            lines = [json.loads(line) for text in texts for line in text.splitlines()]
            return next((line for line in lines if line["event"] == "terminated"), None)

        line = eventually(ended, what="the end in the log")
    finally:
        query.stop()
        spark.streams.removeListener(log)
    assert line["failed"] is True
    assert "TopicNotFoundError: the topic does not exist" in line["reason"]
    assert len(line["trace"]) > len(line["reason"])
