"""What tasks leave behind in their process: one client, few lines of log."""

from __future__ import annotations

import logging

import pytest

from pyspark_rocketmq.client import OutgoingMessage
from pyspark_rocketmq.client.net.connection import Connection
from pyspark_rocketmq.model import OffsetRange
from pyspark_rocketmq.options import SourceOptions, parse_options
from pyspark_rocketmq.spark.read.partition import RangesPartition, read_partition
from pyspark_rocketmq.spark.read.schema import read_schema, to_projection
from pyspark_rocketmq.testing import MockBroker


def read(mq: MockBroker) -> int:
    ranges = (OffsetRange(mq.queue("orders"), 0, 150), OffsetRange(mq.queue("orders"), 150, 300))
    options = parse_options(SourceOptions, {"nameServer": mq.name_server, "topic": "orders"}, environ={})
    batches = read_partition(RangesPartition(ranges), options, to_projection(read_schema(None)))
    return sum(batch.num_rows for batch in batches)


@pytest.fixture
def mq():
    with MockBroker({"orders": 1}) as broker:
        for number in range(300):
            broker.send(OutgoingMessage("orders", b"%d" % number))
        yield broker


def test_tasks_of_a_process_share_one_client(mq: MockBroker, monkeypatch: pytest.MonkeyPatch):
    opened: list[str] = []
    connect = Connection.__init__

    def count(self: Connection, addr: str, *args: object, **more: object) -> None:
        opened.append(addr)
        connect(self, addr, *args, **more)

    monkeypatch.setattr(Connection, "__init__", count)
    for _ in range(20):
        assert read(mq) == 300
    assert len(opened) == len(set(opened)) <= 2, "one connection a server, however many tasks"


def test_a_read_logs_by_range_not_by_message(mq: MockBroker, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.DEBUG, "pyspark_rocketmq"):
        assert read(mq) == 300
    assert 0 < len(caplog.records) < 10
