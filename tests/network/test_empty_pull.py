"""How patient a reader is with a broker that does not have the planned messages."""

from __future__ import annotations

import pytest
from tests.support.clocks import FakeClock
from tests.support.fakes import Highest

from pyspark_rocketmq.client import Client, MessageQueue, OffsetRange
from pyspark_rocketmq.client.read.queue_reader import read_messages
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.errors import DataLossError
from pyspark_rocketmq.testing import MockBroker


@pytest.mark.parametrize("delay_ms", [10, 80])
def test_the_pause_after_an_empty_pull_is_the_users(delay_ms: int):
    clock = FakeClock()
    queue = MessageQueue("orders", "broker-a", 0)
    options = ReadOptions(consumer_group="g", empty_pull_delay_ms=delay_ms, missing_patience_ms=900)
    with MockBroker({"orders": 1}) as mq, Client(mq.name_server, clock=clock, random=Highest()) as client:
        reading = read_messages(client, [OffsetRange(queue, 0, 1)], options)
        with pytest.raises(DataLossError, match="cannot be read"):
            list(reading)
    pauses_ms = [round(pause * 1000) for pause in clock.sleeps]
    assert pauses_ms[:3] == [delay_ms, 2 * delay_ms, 4 * delay_ms]
