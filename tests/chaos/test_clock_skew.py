"""A driver whose clock is a minute off the brokers', in either direction, or jumps while it runs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.mock_chaos import SteppingClock

from pyspark_rocketmq.client import OutgoingMessage
from pyspark_rocketmq.options import SourceOptions, parse_options
from pyspark_rocketmq.spark.schema import read_schema
from pyspark_rocketmq.spark.stream import RocketMQStreamReader
from pyspark_rocketmq.testing import MockCluster

MINUTE_MS = 60_000


class Query:
    """A stream of every topic that begins with ``orders``, from now on, as Spark drives it."""

    def __init__(self, mq: MockCluster, clock: SteppingClock) -> None:
        given = {"nameServer": mq.name_server, "subscribePattern": "orders.*", "routeRefreshMs": "1"}
        options = parse_options(SourceOptions, given, where="readStream", environ={})
        self._reader = RocketMQStreamReader(options, read_schema(None), clock=clock)
        self._at = self._reader.initialOffset()
        self.planned: dict[tuple[str, int], list[int]] = {}

    def trigger(self) -> None:
        limit = self._reader.getDefaultReadLimit()
        end: dict[str, Any] = json.loads(json.dumps(self._reader.latestOffset(self._at, limit)))
        for partition in self._reader.partitions(self._at, end):
            for each in partition.value:
                seen = self.planned.setdefault((each.topic, each.queue_id), [])
                seen += range(each.from_offset, each.until_offset)
        self._at = end

    def stop(self) -> None:
        self._reader.stop()


@pytest.mark.parametrize("skew_ms", [MINUTE_MS, -MINUTE_MS, 0], ids=["ahead", "behind", "right"])
@pytest.mark.parametrize("jump_ms", [0, 3_600_000, -3_600_000], ids=["steady", "forward", "back"])
def test_a_topic_that_is_created_while_the_query_runs_is_read_from_its_first_message(
    skew_ms: int, jump_ms: int
) -> None:
    clock = SteppingClock()
    clock.step(skew_ms)
    with MockCluster({"orders": 1}, brokers=("broker-a", "broker-b")) as mq:
        for _ in range(3):
            mq.send(OutgoingMessage("orders", b"before"))
        query = Query(mq, clock)
        try:
            query.trigger()
            mq.create_topic("orders-new", 2)
            for number in range(10):
                queue = mq.queue("orders-new", number % 2)
                mq.send(OutgoingMessage("orders-new", b"%d" % number), queue)
            mq.send(OutgoingMessage("orders", b"after"))
            clock.step(jump_ms)
            query.trigger()
            mq.send(OutgoingMessage("orders-new", b"10"))
            query.trigger()
        finally:
            query.stop()
    assert query.planned == {
        ("orders", 0): [3],
        ("orders-new", 0): list(range(6)),
        ("orders-new", 1): list(range(5)),
    }
