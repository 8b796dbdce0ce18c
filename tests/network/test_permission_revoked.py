"""A permission that is revoked while a query runs ends it: an idle query would look like an empty topic."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.support.topics import put

from pyspark_rocketmq.errors import PermissionDeniedError
from pyspark_rocketmq.options import SourceOptions, parse_options
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.spark.read.schema import read_schema
from pyspark_rocketmq.spark.read.stream import RocketMQStreamReader
from pyspark_rocketmq.testing import MockCluster, Refuse

pytestmark = pytest.mark.timeout(60)

FORBIDDEN = Refuse(ResponseCode.NO_PERMISSION, "the topic is forbidden")
BUSY = Refuse(ResponseCode.SYSTEM_BUSY)


class Query:
    """A running query after its first batch."""

    def __init__(self, mq: MockCluster, **options: str) -> None:
        self.mq = mq
        given = {"nameServer": mq.name_server, "topic": "orders", "startingOffsets": "earliest"}
        given |= {"routeRefreshMs": "1", "requestTimeoutMs": "300", **options}
        parsed = parse_options(SourceOptions, given, where="readStream", environ={})
        self.reader = RocketMQStreamReader(parsed, read_schema(None))
        self.end: dict[str, Any] = self.reader.initialOffset()
        self.send(0)
        self.send(1)
        assert self.trigger()

    def send(self, queue_id: int, count: int = 40) -> None:
        """Send messages of 1 KiB, more than a trigger takes."""
        put(self.mq, self.mq.queue("orders", queue_id), *[b"x" * 1024] * count)

    def trigger(self) -> bool:
        """Plan the next batch; return whether it has messages."""
        start, self.end = (
            self.end,
            json.loads(json.dumps(self.reader.latestOffset(self.end, self.reader.getDefaultReadLimit()))),
        )
        return self.end != start


@pytest.fixture
def mq() -> Iterator[MockCluster]:
    with MockCluster({"orders": 2}) as cluster:
        yield cluster


@pytest.fixture
def query(mq: MockCluster) -> Iterator[Callable[..., Query]]:
    made: list[Query] = []

    def make(**options: str) -> Query:
        made.append(Query(mq, **options))
        return made[-1]

    yield make
    for one in made:
        one.reader.stop()


ASKED = {
    "the ends of queues": ({}, RequestCode.GET_MAX_OFFSET),
    "sizes of messages": ({"maxBytesPerTrigger": "10k"}, RequestCode.PULL_MESSAGE),
    "times of messages": (
        {"maxOffsetsPerTrigger": "7", "eventTimeAlignment": "store"},
        RequestCode.PULL_MESSAGE,
    ),
    "whether messages that were read are still there": ({}, RequestCode.PULL_MESSAGE),
}


@pytest.mark.parametrize("what", ASKED)
def test_a_broker_that_refuses_what_planning_asks_ends_the_query(mq, query, what: str) -> None:
    options, code = ASKED[what]
    running = query(**options)
    running.send(0)
    refused = mq.inject(FORBIDDEN, on=code, times=None)
    with pytest.raises(PermissionDeniedError):
        running.trigger()
    assert refused.hits
    mq.heal()
    assert running.trigger()


def test_a_broker_that_refuses_is_not_said_to_be_away(mq, query, caplog) -> None:
    running = query()
    mq.inject(FORBIDDEN, on=RequestCode.GET_MAX_OFFSET, times=None)
    with pytest.raises(PermissionDeniedError):
        running.trigger()
    assert "broker-a refuses to tell the ends of its queues: " in caplog.text
    assert "does not answer" not in caplog.text


def test_one_broker_of_two_that_refuses_ends_the_query_though_the_other_answers() -> None:
    with MockCluster({"orders": 1}, brokers=("broker-a", "broker-b")) as mq:
        given = {"nameServer": mq.name_server, "topic": "orders", "startingOffsets": "earliest"}
        parsed = parse_options(SourceOptions, given, where="readStream", environ={})
        reader = RocketMQStreamReader(parsed, read_schema(None))
        put(mq, mq.queue("orders", 0, "broker-a"), b"x")
        end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
        mq.inject(FORBIDDEN, on=RequestCode.GET_MAX_OFFSET, times=None, broker="broker-b")
        put(mq, mq.queue("orders", 0, "broker-a"), b"x")
        with pytest.raises(PermissionDeniedError):
            reader.latestOffset(end, reader.getDefaultReadLimit())
        reader.stop()


def test_new_queues_that_may_not_be_read_end_the_query(mq, query) -> None:
    running = query()
    mq.create_topic("orders", 3)
    mq.inject(FORBIDDEN, on=RequestCode.GET_MIN_OFFSET, times=None)
    running.send(2)

    def until_it_is_seen() -> None:
        while True:
            running.trigger()

    with pytest.raises(PermissionDeniedError):
        until_it_is_seen()


@pytest.mark.parametrize("what", ["sizes of messages", "times of messages"])
def test_what_a_busy_broker_does_not_say_is_waited_for(mq, query, what: str) -> None:
    options, code = ASKED[what]
    running = query(**options)
    running.send(0)
    busy = mq.inject(BUSY, on=code, times=None)
    running.trigger()
    assert busy.hits
    mq.heal()
    assert running.trigger()
