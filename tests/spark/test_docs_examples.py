"""The pieces of ``examples/`` that the documentation shows, and the code of docs/deployment.md."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from examples import coming_from
from pyspark.streaming import StreamingContext
from tests.spark.conftest import setting
from tests.support.page_code import python_blocks
from tests.support.topics import fill, fresh_name, wait_for_messages
from tests.support.wait import eventually

from pyspark_rocketmq.client import OutgoingMessage
from pyspark_rocketmq.client.read.message_search import last_messages


@pytest.fixture
def ssc(spark) -> Iterator[StreamingContext]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "DStream is deprecated", FutureWarning)
        context = StreamingContext(spark.sparkContext, 0.3)
    yield context
    context.stop(stopSparkContext=False)


@pytest.fixture
def say(client, topic):
    """``say([(keys, body), ...])``: a fresh topic of two queues with these messages."""

    def send(messages: list[tuple[str | None, str]]) -> str:
        name = topic(queues=2)
        fill(client, name, [OutgoingMessage(name, body.encode(), keys=keys or ()) for keys, body in messages])
        return name

    return send


def bodies(client, topic: str, count: int) -> list[str]:
    wait_for_messages(client, topic, count)
    found = last_messages(client, client.read_queues(topic), count)
    return sorted(message.body.decode() for message in found)


def test_the_quickstart(spark, mq, tmp_path, capsys):
    code = (Path(__file__).parents[2] / "examples" / "quickstart.py").read_text(encoding="utf-8")
    code = code.replace("127.0.0.1:9876", mq.name_server).replace("quickstart-checkpoint", str(tmp_path))
    with setting(spark, "spark.app.name", "quickstart"):  # as the program does
        exec(code.replace('"topic": "quickstart"', f'"topic": "{fresh_name("quickstart")}"'), {})
    shown = capsys.readouterr().out
    assert '|order-3|paid|{"product": "tent", "cents": 24900}|' in shown
    assert "|   lamp| 1990|     1|" in shown
    assert "|   tent|49800|     2|" in shown


def test_rocketmq_spark_s_pull_stream(ssc, mq, say, capfd):
    coming_from.print_bodies(ssc, mq.name_server, say([(None, "hello")]))
    ssc.start()
    eventually(lambda: "b'hello'" in capfd.readouterr().out, what="the printed body")


def test_rocketmq_spark_s_rdd(spark, mq, say):
    name = say([(None, str(n)) for n in range(6)])
    found = coming_from.two_queues(spark.sparkContext, mq.name_server, name, 3)
    assert sorted(found) == [str(n).encode() for n in range(6)]


def test_rocketmq_spark_s_commit_async(ssc, mq, say, group, client):
    name, saved = say([(None, str(n)) for n in range(4)]), []
    coming_from.commit_after_output(ssc, mq.name_server, name, group, saved.extend)
    ssc.start()
    queues = client.read_queues(name)
    eventually(lambda: set(client.committed_offsets(group, queues).values()) == {2}, what="the commit")
    assert sorted(saved) == [str(n).encode() for n in range(4)]


def test_rocketmq_streams_window(spark, mq, say, tmp_path):
    values = [json.dumps({"key": "a", "value": n}) for n in (1, 2, 4)]
    frame = coming_from.sums_by_window(spark, mq.name_server, say([(None, value) for value in values]))
    writer = frame.writeStream.format("memory").queryName("windows").outputMode("update")
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    try:
        query.processAllAvailable()
        rows = spark.table("windows").collect()
    finally:
        query.stop()
    assert (sum(row["sum"] for row in rows), sum(row.total for row in rows)) == (7.0, 3)


def test_rocketmq_flink_s_job(spark, mq, say, topic, client, tmp_path):
    source = say([("1", "Zhongshan Road 1 Zhejiang"), ("2", "Nanjing Road 2 Shanghai")])
    target = topic(queues=1)
    query = coming_from.provinces(spark, mq.name_server, source, target, str(tmp_path))
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert bodies(client, target, 2) == [
        '{"id":"1","province":"Zhejiang"}',
        '{"id":"2","province":"Shanghai"}',
    ]


@pytest.mark.since_spark("4.2")
def test_a_job_from_kafka(spark, mq, say, topic, client, tmp_path):
    source, target = say([("1", "one")]), topic(queues=1)
    query = coming_from.from_kafka(spark, mq.name_server, source, target, str(tmp_path))
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert bodies(client, target, 1) == ["ONE"]


def test_rocketmq_flink_s_tables(spark, mq, say):
    name = say([(None, '{"user_id": 1, "item_id": 2, "behavior": "buy"}')])
    (row,) = coming_from.tables(spark, mq.name_server, name).collect()
    assert row.asDict() == {"topic": name, "user_id": 1, "item_id": 2, "behavior": "buy"}


def test_structured_streaming_with_the_options_of_rocketmq_spark(spark, mq, say, topic, client, tmp_path):
    source, target = say([("k", "one"), (None, "two")]), topic(queues=1)
    query = coming_from.source_to_sink(spark, mq.name_server, source, target, str(tmp_path))
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert bodies(client, target, 2) == ["one", "two"]


def test_a_source_that_registers_itself(spark, mq, say):
    for block in python_blocks("deployment.md"):
        if "pysail" not in block:  # test_clients_without_spark.py runs that one
            exec(block, {"spark": spark})
    for name in ("rocketmq", "org.apache.rocketmq.spark"):
        reader = spark.read.format(name).options(nameServer=mq.name_server, topic=say([(None, "one")]))
        assert reader.load().count() == 1
