"""Errors for names and types of other APIs: what to write instead."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_rocketmq.client import ConsumeFromWhere, ConsumeResult, ProducerOptions, PushOptions
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options import SinkOptions, SourceOptions, option_reference, parse_options
from pyspark_rocketmq.options.declare import Options
from pyspark_rocketmq.options.text.kinds import require_member
from pyspark_rocketmq.planning.assign import AllocateStrategy
from pyspark_rocketmq.spark.read.schema import read_schema
from pyspark_rocketmq.spark.write.sink_schema import sink_layout
from pyspark_rocketmq.sql.flink import RocketMQSourceFunction

BASE = {"nameServer": "127.0.0.1:9876", "topic": "orders"}


@pytest.mark.parametrize(
    ("cls", "given", "instead"),
    [
        (SourceOptions, "kafka.bootstrap.servers", "nameServer"),
        (SourceOptions, "bootstrap.servers", "nameServer"),
        (SourceOptions, "KAFKA.Group.Id", "consumerGroup"),
        (SourceOptions, "includeHeaders", "includeProperties"),
        (SourceOptions, "kafka.security.protocol", "tls"),
        (SinkOptions, "kafka.bootstrap.servers", "nameServer"),
        (SinkOptions, "kafka.acks", "acceptStatuses"),
    ],
)
def test_a_name_of_kafka_says_the_name_here(cls: type[Options], given: str, instead: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_options(cls, {given: "x"})  # also when nameServer is missing for that reason
    message = str(caught.value)
    assert message.startswith(f"unknown option {given}: that is Kafka's name; here it is {instead} (")
    assert f"for example {instead}=" in message
    assert "The options are" not in message


@pytest.mark.parametrize("cls", [SourceOptions, SinkOptions])
def test_every_name_of_kafka_leads_to_an_option_and_is_none_itself(cls: type[Options]) -> None:
    rows = option_reference(cls)
    assert set(cls.ELSEWHERE.values()) <= {row.name for row in rows}
    taken = {spelling.lower() for row in rows for spelling in (row.name, *row.aliases)}
    assert not taken & cls.ELSEWHERE.keys()
    assert all(name == name.lower() for name in cls.ELSEWHERE)


def test_subscribe_is_kafka_s_name_and_accepted() -> None:
    given = {"nameServer": "127.0.0.1:9876", "subscribe": "orders"}
    assert parse_options(SourceOptions, given).topics == ("orders",)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("startingOffsets", '{"orders": {"0": 23, "1": -2}}'),
        ("endingOffsets", '{"orders": {"0": 23}}'),
        ("startingOffsetsByTimestamp", '{"orders": {"0": 1000}}'),
        ("assign", '{"orders": [0, 1]}'),
    ],
)
def test_offsets_in_the_form_of_kafka_miss_the_broker(name: str, text: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_options(SourceOptions, BASE | {name: text})
    assert "(the broker's name is missing between topic and queue id" in str(caught.value)
    assert f"for example {name}=" in str(caught.value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: PushOptions(start="FIRST_OFFSET"),  # type: ignore[arg-type]
            "start must be ConsumeFromWhere.FIRST_OFFSET, not the str 'FIRST_OFFSET'",
        ),
        (
            lambda: PushOptions(start="ConsumeFromWhere.TIMESTAMP"),  # type: ignore[arg-type]
            "start must be ConsumeFromWhere.TIMESTAMP, not",
        ),
        (
            lambda: PushOptions(start="earliest"),  # type: ignore[arg-type]
            "start must be ConsumeFromWhere.LAST_OFFSET or ConsumeFromWhere.FIRST_OFFSET or",
        ),
        (
            lambda: PushOptions(allocate="AVERAGELY"),  # type: ignore[arg-type]
            f"allocate must be {AllocateStrategy.AVERAGELY}, not the str",
        ),
        (
            lambda: ProducerOptions(compression="zlib"),  # type: ignore[arg-type]
            "compression must be Compression.ZLIB, not the str 'zlib'",
        ),
        (
            lambda: ProducerOptions(accept_statuses=frozenset({"SEND_OK"})),  # type: ignore[arg-type]
            "accept_statuses must be SendStatus.SEND_OK, not the str 'SEND_OK'",
        ),
        (
            lambda: RocketMQSourceFunction(None, BASE | {"consumerGroup": "g"}).setStartFromGroupOffsets(
                "LATEST"
            ),  # type: ignore[arg-type]
            "offsetResetStrategy must be OffsetResetStrategy.LATEST, not the str 'LATEST'",
        ),
    ],
)
def test_a_text_instead_of_an_enum_says_the_member(call: Callable[[], object], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        call()
    assert str(caught.value).startswith(message)


def test_members_are_accepted() -> None:
    assert PushOptions(start=ConsumeFromWhere.FIRST_OFFSET).start is ConsumeFromWhere.FIRST_OFFSET
    require_member(ConsumeResult, ConsumeResult.LATER, "result")


@pytest.mark.parametrize(
    ("kafkas", "ours"), [("value", "body"), ("partition", "queueId"), ("headers", "properties")]
)
def test_a_column_of_kafka_says_the_column_here(kafkas: str, ours: str) -> None:
    with pytest.raises(
        OptionError, match=f"names '{kafkas}', which is no column of a message: did you mean '{ours}'"
    ):
        read_schema([kafkas])
    with pytest.raises(
        OptionError, match=f"a column '{kafkas}', which is no part of a message: did you mean '{ours}'"
    ):
        sink_layout(StructType([StructField(kafkas, BinaryType())]), parse_options(SinkOptions, BASE))
