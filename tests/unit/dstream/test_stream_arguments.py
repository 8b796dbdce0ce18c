"""Arguments of the wrong kind are refused by one line, before anything runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyspark_rocketmq.dstream import (
    ConsumerStrategy,
    LocationStrategies,
    OffsetRange,
    RocketMQUtils,
    TopicQueueId,
)
from pyspark_rocketmq.dstream.arguments import check_reading, check_stream
from pyspark_rocketmq.dstream.ranges import to_ranges
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import MessageQueue

QUEUE, RANGE = MessageQueue("t", "a", 0), OffsetRange.create("t", 0, "a", 0, 9)
EVENLY = LocationStrategies.PreferConsistent


@pytest.mark.parametrize("ranges", [None, RANGE, [("t", 0, "a", 0, 9)], {TopicQueueId("t", 0): RANGE}, "t"])
def test_ranges_are_a_list(ranges):
    with pytest.raises(OptionError, match=r"offset ranges are a list of OffsetRange.create"):
        to_ranges(ranges)


def test_a_mapping_of_ranges_has_queue_ids():
    with pytest.raises(OptionError, match=r"under TopicQueueId\(topic, queue_id\)"):
        to_ranges({("t", 0): [RANGE]})


@pytest.mark.parametrize(("begin", "end"), [("0", "9"), (0.0, 9.0), (None, 9), (0, None), (5, 1), (-1, 5)])
def test_the_offsets_of_a_range_are_whole_numbers(begin, end):
    with pytest.raises(OptionError, match="an offset range needs whole numbers, 0 <= from_offset"):
        OffsetRange.create("t", 0, "a", begin, end)


def test_numbers_of_a_data_frame_are_whole_numbers():
    one = np.int64(1)
    assert OffsetRange.create("t", one, "a", one, one).queue == MessageQueue("t", "a", 1)
    assert ConsumerStrategy.specificOffset({QUEUE: one}).offsets == {QUEUE: 1}


def test_a_queue_id_is_a_whole_number():
    with pytest.raises(OptionError, match="a queue id is a whole number"):
        OffsetRange.create("t", "0", "a", 0, 9)


@pytest.mark.parametrize("offset", ["5", 5.5, None, -3])
def test_a_specific_offset_is_a_whole_number(offset):
    with pytest.raises(OptionError, match=r"an offset is 0 or more, -1 \(latest\) or -2"):
        ConsumerStrategy.specificOffset({QUEUE: offset})


@pytest.mark.parametrize("hosts", [{"t": "h"}, {("t", 0): "h"}, {QUEUE: ["h", "i"]}, {QUEUE: None}])
def test_hosts_of_no_queue_are_refused_instead_of_ignored(hosts):
    with pytest.raises(OptionError, match="hosts are texts, given by MessageQueue"):
        LocationStrategies.PreferFixed(hosts)
    assert LocationStrategies.PreferFixed({QUEUE: "h", TopicQueueId("t", 1): "i"}).locations([QUEUE], []) == {
        QUEUE: "h"
    }


def test_a_location_a_handler_and_a_strategy_are_of_their_kinds():
    check_reading(EVENLY, len)
    check_stream(ConsumerStrategy.latest(), EVENLY, None, autoCommit=True)
    with pytest.raises(OptionError, match=r"locationStrategy is LocationStrategies\.PreferConsistent"):
        check_reading("PreferConsistent", None)
    with pytest.raises(OptionError, match="messageHandler is a function"):
        check_stream(ConsumerStrategy.earliest, EVENLY, "body")
    with pytest.raises(OptionError, match=r"consumerStrategy is ConsumerStrategy\.earliest"):
        check_stream("latest", EVENLY, None)


@pytest.mark.parametrize("flag", ["false", "true", 0, None])
def test_a_flag_is_no_text(flag):
    """Where the text "false" was true, and the stream committed."""
    with pytest.raises(OptionError, match="autoCommit is True or False"):
        check_stream(ConsumerStrategy.earliest, EVENLY, None, autoCommit=flag)


def test_groups_and_topics_are_texts():
    """They failed with an AttributeError or a TypeError of their parser."""
    context: Any = None  # nothing is asked of it
    with pytest.raises(OptionError, match=r"^groupId must be a text, not None"):
        RocketMQUtils.createRDD(context, None, [RANGE])  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="topics must be a text, not None"):
        RocketMQUtils.createMQPullStream(context, "g", None)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="each topic must be a text, not None"):
        RocketMQUtils.createMQPullStream(context, "g", ["t", None])  # type: ignore[list-item]
    with pytest.raises(OptionError, match="groupId must be a text, not 5"):
        RocketMQUtils.createRDD(context, 5, [RANGE])  # type: ignore[arg-type]
