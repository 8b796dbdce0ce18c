"""What upstream's programs name, as data: expressions, schemas, properties."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pyspark_rocketmq.streams import (
    ConsumeFromWhere,
    PlanError,
    RocketMQStream,
    SchemaConfig,
    SchemaType,
    StreamBuilder,
    StreamConfig,
    TimeType,
)
from pyspark_rocketmq.streams.connectors.rocketmq import RecordTime, RocketMQSource
from pyspark_rocketmq.streams.plan.expressions import condition_sql, quoted_names


@pytest.mark.parametrize(
    ("expression", "sql"),
    [
        ("(name,==,chris)", "(`name` = 'chris')"),
        ("(name,==,'chris')", "(`name` = 'chris')"),
        ("(name,==,`nick`)", "(`name` = `nick`)"),
        ("(age,>,18)", "(try_cast(`age` AS DOUBLE) > 18)"),
        ("(age,>,int,18)", "(try_cast(`age` AS BIGINT) > try_cast(18 AS BIGINT))"),
        ("(uid,==,string,18)", "(try_cast(`uid` AS STRING) = try_cast('18' AS STRING))"),
        ("(a,regex,x{1,2})", "(`a` rlike 'x{1,2}')"),
        (
            "(a,=,1)&&((b,=,2)||(c,=,it's))",
            "(try_cast(`a` AS DOUBLE) = 1) AND ( (try_cast(`b` AS DOUBLE) = 2) OR (`c` = 'it\\'s') )",
        ),
    ],
)
def test_expressions_as_sql(expression, sql):
    assert condition_sql(expression, step="s") == sql


def test_only_fields_are_named():
    sql = condition_sql("(a,>,int,1)&(b,==,`c`)&(d,==,`no\\)|(e,=,it's)", step="s")
    assert quoted_names(sql) == {"a", "b", "c", "d", "e"}


@dataclass
class Data:
    flow: int
    ratio: float
    name: str | None


def test_a_dataclass_is_a_schema():
    schema = SchemaConfig(SchemaType.JSON, Data).schema()
    assert schema.simpleString() == "struct<flow:bigint,ratio:double,name:string>"


@pytest.mark.parametrize(
    ("kind", "target", "message"),
    [
        ("JSON", None, "a SchemaType or a function"),
        (SchemaType.STRING, Data, "only SchemaType.JSON"),
        (SchemaType.JSON, int, "make it a dataclass"),
    ],
)
def test_what_is_no_schema_is_refused(kind, target, message):
    with pytest.raises(PlanError, match=message):
        SchemaConfig(kind, target)


def planned(properties):
    builder = StreamBuilder("job")
    builder.source("topic").print()
    (source,) = [
        node
        for node in RocketMQStream(builder.build(), properties).plan().nodes()
        if isinstance(node, RocketMQSource)
    ]
    return source


def test_properties_say_where_a_job_begins_and_by_which_times():
    assert planned({}).time is RecordTime.STORE
    assert "startingOffsets" not in planned({}).options
    source = planned(
        {
            StreamConfig.TIME_TYPE: TimeType.EVENT_TIME,
            StreamConfig.ROCKETMQ_STREAMS_CONSUMER_FORM_WHERE: "CONSUME_FROM_LAST_OFFSET",
        }
    )
    assert source.time is RecordTime.BORN
    assert source.options["startingOffsets"] == "latest"
    where = {StreamConfig.ROCKETMQ_STREAMS_CONSUMER_FORM_WHERE: ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET}
    assert planned(where).options["startingOffsets"] == "earliest"
    assert planned({StreamConfig.TIME_TYPE: "PROCESS_TIME"}).time is RecordTime.STORE
    with pytest.raises(PlanError, match="TimeType is one of EVENT_TIME, PROCESS_TIME, not 'now'"):
        planned({StreamConfig.TIME_TYPE: "now"})


@pytest.mark.parametrize(
    ("more", "address", "tags"),
    [
        (("h:1",), "h:1", None),
        ((True, "h:1"), "h:1", None),
        ((True, "h:1", None), "h:1", None),
        (("t", True, "h:1"), "h:1", "t"),
        (("h:1", SchemaConfig(SchemaType.JSON)), "h:1", None),
        (("t", "h:1", None, SchemaConfig(SchemaType.JSON)), "h:1", "t"),
    ],
)
def test_a_topic_takes_what_java_gives_it(more, address, tags):
    node = StreamBuilder.dataStream("n", "p").fromRocketmq("topic", "group", *more)._node
    assert (node.options["nameServer"], node.options.get("tags")) == (address, tags)
