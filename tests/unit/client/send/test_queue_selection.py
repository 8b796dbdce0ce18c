from __future__ import annotations

import pytest
from tests.support.clocks import FakeClock
from tests.support.fakes import Lowest

from pyspark_rocketmq.client.send.queue_selection import QueueSelector, queue_for_key
from pyspark_rocketmq.model import BrokerData, MessageQueue, Permission, QueueData, TopicRoute
from pyspark_rocketmq.remoting.java_hash import java_hash

QUEUES = tuple(
    MessageQueue("orders", name, number) for name in ("broker-a", "broker-b") for number in range(2)
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("Aa", 2112),
        ("BB", 2112),
        ("order-1", -1207111310),
        ("polygenelubricants", -2147483648),
        ("😀", 1772899),
    ],
)
def test_java_hash(text: str, value: int) -> None:
    assert java_hash(text) == value


def test_the_lowest_hash_of_all_has_a_queue() -> None:
    """Math.abs(Integer.MIN_VALUE) is negative in Java; the remainder is taken first there."""
    assert queue_for_key("polygenelubricants", QUEUES[:3]) == QUEUES[2]


def test_queues_take_turns() -> None:
    selector = QueueSelector(clock=FakeClock(), random=Lowest())
    assert [selector.next("orders", QUEUES) for _ in range(5)] == [*QUEUES, QUEUES[0]]


def test_a_broker_that_failed_is_passed_over_for_a_while() -> None:
    clock = FakeClock()
    selector = QueueSelector(clock=clock, random=Lowest())
    selector.avoid("broker-a")
    assert {selector.next("orders", QUEUES).broker_name for _ in range(8)} == {"broker-b"}
    clock.now_s += 6
    assert {selector.next("orders", QUEUES).broker_name for _ in range(8)} == {"broker-a", "broker-b"}


def test_a_failed_broker_is_better_than_none() -> None:
    selector = QueueSelector(clock=FakeClock(), random=Lowest())
    selector.avoid("broker-a")
    assert selector.next("orders", QUEUES[:2]) in QUEUES[:2]


def test_writable_queues_are_those_of_the_route_that_is_given() -> None:
    selector = QueueSelector(clock=FakeClock(), random=Lowest())
    broker = BrokerData("broker-a", "c", {0: "127.0.0.1:10911"})
    for queues in (2, 3, 2):
        route = TopicRoute("orders", (broker,), (QueueData("broker-a", 4, queues, Permission.WRITE),))
        for _ in range(2):
            assert selector.write_queues(route) == route.write_queues()
            assert len(selector.write_queues(route)) == queues
