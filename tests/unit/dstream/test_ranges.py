from __future__ import annotations

import pickle

import pytest

from pyspark_rocketmq import dstream
from pyspark_rocketmq.dstream import OffsetRange, OffsetRanges, TopicQueueId
from pyspark_rocketmq.dstream.ranges import to_ranges
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options import CompatibilityWarning, parse_direct_options
from pyspark_rocketmq.spark.task_client import task_client

FULL, EMPTY = OffsetRange.create("t", 1, "a", 0, 9), OffsetRange.create("t", 0, "a", 4, 4)
SECOND = OffsetRange.create("t", 1, "b", 2, 3)


def test_the_position_is_the_partition_and_empty_ranges_come_last():
    ranges = to_ranges([EMPTY, FULL, SECOND])
    assert ranges == (FULL, SECOND, EMPTY)
    assert ranges.planned == 10
    assert ranges.get(TopicQueueId("t", 1)) == (FULL, SECOND), "one a broker"
    assert ranges.get(TopicQueueId("t", 7)) == ()
    assert to_ranges(ranges.toDict()) == ranges
    assert isinstance(pickle.loads(pickle.dumps(ranges)), OffsetRanges)


def test_a_range_under_another_key_is_refused():
    with pytest.raises(OptionError, match="filed under another queue"):
        to_ranges({TopicQueueId("t", 0): [FULL]})


def test_both_spellings_are_one_class():
    assert dstream.RocketMqUtils is dstream.RocketMQUtils


def test_defaults_are_rocketmq_sparks():
    options = parse_direct_options({"nameServer": "h:1"})
    assert options.client.request_timeout_ms == 3_000
    assert options.pull_batch_size == 32
    assert options.max_speed_per_partition is None
    assert parse_direct_options({"nameServer": "h:1", "pull.timeout.ms": 5}).client.request_timeout_ms == 5
    assert parse_direct_options({"nameServer": "h:1", "pull.max.speed.per.partition": "-1"}) == options


def test_the_consumer_cache_s_options_are_taken_with_one_warning():
    caches = {"initialCapacity": 16, "maxCapacity": 64, "loadFactor": 0.75}
    given = {f"pull.consumer.cache.{name}": value for name, value in caches.items()}
    with pytest.warns(CompatibilityWarning, match="pooled by broker") as told:
        parse_direct_options({"nameServer": "h:1", **given})
    assert len(told) == 1


def test_tasks_of_a_process_share_their_connections():
    one, other = (parse_direct_options({"nameServer": "h:1"}).source(("t",), "g") for _ in range(2))
    assert task_client(one.client) is task_client(other.client)
