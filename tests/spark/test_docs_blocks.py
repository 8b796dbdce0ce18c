"""The code of index.md, performance.md, source.md, rdd-and-dstream.md and receivers.md as it stands."""

from __future__ import annotations

import json
import warnings
from functools import partial

import pytest
from pyspark.sql import Row
from pyspark.streaming import StreamingContext
from tests.spark.conftest import setting
from tests.support.page_code import python_blocks
from tests.support.wait import eventually


def here(block: str, mq, topic: str) -> str:
    return block.replace("127.0.0.1:9876", mq.name_server).replace('"orders"', f'"{topic}"')


@pytest.mark.since_spark("4.2")
def test_what_source_md_shows(spark, mq, send, topic, tmp_path, capsys):
    name = topic(queues=2)
    named, heartbeat, watching = python_blocks("source.md")
    send(name, 4)
    evolution = "spark.sql.streaming.queryEvolution.enableSourceEvolution", "true"
    offset_log = "spark.sql.streaming.offsetLog.formatVersion", "2"
    sources: dict[str, object] = {"spark": spark, "options": {"nameServer": mq.name_server, "topic": name}}
    with setting(spark, *evolution), setting(spark, *offset_log):
        exec(named, sources)
    assert sources["orders"].isStreaming
    reader = spark.readStream.format("rocketmq").option("nameServer", mq.name_server)
    df = reader.options(topic=name, startingOffsets="earliest", consumerGroup="report").load()
    result = eval(heartbeat, {"df": df})
    writer = result.writeStream.format("noop").queryName("report")
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    names: dict[str, object] = {"spark": spark}
    try:
        query.processAllAvailable()
        exec(here(watching, mq, name), names)
        assert sum(progress.numInputRows for progress in query.recentProgress) == 4
    finally:
        query.stop()
        spark.streams.removeListener(names["listener"])
        names["listener"].close()


def test_what_index_md_shows(spark, mq, send, topic):
    name = topic(queues=2)
    send(name, 4)
    (block,) = python_blocks("index.md")
    assert eval(here(block, mq, name), {"spark": spark}).count() == 4


def test_the_recipes_of_performance_md(spark, mq, send, topic, client, tmp_path):
    name = topic(queues=2)
    send(name, 20)
    recipes = [here(block, mq, name) for block in python_blocks("performance.md")]
    latency, throughput, writing, queues, small = recipes
    seen: list[Row] = []
    # In Spark 4.3 a query with asynchronous progress stays in its session's `streams.active` after `stop()`.
    session = spark.newSession()
    names: dict[str, object] = {"spark": session, "write": lambda rows, _: seen.extend(rows.collect())}
    exec(latency.replace("/checkpoints", str(tmp_path)), names)
    try:
        names["query"].processAllAvailable()
        exec(throughput, names)
        names["messages"] = names["bodies"]
        exec(writing, names)
        ends = partial(client.max_offsets, client.read_queues(name))
        eventually(lambda: sum(ends().values()) == 40, what="the copies")
        names["query"].processAllAvailable()
    finally:
        names["query"].stop()
    assert len(seen) == 20, "a stream begins at the latest messages"
    for block in (queues, small):
        exec(block, names)
        assert names["source"].isStreaming
        assert names["source"].columns == ["body"]


def test_what_rdd_and_dstream_md_shows(spark, mq, send, topic, capfd, tmp_path, monkeypatch):
    name = topic(queues=2)
    send(name, 200)
    rdd, stream, upgrade = python_blocks("rdd-and-dstream.md")
    names: dict[str, object] = {"sc": spark.sparkContext, "options": {"nameServer": mq.name_server}}
    monkeypatch.chdir(tmp_path)
    (tmp_path / "offsets.json").write_text(json.dumps({name: {"broker-a": {"0": 7}}}))
    exec(here(rdd, mq, name), names)
    assert sorted(names["rdd"].map(lambda m: m.body.decode()).collect()) == sorted(
        f"{name} {n}" for n in range(200)
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "DStream is deprecated", FutureWarning)
        ssc = StreamingContext(spark.sparkContext, 0.3)
    try:
        exec("from pyspark_rocketmq import ConsumerStrategy", names)
        exec(here(stream, mq, name), names | {"ssc": ssc})
        exec(here(upgrade, mq, name), names | {"ssc": ssc})
        ssc.start()
        eventually(lambda: " 200\n" in capfd.readouterr().out, what="the counted batch")
    finally:
        ssc.stop(stopSparkContext=False)


def test_what_receivers_md_shows(contexts, mq, send, topic, client, capfd):
    name = topic(queues=2)
    queues = client.read_queues(name)
    client.commit_offsets("report", dict.fromkeys(queues, 0))
    send(name, 50)
    (block,) = python_blocks("receivers.md")
    ssc = contexts()
    exec(here(block, mq, name), {"ssc": ssc})
    ssc.start()
    printed: list[str] = []

    def counted() -> int:
        printed.append(capfd.readouterr().out)
        return sum(int(line.split()[0]) for line in "".join(printed).splitlines() if "Message(" in line)

    eventually(lambda: counted() == 50, 60, what="the counted batches")
