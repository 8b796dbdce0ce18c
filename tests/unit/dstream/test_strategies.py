from __future__ import annotations

import pytest

from pyspark_rocketmq.dstream import ConsumerStrategy, LocationStrategies, TopicQueueId
from pyspark_rocketmq.dstream.arguments import with_kafka_reset
from pyspark_rocketmq.dstream.strategies import start_policy
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import AtOffsets, Earliest, GroupOffsets, Latest, MessageQueue
from pyspark_rocketmq.options import CompatibilityWarning

Q0, Q1, Q2 = (MessageQueue("t", "a", number) for number in range(3))


@pytest.mark.parametrize("force", [False, True])
def test_earliest_and_latest_ask_the_group_first_whatever_force_special_says(force):
    assert start_policy(ConsumerStrategy.earliest, {}, force_special=force) == GroupOffsets(Earliest())
    assert start_policy(ConsumerStrategy.latest(), {}, force_special=force) == GroupOffsets(Latest())


def test_specific_offsets_are_for_queues_where_the_group_has_none_unless_forced():
    strategy = ConsumerStrategy.specificOffset(
        {Q0: 7, Q1: ConsumerStrategy.LATEST, Q2: ConsumerStrategy.EARLIEST}
    )
    committed = {Q0: 3, Q1: None, Q2: 0}
    assert start_policy(strategy, committed, force_special=False) == AtOffsets(
        {Q0: 3, Q1: Latest(), Q2: 0}, GroupOffsets(Earliest())
    )
    assert start_policy(strategy, {}, force_special=True) == AtOffsets(
        {Q0: 7, Q1: Latest(), Q2: Earliest()}, Earliest()
    )


def test_the_default_is_for_queues_that_are_not_listed():
    strategy = ConsumerStrategy.specificOffset({}, ConsumerStrategy.LATEST)
    assert start_policy(strategy, {}, force_special=True) == AtOffsets({}, Latest())


@pytest.mark.parametrize(
    ("offsets", "default", "text"),
    [
        ({Q0: -3}, -2, "0 or more, -1"),
        ({("t", "a", 0): 1}, -2, "given by MessageQueue"),
        ({}, 5, "EARLIEST"),
    ],
)
def test_wrong_offsets_are_told(offsets, default, text):
    with pytest.raises(OptionError, match=text):
        ConsumerStrategy.specificOffset(offsets, default)


def test_preferred_places_are_the_same_each_time_and_none_in_local_mode():
    there = ["executor_h1_1", "executor_h2_2", "executor_h3_3"]
    queues = [MessageQueue("t", "a", number) for number in range(60)]
    places = LocationStrategies.PreferConsistent.locations(queues, there)
    assert places == LocationStrategies.PreferConsistent().locations(reversed(queues), there)
    assert LocationStrategies.PreferConsistent.locations([Q0], []) == {}


def test_fixed_hosts_take_precedence_and_the_rest_is_dealt_out():
    fixed = LocationStrategies.PreferFixed({Q0: "h9", TopicQueueId("t", 1): "h8"})
    on_b = MessageQueue("t", "b", 1)
    assert fixed.locations([Q0, Q1, Q2, on_b], ["executor_h1_1"]) == {
        Q0: "h9",
        Q1: "h8",
        on_b: "h8",
        Q2: "executor_h1_1",
    }


def test_kafka_s_auto_offset_reset_becomes_a_strategy_and_says_so():
    options = {"nameServer": "h:1", "Auto.Offset.Reset": "largest"}
    with pytest.warns(
        CompatibilityWarning, match=r"auto.offset.reset=largest became ConsumerStrategy\.latest"
    ):
        changed = with_kafka_reset(ConsumerStrategy.earliest, options)
    assert changed == (ConsumerStrategy.latest, {"nameServer": "h:1"})
    assert with_kafka_reset(ConsumerStrategy.latest, {}) == (ConsumerStrategy.latest, {})


@pytest.mark.parametrize(
    ("strategy", "value"),
    [
        (ConsumerStrategy.earliest, "none"),
        (ConsumerStrategy.latest, "smallest"),
        (ConsumerStrategy.specificOffset({Q0: 7}), "smallest"),
    ],
)
def test_an_auto_offset_reset_beside_another_strategy_is_refused(strategy, value):
    with pytest.raises(OptionError, match="no other consumerStrategy"):
        with_kafka_reset(strategy, {"auto.offset.reset": value})
