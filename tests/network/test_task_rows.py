"""A write task that Spark ends early: pyarrow takes the end of the connection for the end of the rows."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from tests.support.wait import eventually

from pyspark_rocketmq.errors import SendError
from pyspark_rocketmq.options import SinkOptions, parse_options
from pyspark_rocketmq.remoting.codes import RequestCode
from pyspark_rocketmq.spark.write.writer import RocketMQBatchWriter, TaskWritten
from pyspark_rocketmq.testing import MockBroker

ROWS = pa.RecordBatch.from_pydict({"body": ["x" * 2_000, *map(str, range(200))]})


@pytest.fixture
def mq() -> Iterator[MockBroker]:
    with MockBroker({"orders": 1}) as broker:
        yield broker


def main(infile: BinaryIO, writer: RocketMQBatchWriter) -> TaskWritten:
    """Run a task. The name and the first argument are those of the function of Spark's workers."""
    return writer.write(iter(pa.ipc.open_stream(infile)))


def write(mq: MockBroker, *, is_ended: bool, **given: str) -> TaskWritten:
    """Write the rows that come through a connection, which Spark closes before their end, or keeps."""
    settings = {"nameServer": mq.name_server, "topic": "orders", "compression": "none"} | given
    options = parse_options(SinkOptions, settings, environ={})
    writer = RocketMQBatchWriter(options, from_arrow_schema(ROWS.schema), overwrite=False)
    spark, worker = socket.socketpair()
    with spark, worker, worker.makefile("rb") as infile:
        with spark.makefile("wb") as out:
            stream = pa.ipc.new_stream(out, ROWS.schema)
            stream.write_batch(ROWS)
            if not is_ended:
                stream.close()
        if is_ended:
            spark.close()
        return main(infile, writer)


def aside(folder: Path) -> dict[str, str]:
    return {"deadLetterPath": str(folder), "maxMessageBytes": "1000", "batchBytes": "1000"}


def test_dead_letters_of_a_task_that_spark_ended_replace_none(mq: MockBroker, tmp_path: Path) -> None:
    with pytest.raises(SendError, match="ended the rows of the task early"):
        write(mq, is_ended=True, **aside(tmp_path))
    assert list(tmp_path.iterdir()) == []
    assert write(mq, is_ended=False, **aside(tmp_path)).report.dead_letters == 1
    assert len(list(tmp_path.glob("*.parquet"))) == 1


def test_half_messages_of_a_task_that_spark_ended_are_rolled_back(mq: MockBroker, tmp_path: Path) -> None:
    once = {"deliveryGuarantee": "transactional", "jobId": "j", "transactionLog": str(tmp_path)}
    with pytest.raises(SendError, match="ended the rows of the task early"):
        write(mq, is_ended=True, **once)
    stored = mq.asked[RequestCode.SEND_MESSAGE_V2]
    assert stored
    eventually(lambda: mq.asked[RequestCode.END_TRANSACTION] == stored, what="their rollback")
