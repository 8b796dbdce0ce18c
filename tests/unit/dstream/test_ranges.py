from __future__ import annotations

import copy
import pickle
from types import SimpleNamespace

import pytest

from pyspark_rocketmq.dstream import OffsetRange, OffsetRanges, TopicQueueId
from pyspark_rocketmq.dstream.ranges import reads_now, to_ranges
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import MessageQueue
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


def test_the_readme_s_offset_range_is_refused_with_the_right_one():
    with pytest.raises(OptionError, match=r"OffsetRange.create\(topic, queue_id.*not the group"):
        OffsetRange("groupId", 1, "broker-1", 0, 100)
    filed = {TopicQueueId("topic", 1): [OffsetRange.create("groupId", 1, "broker-1", 0, 100)]}
    with pytest.raises(OptionError, match=r"the topic \(not the group"):
        to_ranges(filed)
    queue = MessageQueue("t", "a", 1)
    assert OffsetRange(queue=queue, from_offset=0, until_offset=9) == FULL == copy.deepcopy(FULL)


@pytest.fixture
def in_task(monkeypatch):
    """``in_task(partition, attempt, range)``: a task that reads a range."""

    def begin(partition, attempt, reads=None):
        context = SimpleNamespace(partitionId=lambda: partition, taskAttemptId=lambda: attempt)
        monkeypatch.setattr("pyspark_rocketmq.dstream.ranges.TaskContext.get", lambda: context)
        if reads is not None:
            reads_now([reads])

    monkeypatch.setattr("pyspark_rocketmq.dstream.ranges._reading", None)
    return begin


def test_the_readme_s_look_up_is_refused_where_it_would_name_another_queue(in_task):
    ranges = to_ranges([EMPTY, FULL, SECOND])  # queue 0 has no news: partition 0 reads queue 1
    in_task(0, 7, FULL)
    with pytest.raises(OptionError, match=r"offsetRanges\[TaskContext.get\(\).partitionId\(\)\]") as told:
        ranges.get(TopicQueueId("t", 0))
    assert "t@a:1[0, 9)" in str(told.value)
    assert ranges.get(TopicQueueId("t", 1)) == (FULL, SECOND), "that of a message's own queue"


def test_a_look_up_by_the_partition_is_right_where_numbers_and_queues_agree(in_task):
    ranges = to_ranges([FULL, SECOND])
    in_task(1, 7, SECOND)
    assert ranges.get(TopicQueueId("t", 1)) == (FULL, SECOND)


def test_any_look_up_is_free_after_a_shuffle_and_at_the_driver(in_task):
    ranges = to_ranges([EMPTY, FULL, SECOND])
    assert ranges.get(TopicQueueId("t", 0)) == (EMPTY,)
    in_task(0, 7, FULL)
    in_task(0, 8)  # another task of the same process, which reads no ranges
    assert ranges.get(TopicQueueId("t", 0)) == (EMPTY,)


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
