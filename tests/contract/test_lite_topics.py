"""Lite topics, which RocketMQ 5.5 has: what the sink writes is in them, and their topic has it all."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from tests.support.wait import eventually

from pyspark_rocketmq.client import Admin, Client
from pyspark_rocketmq.client.read.queue_reader import DecodeOptions, read_batches
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.model import MessageQueue, OffsetRange
from pyspark_rocketmq.options import SinkOptions, parse_options
from pyspark_rocketmq.spark.write.sink_schema import sink_layout
from pyspark_rocketmq.spark.write.write_task import WriteScope, WriteTask

PROPERTY = "__LITE_TOPIC"


@pytest.mark.needs("cluster")
def test_rows_with_a_lite_topic_are_in_it(group: str) -> None:
    lites = [("lite-a", "lite-b", None)[number % 3] for number in range(30)]
    rows = pa.RecordBatch.from_pydict(
        {
            "body": [str(number) for number in range(30)],
            "properties": pa.array(
                [[(PROPERTY, lite)] if lite else [("other", "x")] for lite in lites],
                pa.map_(pa.string(), pa.string()),
            ),
        }
    )
    light = {"enableLmq": "true", "enableMultiDispatch": "true"}
    with DevCluster(broker_config=light) as mq, Client(mq.name_server) as client:
        Admin(client).create_topic("parent", queues=1, attributes={"message.type": "LITE"})
        options = parse_options(SinkOptions, {"nameServer": mq.name_server, "topic": "parent"}, environ={})
        layout = sink_layout(from_arrow_schema(rows.schema), options)
        WriteTask(client, options, layout, WriteScope(job="q/0", partition=0)).run([rows])
        (parent,) = client.read_queues("parent")
        eventually(lambda: client.max_offsets([parent]) == {parent: 30}, 30, what="all messages")

        def read(topic: str, until: int) -> list[tuple[str, str | None]]:
            queue = MessageQueue(topic, parent.broker_name, 0)
            decode = DecodeOptions(columns=("body", "properties"))
            options = ReadOptions(consumer_group=group)
            table = pa.Table.from_batches(
                read_batches(client, [OffsetRange(queue, 0, until)], options, decode)
            )
            found = zip(*(table.column(name).to_pylist() for name in ("body", "properties")), strict=True)
            return [(body.decode(), dict(properties).get(PROPERTY)) for body, properties in found]

        expected = [(str(number), lite) for number, lite in enumerate(lites)]
        assert sorted(read("parent", 30)) == sorted(expected)
        for name in ("lite-a", "lite-b"):
            assert sorted(read(f"%LMQ%$parent${name}", 10)) == sorted(
                (body, lite) for body, lite in expected if lite == name
            )
