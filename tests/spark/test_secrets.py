"""Planted secrets in a real session: plans, progress, checkpoints, logs and errors must not show them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pyspark_rocketmq.client import OutgoingMessage
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.remoting.acl import Credentials
from pyspark_rocketmq.testing import MemorySink, MockBroker, drain

SECRET, TOKEN = "planted-Secret-4711", "planted-Token-0815"
CREDENTIALS = Credentials("planted-user", SECRET, TOKEN)


def shows(text: str) -> list[str]:
    return [secret for secret in (SECRET, TOKEN) if secret in text]


@pytest.fixture(scope="module")
def mq() -> Iterator[MockBroker]:
    """A broker that checks signatures."""
    with MockBroker({"orders": 1, "copies": 1}, credentials=CREDENTIALS) as broker:
        for number in range(20):
            broker.send(OutgoingMessage("orders", b"%d" % number))
        yield broker


@pytest.fixture(autouse=True)
def nothing_tells(caplog: pytest.LogCaptureFixture, spark: SparkSession) -> Iterator[None]:
    """Let everything log; neither Python's logs nor the JVM's may tell."""
    caplog.set_level(logging.DEBUG, "pyspark_rocketmq")
    caplog.set_level(logging.INFO)
    jvm = spark.sparkContext._jvm
    log4j = jvm.org.apache.logging.log4j
    writer = jvm.java.io.StringWriter()
    layout = log4j.core.layout.PatternLayout.createDefaultLayout()
    appender = log4j.core.appender.WriterAppender.createAppender(layout, None, writer, "kept", False, True)
    appender.start()
    root = log4j.LogManager.getContext(False).getConfiguration().getRootLogger()
    root.addAppender(appender, None, None)
    spark.sparkContext.setLogLevel("INFO")
    log4j.LogManager.getLogger("test").info("begins")
    yield
    spark.sparkContext.setLogLevel("ERROR")
    root.removeAppender("kept")
    logged = writer.toString()
    assert "begins" in logged, "the log is not kept: this test would prove nothing"
    assert shows(logged) == []
    assert shows(caplog.text) == []


def options(mq: MockBroker, **more: str) -> dict[str, str]:
    return {
        "nameServer": mq.name_server,
        "topic": "orders",
        "accessKey": "planted-user",
        "secretKey": SECRET,
        "securityToken": TOKEN,
    } | more


def plans(df: DataFrame) -> str:
    execution = df._jdf.queryExecution()
    return "\n".join([execution.toString(), execution.logical().toJSON(), execution.executedPlan().toJSON()])


def test_a_batch(spark: SparkSession, mq: MockBroker) -> None:
    df = spark.read.format("rocketmq").options(**options(mq)).load()
    assert df.count() == 20
    assert shows(plans(df.groupBy("queueId").count())) == []


def test_a_stream_with_its_checkpoint(spark: SparkSession, mq: MockBroker, tmp_path: Path) -> None:
    sink = MemorySink()
    query = (
        spark.readStream.format("rocketmq")
        .options(**options(mq, startingOffsets="earliest"))
        .load()
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        drain(query)
        assert len(sink.rows) == 20
        assert shows(json.dumps([dict(progress) for progress in query.recentProgress], default=str)) == []
        assert shows(query._jsq.lastProgress().json() + query._jsq.toString()) == []
        assert shows(query._jsq.explainInternal(True)) == []
    finally:
        query.stop()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.parent.name == "offsets" for path in files)
    for path in files:
        assert shows(path.read_bytes().decode("latin-1")) == [], path


def test_a_write(spark: SparkSession, mq: MockBroker) -> None:
    df = spark.range(5).selectExpr("cast(id as string) as body")
    df.write.format("rocketmq").options(**options(mq, topic="copies")).mode("append").save()
    assert len(mq.messages("copies")) == 5


@pytest.mark.parametrize(
    "change",
    [{"secretKey": "x" + SECRET}, {"topic": "no-such-topic"}, {"tls": "perhaps"}, {"securityTokn": TOKEN}],
    ids=["wrong secret", "no topic", "malformed", "misspelt"],
)
def test_errors(spark: SparkSession, mq: MockBroker, change: dict[str, str]) -> None:
    with pytest.raises((PySparkException, OptionError)) as caught:
        spark.read.format("rocketmq").options(**options(mq) | change).load().count()
    assert shows(f"{caught.value} {caught.value!r} {caught.value.__cause__}") == []
