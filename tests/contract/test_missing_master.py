"""Planning while a real broker of two is killed, or hangs, and comes back."""

from __future__ import annotations

import json
import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.support.patient import patient_producer
from tests.support.wait import eventually

from pyspark_rocketmq.client import Admin, Client, OutgoingMessage
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.offsets.stream_offset import SourceOffset
from pyspark_rocketmq.options import SourceOptions, parse_options
from pyspark_rocketmq.spark.read.schema import read_schema
from pyspark_rocketmq.spark.read.stream import RocketMQStreamReader

pytestmark = pytest.mark.needs("cluster")


@pytest.fixture(scope="module")
def pair() -> Iterator[DevCluster]:
    """Two masters of the test's own."""
    with DevCluster(brokers=2) as cluster:
        yield cluster


def kill(pair: DevCluster) -> Callable[[], object]:
    broker = pair.broker("broker-b")
    broker.kill()
    return broker.start


def hang(pair: DevCluster) -> Callable[[], object]:
    pid = pair.broker("broker-b").pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    return lambda: os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("outage", [kill, hang])
def test_the_other_queues_are_planned_for_half_a_second_more_at_most(
    pair: DevCluster, outage: Callable[[DevCluster], Callable[[], object]]
) -> None:
    topic = f"orders-{outage.__name__}"
    a0, b0 = MessageQueue(topic, "broker-a", 0), MessageQueue(topic, "broker-b", 0)
    with Client(pair.name_server) as client:
        Admin(client).create_topic(topic, queues=1)
        producer = patient_producer(client)

        def send(*queues: MessageQueue) -> None:
            for queue in queues:
                producer.send(OutgoingMessage(topic, b"x"), queue)

        def stored(queue: MessageQueue, count: int) -> None:
            eventually(lambda: client.max_offsets([queue]) == {queue: count}, 20.0)

        given = {"nameServer": pair.name_server, "topic": topic, "startingOffsets": "earliest"}
        options = parse_options(SourceOptions, given, where="readStream", environ={})
        reader = RocketMQStreamReader(options, read_schema(None))
        end: dict[str, Any] = reader.initialOffset()

        def trigger() -> dict[MessageQueue, int]:
            nonlocal end
            end = json.loads(json.dumps(reader.latestOffset(end, reader.getDefaultReadLimit())))
            return dict(SourceOffset.from_dict(end).offsets)

        send(a0, b0)
        stored(a0, 1)
        stored(b0, 1)
        healthy: list[float] = []
        assert trigger() == {a0: 1, b0: 1}
        for count in range(2, 5):
            send(a0)
            stored(a0, count)
            healthy.append(seconds(trigger))
        come_back = outage(pair)
        try:
            outage_s = []
            for count in range(5, 10):
                send(a0)
                stored(a0, count)
                outage_s.append(seconds(trigger))
                assert SourceOffset.from_dict(end).offsets == {a0: count, b0: 1}
            assert statistics.median(outage_s) < statistics.median(healthy) + 0.5
            assert max(outage_s) < max(healthy) + 2.0, "on a busy machine"
        finally:
            come_back()
        eventually(lambda: client.max_offsets([b0]) == {b0: 1}, 60.0)
        send(b0)
        eventually(lambda: trigger() == {a0: 9, b0: 2}, 60.0, what="the broker is read again")
        reader.stop()


def seconds(call: Callable[[], object]) -> float:
    begin = time.monotonic()
    call()
    return time.monotonic() - begin
