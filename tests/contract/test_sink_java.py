"""What the sink writes the Java client reads, and the other way round."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from tests.support.topics import TopicFactory
from tests.support.transactional_job import TransactionalJob
from tests.support.wait import eventually

from pyspark_rocketmq.client import Client, Message, PullConsumer
from pyspark_rocketmq.client.send.queue_selection import queue_for_key
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.options import SinkOptions, parse_options
from pyspark_rocketmq.spark.write.sink_schema import sink_layout
from pyspark_rocketmq.spark.write.transaction_log import TransactionName
from pyspark_rocketmq.spark.write.write_task import WriteScope, WriteTask

LARGE = "größe " * 2_000


class Read(NamedTuple):
    """A message as the Java consumer sees it."""

    body: str
    tags: str
    keys: str
    flag: str
    queue_id: str
    store_size: str
    msg_id: str
    waited_ms: str
    region: str
    sharding_key: str


@pytest.fixture(scope="module")
def classes(mq: DevCluster) -> Path:
    return mq.compile_java(Path(__file__).parent / "java" / "SendAndRead.java")


def java(mq: DevCluster, classes: Path, *args: str) -> list[list[str]]:
    printed = mq.run_java("SendAndRead", *args, classes=classes)
    return [line[1:].split("\t") for line in printed.splitlines() if line.startswith("|")]


def write(name_server: str, topic: str, columns: dict[str, object], **given: object) -> None:
    options = parse_options(SinkOptions, {"nameServer": name_server, "topic": topic} | given, environ={})
    batch = pa.RecordBatch.from_pydict(columns)
    with Client(options.client) as client:
        layout = sink_layout(from_arrow_schema(batch.schema), options)
        WriteTask(client, options, layout, WriteScope(job="q/0", partition=0)).run([batch])


@pytest.mark.needs("java")
def test_the_java_client_reads_what_the_sink_writes(
    mq: DevCluster, classes: Path, topic: TopicFactory
) -> None:
    name = topic(queues=4)
    count = 40
    bodies = [f"größe {number}" for number in range(count)]
    write(
        mq.name_server,
        name,
        {
            "body": bodies,
            "tags": [f"tag{number % 3}" for number in range(count)],
            "keys": [[f"k{number}", "all"] for number in range(count)],
            "flag": pa.array(range(count), pa.int32()),
            "shardingKey": [f"customer-{number % 8}" for number in range(count)],
            "properties": pa.array(
                [[("region", f"eu-{number}")] for number in range(count)], pa.map_(pa.string(), pa.string())
            ),
        },
    )
    for kind in ("zlib", "lz4", "zstd"):
        write(mq.name_server, name, {"body": [LARGE + kind, "small"]}, compression=kind)
        write(mq.name_server, name, {"body": [LARGE + kind]}, compression=kind, batchSize=1, tags="alone")
    write(mq.name_server, name, {"body": ["later"]}, delayLevel=1)
    lines = java(mq, classes, "read", mq.name_server, name, str(count + 10))
    found = [Read(*line) for line in lines]
    assert len(found) == count + 10
    by_body = {message.body: message for message in found}
    with Client(mq.name_server) as client:
        queues = client.write_queues(name)
    for number, body in enumerate(bodies):
        message, key = by_body[body], f"customer-{number % 8}"
        assert message[1:4] == (f"tag{number % 3}", f"k{number} all", str(number))
        assert (message.region, message.sharding_key) == (f"eu-{number}", key)
        assert message.queue_id == str(queue_for_key(key, queues).queue_id)
    for kind in ("zlib", "lz4", "zstd"):
        packed = [message for message in found if message.body == LARGE + kind]
        assert sorted(message.tags for message in packed) == ["", "alone"]
        assert all(int(message.store_size) < len(LARGE) for message in packed)
    assert int(by_body["later"].waited_ms) >= 900
    assert len({message.msg_id for message in found}) == count + 10
    # Order within each key.
    for key in range(8):
        of_key = [int(m.flag) for m in found if m.sharding_key == f"customer-{key}"]
        assert of_key == sorted(of_key)


@pytest.mark.needs("java")
def test_the_java_client_sees_a_transaction_when_it_is_committed(
    mq: DevCluster, classes: Path, topic: TopicFactory, tmp_path: Path
) -> None:
    job = TransactionalJob(mq.name_server, topic(queues=2), tmp_path)
    try:
        for batch in range(2):
            name = TransactionName("query", batch)
            rolled_back = job.write([f"wrong {number}" for number in range(30)], name)
            job.transactions.abandon(name, rolled_back, group=job.group)
            job.commit(job.write([f"{batch}: {number}" for number in range(30)], name), name)
        job.write(["never"], TransactionName("query", 2))
    finally:
        job.close()
    expected = {f"{batch}: {number}" for batch in range(2) for number in range(30)}
    lines = java(mq, classes, "read", mq.name_server, str(job.options.topic), "60")
    assert sorted(Read(*line).body for line in lines) == sorted(expected)


@pytest.mark.needs("java")
def test_what_the_java_client_sends_reads_the_same_here(
    mq: DevCluster, classes: Path, topic: TopicFactory
) -> None:
    name = topic(queues=4)
    sent = {line[0]: line[1:] for line in java(mq, classes, "send", mq.name_server, name)}
    found = read_all(mq.name_server, name, 14)
    by_body = {message.body.decode(): message for message in found}
    plain = by_body["plain größe"]
    assert (plain.tags, plain.keys, plain.flag) == ("new", "k1 k2", 9)
    assert (plain.properties["region"], plain.msg_id) == ("eu", sent["plain"][1])
    assert by_body["z" * 10_000].msg_id == sent["compressed"][1]
    assert by_body["delayed"].store_timestamp - by_body["delayed"].born_timestamp >= 900
    assert [by_body[f"batch{n}"].keys for n in range(3)] == ["key0", "key1", "key2"]
    with Client(mq.name_server) as client:
        queues = client.write_queues(name)
    for number in range(8):
        key = f"customer-{number}"
        assert by_body[f"keyed{number}"].queue == queue_for_key(key, queues)
        assert sent[key][0] == str(queue_for_key(key, queues).queue_id)


def test_priorities_and_moments_reach_the_broker(mq: DevCluster, topic: TopicFactory) -> None:
    name = topic(queues=1)
    moment = pa.array([1_000_000], pa.timestamp("us", tz="UTC"))  # long ago: delivered at once
    write(mq.name_server, name, {"body": ["at once"], "deliverAt": moment})
    write(mq.name_server, name, {"body": ["soon"], "delay": pa.array([1_000], pa.int64())})
    found = {message.body: message for message in read_all(mq.name_server, name, 2)}
    assert set(found) == {b"at once", b"soon"}
    assert found[b"soon"].store_timestamp - found[b"soon"].born_timestamp >= 500


def read_all(name_server: str, topic: str, count: int) -> list[Message]:
    with PullConsumer("reader", name_server=name_server) as consumer:
        queues = consumer.fetch_subscribe_message_queues(topic)

        def look() -> list[Message]:
            found: list[Message] = []
            for queue in queues:
                offset = consumer.min_offset(queue)
                while (result := consumer.pull(queue, "*", offset, 32)).messages:
                    found += result.messages
                    offset = result.next_begin_offset
            return found if len(found) >= count else []

        return eventually(look, 20, what=f"{count} messages of {topic}")


@pytest.mark.parametrize("body", ["x", LARGE])
def test_an_old_broker_takes_what_the_sink_writes(mq49: DevCluster, topic: TopicFactory, body: str) -> None:
    name = topic(queues=2, cluster=mq49)
    write(mq49.name_server, name, {"body": [body] * 3, "tags": ["a", None, "b"], "shardingKey": ["k"] * 3})
    found = read_all(mq49.name_server, name, 3)
    assert [(message.body.decode(), message.tags) for message in found] == [
        (body, t) for t in ("a", None, "b")
    ]
