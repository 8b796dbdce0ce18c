"""A driver whose clock is wrong: topics come into being, brokers go and come back, nothing is left out."""

from __future__ import annotations

import json
import os
import random

import pytest
from tests.support.clocks import WrongClock
from tests.support.wait import eventually

from pyspark_rocketmq.client import Client, OffsetRange, OutgoingMessage
from pyspark_rocketmq.client.read.queue_reader import read_messages
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.options import SourceOptions, parse_options
from pyspark_rocketmq.spark.read.partition import RangesPartition
from pyspark_rocketmq.spark.read.schema import read_schema
from pyspark_rocketmq.spark.read.stream import RocketMQStreamReader
from pyspark_rocketmq.testing import MockCluster

ROUNDS = 40 if int(os.environ.get("CHAOS_KILLS", "1")) >= 20 else 12
BROKERS = ("broker-a", "broker-b")


class Run:
    """A query of all topics: its checkpoint, and what it has read."""

    def __init__(self, mq: MockCluster) -> None:
        given = {"nameServer": mq.name_server, "subscribePattern": ".*", "routeRefreshMs": "1"}
        self._options = parse_options(SourceOptions, given, where="readStream", environ={})
        self._reader = self._started()
        self._at = self._reader.initialOffset()
        self.rows: dict[MessageQueue, list[bytes]] = {}
        self._client = Client(mq.name_server)

    def _started(self) -> RocketMQStreamReader:
        return RocketMQStreamReader(self._options, read_schema(None))

    def plan(self) -> list[OffsetRange]:
        """Plan a batch; it is read when its brokers are there."""
        end = json.loads(json.dumps(self._reader.latestOffset(self._at, self._reader.getDefaultReadLimit())))
        planned = self._reader.partitions(self._at, end) if end != self._at else ()
        self._at = end
        return [offsets for each in planned if isinstance(each, RangesPartition) for offsets in each.value]

    def read(self, ranges: list[OffsetRange]) -> None:
        for offsets in ranges:
            read = read_messages(self._client, [offsets], ReadOptions(consumer_group="skew"))
            self.rows.setdefault(offsets.queue, []).extend(message.body for message in read)

    def restart(self) -> None:
        self._reader.stop()
        self._reader = self._started()

    def close(self) -> None:
        self._reader.stop()
        self._client.close()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("ahead_s", [-3600, -60, -1, 1, 60, 3600])
def test_topics_that_are_created_later_are_read_whole_whatever_the_drivers_clock_says(ahead_s: float) -> None:
    dice = random.Random(f"{os.environ.get('CHAOS_SEED', '1')} {ahead_s}")
    clock = WrongClock(-ahead_s)
    with MockCluster({"topic-0": 2}, brokers=BROKERS, clock=clock) as mq:
        sent: dict[MessageQueue, list[bytes]] = {}

        def send(queue: MessageQueue) -> None:
            log = sent.setdefault(queue, [])
            log.append(f"{queue} {len(log)}".encode())
            mq.send(OutgoingMessage(queue.topic, log[-1]), queue=queue)

        for queue in mq.queues("topic-0"):
            mq.send(OutgoingMessage("topic-0", b"before the start"), queue=queue)
        run = Run(mq)
        run.read(run.plan())
        for number in range(1, ROUNDS + 1):
            if dice.random() < 0.4:
                topic = f"topic-{number}"
                mq.create_topic(topic, dice.randint(1, 3))
                for queue in mq.queues(topic):
                    for _ in range(dice.randint(0, 3)):
                        send(queue)
            away = dice.choice((None, None, *BROKERS))
            if away is not None:
                mq.unregister(away)
            for queue in dice.sample(mq.queues("topic-0"), 2):
                send(queue)
            planned = run.plan()
            if away is not None:
                mq.register(away)
            run.read(planned)
            if dice.random() < 0.3:
                run.restart()
        run.restart()

        def all_read() -> bool:
            run.read(run.plan())  # a broker that is slow on a busy machine is read in the next batch
            return run.rows == {queue: log for queue, log in sent.items() if log}

        eventually(all_read, 30.0, what="every message is read once")
        run.close()
        assert len(sent) > 4
