from __future__ import annotations

import pickle
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from pyspark_rocketmq.model import MessageQueue, OffsetRange
from pyspark_rocketmq.options import SourceOptions, parse_options
from pyspark_rocketmq.spark import partition as module
from pyspark_rocketmq.spark.partition import RangesPartition, plan_partitions, read_partition
from pyspark_rocketmq.spark.schema import read_schema, to_projection
from pyspark_rocketmq.spark.stream import RocketMQStreamReader

A0, A1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
RANGES = (OffsetRange(A0, 0, 10), OffsetRange(A1, 4, 10))


def options(**given: str) -> SourceOptions:
    return parse_options(
        SourceOptions, {"nameServer": "127.0.0.1:9876", "topic": "orders", **given}, environ={}
    )


def test_small_ranges_are_packed_unless_told_otherwise():
    assert plan_partitions(RANGES, options()) == [RangesPartition(RANGES)]
    assert plan_partitions(RANGES, options(partitionPerQueue="true")) == [
        RangesPartition((RANGES[0],)),
        RangesPartition((RANGES[1],)),
    ]
    assert len(plan_partitions(RANGES, options(minPartitions="4"))) == 4
    assert len(plan_partitions(RANGES, options(maxRecordsPerPartition="5"))) == 4


def test_what_spark_ships_is_plain():
    partition = plan_partitions(RANGES, options())[0]
    assert pickle.loads(pickle.dumps(partition)) == partition
    pickle.loads(pickle.dumps(RocketMQStreamReader(options(), read_schema(None))))


@pytest.mark.parametrize("attempt", [0, 1])
def test_a_retried_task_trusts_neither_connection_nor_route(attempt: int, monkeypatch):
    seen: list[str] = []
    client = SimpleNamespace(
        pool=SimpleNamespace(close=lambda: seen.append("closed")),
        invalidate=lambda topic: seen.append(f"{topic} looked up anew"),
    )

    def read_batches(*_: object, **__: object) -> Iterator[str]:
        seen.append("read")
        yield "batch"

    context = SimpleNamespace(attemptNumber=lambda: attempt)
    monkeypatch.setattr(module, "shared_client", lambda _: client)
    monkeypatch.setattr(module, "read_batches", read_batches)
    monkeypatch.setattr(module, "TaskContext", SimpleNamespace(get=lambda: context))
    projection = to_projection(read_schema(None))
    assert list(read_partition(RangesPartition(RANGES), options(), projection)) == ["batch"]
    assert seen == ["closed", "orders looked up anew", "read"][0 if attempt else 2 :]
