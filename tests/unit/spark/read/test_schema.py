from __future__ import annotations

import pytest
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options.choices import CorruptPolicy
from pyspark_rocketmq.record.decode.arrow import COLUMNS, Column
from pyspark_rocketmq.spark.features import utc_arrow_schema
from pyspark_rocketmq.spark.read.schema import (
    COLUMN_TYPES,
    DEFAULT_COLUMNS,
    read_schema,
    spark_schema,
    to_projection,
)


def test_spark_lays_every_column_out_as_the_decoder_does():
    arrow = utc_arrow_schema(read_schema(["*"]))
    assert {field.name: field.type for field in arrow} == dict(COLUMNS)


def test_an_engine_may_pass_a_schema_as_arrow_s():
    schema = read_schema(["body", "queueId", "queueOffset", "tags", "properties"])
    assert spark_schema(utc_arrow_schema(schema)) == spark_schema(schema) == schema


def test_default_columns():
    assert read_schema(None).fieldNames() == [
        "topic", "brokerName", "queueId", "queueOffset", "msgId", "keys", "tags", "body", "bornTimestamp",
        "storeTimestamp",
    ]  # fmt: skip


def test_include_properties_adds_one_column_once():
    assert read_schema(None, include_properties=True).fieldNames() == [*DEFAULT_COLUMNS, "properties"]
    assert read_schema(["properties", "body"], include_properties=True).fieldNames() == ["properties", "body"]


def test_long_format_name_shows_the_aliases_beside_the_columns():
    names = read_schema(None, with_aliases=True).fieldNames()
    assert names == [*DEFAULT_COLUMNS, "key", "offset", "timestamp"]


def test_columns_keep_the_order_asked_for_and_take_aliases():
    schema = read_schema(["offset", "body", "key"])
    types = {"offset": LongType(), "body": BinaryType(), "key": StringType()}
    assert schema == StructType([StructField(name, kind) for name, kind in types.items()])
    assert to_projection(schema).columns == (
        Column("offset", "queueOffset"),
        Column("body", "body"),
        Column("key", "keys"),
    )


def test_star_stands_for_the_columns_not_named():
    assert read_schema(["*"]).fieldNames() == list(COLUMN_TYPES)
    names = read_schema(["body", "*"]).fieldNames()
    assert names[0] == "body"
    assert sorted(names) == sorted(COLUMN_TYPES)


def test_body_as_string():
    schema = read_schema(["body"], body_as="string")
    assert schema["body"].dataType == StringType()
    assert to_projection(schema).body_as == "string"
    assert to_projection(read_schema(["body"])).body_as == "binary"
    assert to_projection(read_schema(["topic"], body_as="string")).body_as == "binary"


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (["queueOfset"], "did you mean 'queueOffset'"),
        (["TAGS"], "did you mean 'tags'"),
        (["zzz"], "there are 'body', 'bodyCrc', "),
        (["body", "body"], "'body' more than once"),
    ],
)
def test_wrong_column_names(columns: list[str], text: str):
    with pytest.raises(OptionError, match=text):
        read_schema(columns)


@pytest.mark.parametrize(
    ("field", "text"),
    [
        (StructField("queueId", LongType()), "'queueId' of the schema is bigint, but it must be int"),
        (StructField("body", TimestampType()), "must be binary or string"),
        (
            StructField("timestamp", StringType()),
            "'timestamp' of the schema is string, but it must be timestamp",
        ),
        (StructField("queueid", IntegerType()), "did you mean 'queueId'"),
        (StructField("tags", StringType(), nullable=False), "must be nullable"),
    ],
)
def test_user_schema_is_checked_field_by_field(field: StructField, text: str):
    with pytest.raises(OptionError, match=text):
        to_projection(StructType([field]))


def test_user_schema_may_forbid_nulls_where_there_are_none():
    projection = to_projection(StructType([StructField("queueId", IntegerType(), nullable=False)]))
    assert projection.columns == (Column("queueId", "queueId", nullable=False),)


def test_empty_user_schema():
    with pytest.raises(OptionError, match="no column"):
        to_projection(StructType([]))


def test_null_for_what_does_not_decode_needs_columns_that_take_it():
    place = [StructField("queueOffset", LongType(), nullable=False)]
    to_projection(StructType([*place, StructField("body", BinaryType())]), on_corrupt=CorruptPolicy.NULL)
    strict = StructType([*place, StructField("body", BinaryType(), nullable=False)])
    assert to_projection(strict).columns
    with pytest.raises(OptionError, match="nullable") as caught:
        to_projection(strict, on_corrupt=CorruptPolicy.NULL)
    assert caught.value.facts["column"] == "body"
