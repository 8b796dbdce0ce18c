"""Code of the user's that takes longer than everything waits for, while connections break."""

from __future__ import annotations

import os
import time

import pytest

from pyspark_rocketmq.client import Client, MessageQueue, OffsetRange, OutgoingMessage
from pyspark_rocketmq.client.read.queue_reader import DecodeOptions, read_batches
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.remoting.codes import RequestCode
from pyspark_rocketmq.testing import HangUp, MockCluster, PullLimits

STALL_MS = 200
ROUNDS = 40 if int(os.environ.get("CHAOS_KILLS", "1")) >= 20 else 6
BATCH = 16
QUEUES = [MessageQueue("orders", name, 0) for name in ("broker-a", "broker-b")]


@pytest.fixture
def mq():
    limits = PullLimits(messages=BATCH)
    with MockCluster({"orders": 1}, brokers=("broker-a", "broker-b"), limits=limits) as cluster:
        for number in range(ROUNDS // 2 * BATCH):
            for queue in QUEUES:
                cluster.send(OutgoingMessage("orders", b"%d" % number), queue)
        yield cluster


def test_a_reader_survives_code_that_is_slower_than_its_patience(mq: MockCluster) -> None:
    """It takes longer than ``stall_timeout_ms``, and the pull that was sent before it is lost."""
    end = mq.max_offset(QUEUES[0])
    options = ReadOptions(consumer_group="slow", stall_timeout_ms=STALL_MS, pulls_in_flight=1)
    found: list[tuple[str, int]] = []
    with Client(mq.name_server) as client:
        for batch in read_batches(
            client,
            [OffsetRange(queue, 0, end) for queue in QUEUES],
            options,
            DecodeOptions(columns=("brokerName", "queueOffset"), max_batch_rows=BATCH),
        ):
            columns = (batch.column(name).to_pylist() for name in ("brokerName", "queueOffset"))
            found += zip(*columns, strict=True)
            mq.inject(HangUp(), on=RequestCode.PULL_MESSAGE)
            time.sleep(STALL_MS * 2 / 1000)  # the user's code at work
    assert found == [(queue.broker_name, offset) for queue in QUEUES for offset in range(end)]
