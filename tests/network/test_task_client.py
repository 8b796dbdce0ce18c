"""A task that Spark runs again trusts neither the connections nor the routes of its process."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from pyspark_rocketmq.client import OutgoingMessage
from pyspark_rocketmq.client.net.connection import Connection
from pyspark_rocketmq.model import OffsetRange
from pyspark_rocketmq.options import SinkOptions, SourceOptions, parse_options
from pyspark_rocketmq.remoting.codes import RequestCode
from pyspark_rocketmq.spark import task_client as module
from pyspark_rocketmq.spark.read.partition import RangesPartition, read_partition
from pyspark_rocketmq.spark.read.schema import read_schema, to_projection
from pyspark_rocketmq.spark.write.writer import RocketMQBatchWriter
from pyspark_rocketmq.testing import MockBroker

ROWS = pa.RecordBatch.from_pydict({"body": ["a", "b"], "topic": ["orders", "payments"]})


def read(mq: MockBroker) -> None:
    ranges = (OffsetRange(mq.queue("orders"), 0, 1), OffsetRange(mq.queue("payments"), 0, 1))
    options = parse_options(
        SourceOptions, {"nameServer": mq.name_server, "topic": "orders,payments"}, environ={}
    )
    batches = read_partition(RangesPartition(ranges), options, to_projection(read_schema(None)))
    assert sum(batch.num_rows for batch in batches) == 2


def write(mq: MockBroker) -> None:
    options = parse_options(SinkOptions, {"nameServer": mq.name_server}, environ={})
    writer = RocketMQBatchWriter(options, from_arrow_schema(ROWS.schema), overwrite=False)
    assert writer.write(iter([ROWS])).report.rows == 2


@pytest.mark.parametrize("task", [read, write])
@pytest.mark.parametrize("attempt", [0, 1])
def test_a_retried_task_trusts_neither_connection_nor_route(
    task: object, attempt: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also not the route of a topic that only the rows name."""
    opened: list[str] = []
    connect = Connection.__init__

    def count(self: Connection, addr: str, *args: object, **more: object) -> None:
        opened.append(addr)
        connect(self, addr, *args, **more)

    monkeypatch.setattr(Connection, "__init__", count)
    with MockBroker({"orders": 1, "payments": 1}) as mq:
        mq.send(OutgoingMessage("orders", b"1"))
        mq.send(OutgoingMessage("payments", b"2"))
        task(mq)
        before, looked_up = len(opened), mq.asked[RequestCode.GET_ROUTEINFO_BY_TOPIC]
        context = SimpleNamespace(attemptNumber=lambda: attempt, partitionId=lambda: 0)
        monkeypatch.setattr(module, "TaskContext", SimpleNamespace(get=lambda: context))
        monkeypatch.setattr("pyspark_rocketmq.spark.write.writer.TaskContext", module.TaskContext)
        task(mq)
        assert mq.asked[RequestCode.GET_ROUTEINFO_BY_TOPIC] - looked_up == 2 * attempt
        assert len(opened) - before == 2 * attempt


@pytest.mark.parametrize("task", [read, write])
def test_a_task_makes_the_collections_of_its_worker_cheap(
    task: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[None] = []
    monkeypatch.setattr(module, "spare_collections", lambda: calls.append(None))
    with MockBroker({"orders": 1, "payments": 1}) as mq:
        mq.send(OutgoingMessage("orders", b"1"))
        mq.send(OutgoingMessage("payments", b"2"))
        task(mq)
    assert calls == [None]


@pytest.mark.parametrize("reused", ["", "1"])
def test_a_worker_for_many_tasks_looks_at_what_it_has_loaded_once(reused: str) -> None:
    """Spark's daemon collects all garbage after each task: what a task leaves is still found."""
    program = """
import gc
from pyspark_rocketmq.spark.task_client import spare_collections
class Node: pass
spare_collections()
frozen = gc.get_freeze_count()
spare_collections()
assert gc.get_freeze_count() == frozen
node = Node()
node.itself = node
del node
print(frozen > 5_000, gc.collect() > 0)
"""
    environ = {**os.environ, "SPARK_REUSE_WORKER": reused}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.split() == [str(bool(reused)), "True"], done.stderr
