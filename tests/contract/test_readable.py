"""What a batch write has stored can be read when it returns: a broker adds messages to their queues later."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from pyspark_rocketmq.options import SinkOptions, parse_options
from pyspark_rocketmq.spark.write.writer import RocketMQBatchWriter

WRITES = 50
"""Without the wait, most of them were not to be read yet."""


def test_each_write_can_be_read_when_it_returns(mq, topic, client):
    name = topic(queues=4)
    queues = client.read_queues(name)
    options = parse_options(SinkOptions, {"nameServer": mq.name_server, "topic": name}, environ={})
    rows = pa.RecordBatch.from_pydict({"body": ["one row"]})
    writer = RocketMQBatchWriter(options, from_arrow_schema(rows.schema), overwrite=False)
    found = []
    for _ in range(WRITES):
        written = writer.write(iter([rows]))
        found.append(sum(client.max_offsets(queues).values()))
        writer.commit([written])
    assert found == list(range(1, WRITES + 1))
