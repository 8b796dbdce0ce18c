"""Which messages an INSERT of a batch reads for bad records: those that came since the last one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.topics import put

from pyspark_rocketmq.client import MessageQueue
from pyspark_rocketmq.errors import RocketMQError, SqlError
from pyspark_rocketmq.options import BodyFormat, SourceOptions, parse_options
from pyspark_rocketmq.remoting.codes import RequestCode
from pyspark_rocketmq.sql.parse import parse_statements
from pyspark_rocketmq.sql.plan.bad_records import SentBadRecords
from pyspark_rocketmq.sql.tables import Table
from pyspark_rocketmq.testing import MockBroker

SPARK: Any = SimpleNamespace(conf=SimpleNamespace(get=lambda _: "UTC"))
ZERO, ONE = (MessageQueue("orders", "broker-a", number) for number in range(2))


@pytest.fixture
def mq() -> Iterator[MockBroker]:
    with MockBroker({"orders": 2}) as broker:
        yield broker


def declare(mq: MockBroker, more: str = "", topic: str = "orders") -> Table:
    (declared,) = parse_statements(
        f"CREATE TABLE o (a INT) WITH ('connector' = 'rocketmq', 'Topic' = '{topic}', 'tags' = 'A', "
        f"'nameServer' = '{mq.name_server}', 'badRecords' = 'dead-letter', 'badRecordsTopic' = 'bad'{more})"
    )
    return Table.of(declared, default_format=BodyFormat.JSON)


def sent_now(sent: SentBadRecords, table: Table) -> list[dict[MessageQueue, tuple[int, int]]]:
    """Send what is unsent, and return the ranges of each part as its options say them."""
    found = []
    for part in sent.unsent(SPARK, table):
        options = parse_options(SourceOptions, part.read, where="read")
        assert options.selector.tags == frozenset({"A"})
        assert set(options.assign) == part.ranges.keys()
        starts, ends = options.start_policy(streaming=False).offsets, options.end_policy().offsets
        found.append({queue: (starts[queue], ends[queue]) for queue in options.assign})
        sent.add(table, part)
    return found


def test_each_insert_sends_what_came_since_the_last_one(mq):
    table, sent = declare(mq), SentBadRecords()
    assert sent_now(sent, table) == []
    put(mq, ZERO, b"1", b"2")
    assert sent_now(sent, table) == [{ZERO: (0, 2)}]
    assert sent_now(sent, table) == []
    sent.begin_text()
    put(mq, ZERO, b"3")
    put(mq, ONE, b"4")
    assert sent_now(sent, table) == [{ZERO: (2, 3), ONE: (0, 1)}]
    mq.create_topic("orders", 3)
    new = MessageQueue("orders", "broker-a", 2)
    put(mq, new, b"5")
    assert sent_now(sent, table) == [{new: (0, 1)}]
    assert sent_now(SentBadRecords(), table) == [{ZERO: (0, 3), ONE: (0, 1), new: (0, 1)}]


def test_what_could_not_be_sent_is_sent_by_the_next_one(mq):
    table, sent = declare(mq), SentBadRecords()
    put(mq, ZERO, b"1")
    (part,) = sent.unsent(SPARK, table)
    put(mq, ZERO, b"2")
    assert sent_now(sent, table) == [{ZERO: (0, 2)}]
    sent.add(table, part)
    assert sent_now(sent, table) == []


def test_tables_are_sent_by_themselves(mq):
    table, again, sent = declare(mq), declare(mq), SentBadRecords()
    put(mq, ZERO, b"1")
    assert sent_now(sent, table) == sent_now(sent, again) == [{ZERO: (0, 1)}]
    assert sent_now(sent, table) == sent_now(sent, again) == []


def test_a_start_that_moves_leaves_and_fills_gaps(mq, client):
    table, sent = declare(mq, ", 'startingOffsets' = 'group', 'consumerGroup' = 'g'"), SentBadRecords()
    put(mq, ZERO, *(b"%d" % number for number in range(10)))
    client.commit_offsets("g", {ZERO: 4})
    assert sent_now(sent, table) == [{ZERO: (4, 10)}]
    put(mq, ZERO, b"10", b"11", b"12")
    client.commit_offsets("g", {ZERO: 12})
    assert sent_now(sent, table) == [{ZERO: (12, 13)}]
    client.commit_offsets("g", {ZERO: 0})
    assert sent_now(sent, table) == [{ZERO: (0, 4)}, {ZERO: (10, 12)}]
    assert sent_now(sent, table) == []


def test_a_topic_that_was_created_again_is_sent_from_its_begin(mq):
    table, sent = declare(mq), SentBadRecords()
    put(mq, ZERO, b"1", b"2", b"3")
    assert sent_now(sent, table) == [{ZERO: (0, 3)}]
    mq.delete_topic("orders")
    mq.create_topic("orders", 2)
    put(mq, ZERO, b"4")
    assert sent_now(sent, table) == [{ZERO: (0, 1)}]
    assert sent_now(sent, table) == []


@pytest.mark.parametrize(
    "bounds",
    [
        {"endingOffsets": json.dumps({"orders": {"broker-a": {"0": 1, "1": 0}}})},
        {"endingTimestamp": "1"},
    ],
)
def test_an_end_of_the_table_is_kept(mq, bounds):
    table = declare(mq, "".join(f", '{name}' = '{value}'" for name, value in bounds.items()))
    sent = SentBadRecords()
    put(mq, ZERO, b"1", b"2", b"3")
    expected = [{ZERO: (0, 1)}] if "endingOffsets" in bounds else []
    assert sent_now(sent, table) == expected
    assert sent_now(sent, table) == []


def test_committed_batches_are_sent_once_as_a_whole(mq):
    table, sent = declare(mq, ", 'isolation' = 'read_committed'"), SentBadRecords()
    (part,) = sent.unsent(SPARK, table)
    assert (part.ranges, part.read["isolation"]) == (None, "read_committed")
    sent.add(table, part)
    assert sent.unsent(SPARK, table) == []
    sent.begin_text()
    assert sent.unsent(SPARK, table) == [part]


def test_an_error_of_a_broker_or_of_an_option_is_told(mq):
    with pytest.raises(SqlError, match="startingOffsets"):
        SentBadRecords().unsent(SPARK, declare(mq, ", 'startingOffsets' = 'never'"))
    mq.fail(RequestCode.GET_MAX_OFFSET, code=16, times=None)
    with pytest.raises(RocketMQError, match="orders"):
        SentBadRecords().unsent(SPARK, declare(mq))
