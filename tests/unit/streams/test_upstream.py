"""What upstream's programs name, as data: expressions, schemas, properties."""

from __future__ import annotations

import io
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
from pyspark_rocketmq.streams.compile.compiler import is_bounded
from pyspark_rocketmq.streams.connectors.rocketmq import RecordTime, RocketMQSource
from pyspark_rocketmq.streams.connectors.values import print_rows
from pyspark_rocketmq.streams.plan.analysis import analyze
from pyspark_rocketmq.streams.plan.expressions import comparisons, condition_sql, quoted_names
from pyspark_rocketmq.streams.plan.nodes import DimensionJoin, Shape


@pytest.mark.parametrize(
    ("expression", "sql"),
    [
        ("(name,==,chris)", "(`name` = 'chris')"),
        ("(name,==,'chris')", "(`name` = 'chris')"),
        (r"(name,regex,'\d+')", r"(`name` rlike '\\d+')"),
        ("(name,==,'it's')", r"(`name` = 'it\'s')"),
        (
            "(id,!=,1234567890123456789)",
            (
                "(coalesce(try_cast(`id` AS DECIMAL(38, 10)) <> 1234567890123456789, "
                "try_cast(`id` AS DOUBLE) <> 1234567890123456789))"
            ),
        ),
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


@pytest.mark.parametrize("condition", ["(a,==,b)&(c,>,d)", "a, =, b & c,>,d"])
def test_a_condition_of_a_join_has_brackets_or_none(condition):
    assert comparisons(condition, step="s") == [("a", "=", "b"), ("c", ">", "d")]


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


# --- tables beside streams --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("then", "shape"),
    [
        (lambda joined: joined, Shape.JSON),
        (lambda joined: joined.map(lambda r: r | {"x": 1}), Shape.JSON),
        (lambda joined: joined.filterByExpression("(n,>,1)"), Shape.JSON),
        (lambda joined: joined.distinct("n").filter(lambda r: r["n"]), Shape.JSON),
        (lambda joined: joined.filter("dim_id = 1"), Shape.COLUMNS),
        (lambda joined: joined.selectFields("n"), Shape.COLUMNS),
        (lambda joined: joined.filter("n > 1").script("m=n+1"), Shape.COLUMNS),
    ],
)
def test_json_joined_with_a_table_is_json_where_whole_records_go_on(tmp_path, then, shape):
    (tmp_path / "t.csv").write_text("id,city\n1,Rom\n")
    stream = StreamBuilder.dataStream("n", "p").fromRocketmq("t", "g", True, "h:1")
    joined = stream.dimJoin(str(tmp_path / "t.csv"), 1).on("(id,==,id)").toDataStream()
    analysis = analyze(then(joined).toPrint().plan())
    assert [analysis.shapes[n] for n in analysis.nodes if isinstance(n, DimensionJoin)] == [shape]


def test_a_side_that_ends_is_a_table():
    source = StreamBuilder.dataStream("n", "p")
    stream = source.fromRocketmq("t", "g", namesrvAddr="h:1", schema="id string")
    file = source.fromJson("cities.json", schema="id string, city string")
    inner = file.join(stream).on("(id,==,id)").toDataStream()
    twice = inner.leftJoin(source.fromCsv("more.csv", schema="id string")).on("(id,==,id)").toDataStream()
    twice.toPrint()
    assert "(id,==,id), the left side is a table" in twice.explain()
    assert "(id,==,id), the right side is a table" in twice.explain()
    assert not is_bounded(twice.plan())
    with pytest.raises(PlanError, match="put the stream on the left"):
        file.leftJoin(stream).on("(id,==,id)").toDataStream()


def test_a_job_ends_or_does_not():
    source = StreamBuilder.dataStream("n", "p")
    source.fromRocketmq("t", "g", True, "h:1").toPrint()
    with pytest.raises(PlanError, match="use separate jobs"):
        is_bounded(source.fromJson("cities.json").toPrint().plan())


# --- numbers that are printed -----------------------------------------------------------------


class Texts:
    """What a DataFrame of texts collects."""

    def __init__(self, *texts):
        self._texts = texts

    def collect(self):
        return [(text,) for text in self._texts]


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ('{"a":2.0,"b":2.50,"c":1e3}', '{"a": 2, "b": 2.5, "c": 1000}'),
        ('{"a":1.0E23}', '{"a": 100000000000000000000000}'),
        ('{"a":12345678901234567.5}', '{"a":12345678901234567.5}'),
        ('{"a":1e400}', '{"a":1e400}'),
        ('{"a":1e9999999999999999999}', '{"a":1e9999999999999999999}'),
        ('{"a":1e-9999999999999999999}', '{"a":1e-9999999999999999999}'),
        ("[" * 100_000, "[" * 100_000),
        ('"text"', "text"),
        ("no JSON", "no JSON"),
    ],
)
def test_numbers_are_printed_without_zeros_and_as_they_are(text, printed):
    out = io.StringIO()
    print_rows(Texts(text), out)
    assert out.getvalue() == f"{printed}\n"
