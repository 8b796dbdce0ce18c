from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.errors import DataLossError
from pyspark_rocketmq.model import LostRange, MessageQueue, MessageSelector, OffsetRange, RangeReport
from pyspark_rocketmq.options import SourceOptions, parse_options
from pyspark_rocketmq.spark.read import partition as module
from pyspark_rocketmq.spark.read.partition import (
    RangesPartition,
    plan_partitions,
    read_options,
    read_partition,
)
from pyspark_rocketmq.spark.read.schema import read_schema, to_projection
from pyspark_rocketmq.spark.read.stream import RocketMQStreamReader

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


def reading(monkeypatch, rows: int, *reports: RangeReport) -> list[object]:
    """Read RANGES by a reader that hands out so many rows and these reports."""

    def read_batches(*_: object, on_report: Callable[[RangeReport], None], **__: object) -> Iterator[object]:
        yield SimpleNamespace(num_rows=rows)
        for report in reports:
            on_report(report)

    monkeypatch.setattr(module, "task_client", lambda _: None)
    monkeypatch.setattr(module, "read_batches", read_batches)
    return list(read_partition(RangesPartition(RANGES), options(), to_projection(read_schema(None))))


WHOLE = tuple(RangeReport(offsets=r, rows=len(r), filtered=0, gaps=0) for r in RANGES)


def test_a_task_pulls_as_its_options_say(monkeypatch):
    seen = []

    def read_batches(*given: object, on_report: Callable[[RangeReport], None]) -> Iterator[object]:
        seen.append(given)
        yield SimpleNamespace(num_rows=16)
        for report in WHOLE:
            on_report(report)

    monkeypatch.setattr(module, "task_client", lambda _: None)
    monkeypatch.setattr(module, "read_batches", read_batches)
    given = options(
        pullsInFlight="3", pullBatchSize="7", consumerGroup="g", tags="x", failOnDataLoss="false",
        emptyPullDelayMs="11", onCorrupt="null", checkCrc="true",
    )  # fmt: skip
    projection = to_projection(read_schema(["body", "tags"], body_as="string"), on_corrupt=given.on_corrupt)
    assert len(list(read_partition(RangesPartition(RANGES), given, projection))) == 1
    ((_, ranges, how, decode),) = seen
    assert tuple(ranges) == RANGES
    assert how == ReadOptions(
        consumer_group="g",
        selector=given.selector,
        fail_on_data_loss=False,
        pull_batch_size=7,
        pulls_in_flight=3,
        empty_pull_delay_ms=11,
    )
    assert given.selector != MessageSelector()
    assert [column.name for column in decode.columns] == ["body", "tags"]
    assert (decode.body_as, decode.on_corrupt, decode.check_crc) == ("string", "null", True)
    assert read_options(options()).fail_on_data_loss is True


def test_partitions_differ_by_their_ranges():
    one, other = RangesPartition(RANGES), RangesPartition(RANGES[:1])
    assert one != other
    assert one != SimpleNamespace(value=RANGES)
    assert len({one, RangesPartition(RANGES), other}) == 2


@pytest.mark.parametrize(
    ("rows", "reports", "text"),
    [
        (15, WHOLE, "15 rows were returned, but 16 read"),
        (17, WHOLE, "17 rows were returned, but 16 read"),
        (10, WHOLE[:1], "the ranges that were read are not those that were planned"),
        (26, (*WHOLE, WHOLE[0]), "the ranges that were read are not those that were planned"),
        (
            9,
            (RangeReport(offsets=RANGES[0], rows=9, filtered=0, gaps=0), WHOLE[1]),
            "do not make up 10 offsets",
        ),
        (0, (RangeReport(offsets=RANGES[0], rows=11, filtered=0, gaps=-1), WHOLE[1]), "do not make up 10"),
    ],
)
def test_rows_that_do_not_add_up_fail_the_task(monkeypatch, rows: int, reports, text: str):
    with pytest.raises(DataLossError, match=text) as raised:
        reading(monkeypatch, rows, *reports)
    assert raised.value.condition == "RANGE_UNACCOUNTED"


def test_a_task_says_what_became_of_its_offsets(monkeypatch, caplog):
    lost = LostRange(OffsetRange(A1, 4, 6), "OFFSETS_EXPIRED")
    with caplog.at_level(logging.INFO):
        reading(
            monkeypatch,
            10,
            RangeReport(offsets=RANGES[0], rows=7, filtered=3, gaps=0),
            RangeReport(offsets=RANGES[1], rows=3, filtered=0, gaps=1, lost=(lost,)),
        )
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        (
            "WARNING",
            (
                "16 offsets = 10 rows + 3 filtered + 1 gaps + 2 lost of "
                "orders@broker-a:0[0, 10), orders@broker-a:1[4, 10)"
            ),
        ),
        ("WARNING", "2 messages lost (OFFSETS_EXPIRED): orders@broker-a:1[4, 6)"),
    ]
    caplog.clear()
    with caplog.at_level(logging.INFO):
        reading(monkeypatch, 16, *WHOLE)
    assert [record.levelname for record in caplog.records] == ["INFO"]
