"""Properties and builders of rocketmq-flink's classes, without Spark."""

from __future__ import annotations

import pytest

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options import CompatibilityWarning
from pyspark_rocketmq.sql.flink import (
    RocketMQConfig,
    RocketMQSink,
    RocketMQSourceFunction,
    SimpleStringDeserializationSchema,
)

SERVER = {RocketMQConfig.NAME_SERVER_ADDR: "127.0.0.1:9876"}
CONSUMER = SERVER | {RocketMQConfig.CONSUMER_TOPIC: "t", RocketMQConfig.CONSUMER_GROUP: "g"}


def source(**props: str) -> RocketMQSourceFunction:
    names = {getattr(RocketMQConfig, name): value for name, value in props.items()}
    return RocketMQSourceFunction(SimpleStringDeserializationSchema(), CONSUMER | names)


@pytest.mark.parametrize(
    "value", [RocketMQConfig.CONSUMER_OFFSET_EARLIEST, RocketMQConfig.CONSUMER_OFFSET_LATEST]
)
def test_where_a_group_without_offsets_starts(value):
    options = source(CONSUMER_OFFSET_RESET_TO=value, CONSUMER_SQL="a > 1").options()
    assert options["startingOffsets"] == "group"
    assert options["groupOffsetReset"] == value
    assert options["sqlFilter"] == "a > 1"


@pytest.mark.parametrize(
    ("value", "message"),
    [("timestamp", r"use setStartFromTimeStamp\(17\)"), ("soon", "is earliest or latest, not 'soon'")],
)
def test_a_reset_that_is_not_offered_is_an_error(value, message):
    with pytest.raises(OptionError, match=message):
        source(CONSUMER_OFFSET_RESET_TO=value, CONSUMER_OFFSET_FROM_TIMESTAMP="17")


def test_what_has_no_effect_is_said():
    with pytest.warns(CompatibilityWarning, match="access.channel .*consumer.timeout .*unit.name"):
        source(ACCESS_CHANNEL="CLOUD", CONSUMER_TIMEOUT="3000", UNIT_NAME="u")
    with pytest.warns(CompatibilityWarning, match="access.channel"):
        RocketMQSink(SERVER | {RocketMQConfig.ACCESS_CHANNEL: "LOCAL"})


@pytest.mark.parametrize(("level", "expected"), [(0, None), (3, "3")])
def test_a_sink_with_a_delay_and_a_batch_size(level, expected):
    sink = RocketMQSink(SERVER | {RocketMQConfig.MSG_DELAY_LEVEL: level}).withBatchSize(32)
    assert sink.options().get("delayLevel") == expected
    assert sink.options()["batchSize"] == "32"
    with pytest.raises(OptionError, match="batchSize"):
        sink.withBatchSize(0)
