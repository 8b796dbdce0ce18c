"""A receiver's queues that go to another member of its group, on a mock cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from tests.support.receiver_driver import ReceiverDriver
from tests.support.topics import put
from tests.support.wait import eventually

from pyspark_rocketmq.client import PushConsumer, PushOptions
from pyspark_rocketmq.dstream.receiver.group_options import push_options
from pyspark_rocketmq.dstream.receiver.link import FrameKind
from pyspark_rocketmq.dstream.receiver.receivers import RocketMQReceiver
from pyspark_rocketmq.dstream.receiver.task import ReceiverTask
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.testing import MockCluster, Refuse

pytestmark = pytest.mark.timeout(90)

GROUP = "billing"
QUICK = {"routeRefreshMs": "50", "connectTimeoutMs": "500", "requestTimeoutMs": "600"}


@pytest.fixture
def mq() -> Iterator[MockCluster]:
    with MockCluster({"orders": 1}, brokers=("broker-a", "broker-b")) as cluster:
        yield cluster


@pytest.fixture
def receive(mq: MockCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ReceiverDriver]]:
    """``receive(rate=..., deserialize=...)``: the driver of an ordered receiver, which runs in a thread."""
    quick = lambda options: replace(push_options(options), rebalance_ms=100)  # noqa: E731
    monkeypatch.setattr("pyspark_rocketmq.dstream.receiver.task.push_options", quick)
    started: list[tuple[ReceiverDriver, threading.Thread]] = []

    def start(*, rate: float = -1.0, deserialize: Callable[[bytes], object] | None = None) -> ReceiverDriver:
        driver = ReceiverDriver()
        driver.rate = rate
        options = {**QUICK, "startFrom": "earliest", "ordered": True, "offsetPersistIntervalMs": 100}
        receiver = RocketMQReceiver(mq.name_server, "orders", GROUP, options=options, deserialize=deserialize)
        task = ReceiverTask(receiver, receiver.parsed(), driver.spec)
        thread = threading.Thread(target=task.run, daemon=True)
        thread.start()
        started.append((driver, thread))
        return driver

    yield start
    for driver, thread in started:
        driver.stop = True
        thread.join(60)
        assert not thread.is_alive()


def never(body: bytes) -> object:
    raise ValueError(body)


@pytest.mark.parametrize(
    "given", [{"rate": 0.01}, {"deserialize": never}], ids=["waits for its turn", "is tried again"]
)
def test_a_queue_in_order_goes_to_the_next_member_while_a_pull_of_it_waits(mq, receive, given):
    queues = [mq.queue("orders", 0, broker) for broker in ("broker-a", "broker-b")]
    for queue in queues:
        put(mq, queue, b"1")
    driver = receive(**given)
    eventually(lambda: [mq.committed(GROUP, queue) for queue in queues] == [0, 0], 30, what="the queues")
    for queue in queues:
        put(mq, queue, b"2", b"3")
    options = PushOptions(ordered=True, suspend_ms=200, rebalance_ms=100, commit_ms=100)
    got: list[bytes] = []
    with PushConsumer(GROUP, mq.name_server, options) as other:
        other.subscribe("orders")
        other.start(lambda messages: got.extend(message.body for message in messages))
        eventually(lambda: len(got) >= 2, 5, what="the messages of the queue that went to the member")
        eventually(lambda: 3 in [mq.committed(GROUP, queue) for queue in queues], 30, what="its commit")
    assert got[-2:] == [b"2", b"3"]
    assert len(driver.blocks) <= 1


def test_the_driver_is_told_that_a_broker_refuses_what_a_receiver_pulls(mq, receive):
    queue = mq.queue("orders", 0, "broker-a")
    mq.inject(Refuse(ResponseCode.NO_PERMISSION, "no longer"), on=RequestCode.PULL_MESSAGE, times=None)
    driver = receive()
    told = lambda: [text for kind, _, text in driver.frames if kind == FrameKind.ALIVE and text]  # noqa: E731
    eventually(lambda: any(b"no longer" in text for text in told()), 30, what="the warning")
    assert len(told()) == len(set(told())), "a warning was repeated"
    mq.heal()
    put(mq, queue, b"1")
    eventually(lambda: len(driver.blocks) == 1, 30, what="the message")
