"""Bodies to columns and back for users of DataFrames; SQL's tables test the formats themselves."""

from __future__ import annotations

from decimal import Decimal

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructType

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.spark import (
    from_rocketmq,
    identical_rows_together,
    json_messages,
    key_value_messages,
    ordered_by,
    to_rocketmq,
)
from pyspark_rocketmq.spark.bodies.conversions import convert_fields
from pyspark_rocketmq.spark.session_settings import temporary_settings

SCHEMA = "id BIGINT NOT NULL, name STRING"
ROWS = [(1, "a b"), (2, None)]


@pytest.fixture
def messages(spark):
    """``messages(body, ...)``: rows as the source gives them."""

    def make(*bodies: bytes):
        rows = [("orders", "broker-a", 0, at, f"k{at}", body) for at, body in enumerate(bodies)]
        ddl = "topic STRING, brokerName STRING, queueId INT, queueOffset BIGINT, keys STRING, body BINARY"
        return spark.createDataFrame(rows, ddl)

    return make


@pytest.mark.parametrize("kind", ["json", "csv", "delimited", "key-value"])
def test_what_is_written_is_read(spark, kind):
    rows = spark.createDataFrame(ROWS[:1], "id BIGINT, name STRING")
    written = to_rocketmq(rows, kind)
    assert set(written.columns) == ({"keys", "body"} if kind == "key-value" else {"body"})
    assert from_rocketmq(written, kind, schema=SCHEMA).collect() == ROWS[:1]


def test_raw_is_the_body(spark):
    written = to_rocketmq(spark.createDataFrame([(b"\x00\xff",)], "v BINARY"), "raw")
    assert from_rocketmq(written, "raw", schema="v BINARY").collect() == [(b"\x00\xff",)]


def test_rows_of_csv_come_back_as_they_were(spark):
    ddl = "id INT NOT NULL, a STRING NOT NULL, b STRING, c BINARY"
    texts = [" a ", "", "\t", "\n", "\x00", "a\r\nb", "\\", '"', '",', "'", "#", "n/a", "\ufeff"]
    rows = [(at, text, texts[-at], text.encode() + b"\xff") for at, text in enumerate(texts)]
    rows += [(100, "", None, None), (101, "x", "", b"")]
    for options in ({}, {"sep": "|"}, {"nullValue": "NULL"}):
        written = to_rocketmq(spark.createDataFrame(rows, ddl), "csv", **options)
        assert from_rocketmq(written, "csv", schema=ddl, **options).collect() == rows
    trimmed = to_rocketmq(spark.sql("SELECT ' a ' a, 1 b"), "csv", ignoreleadingWhitespace="true")
    assert trimmed.collect() == [("a ,1",)]
    unquoted = to_rocketmq(spark.sql("SELECT '' a, 1 b"), "csv", quote="")
    assert unquoted.collect() == [(",1",)]
    for text in ("a|b\\", "#", '"'):
        unquoted = to_rocketmq(spark.createDataFrame([(text, 1)], "a STRING, b INT"), "csv", quote="")
        assert unquoted.collect() == [(f"{text},1",)]
    for text in ("a,b", "a\nb", "\r"):
        unquoted = to_rocketmq(spark.createDataFrame([(text, 1)], "a STRING, b INT"), "csv", quote="")
        with pytest.raises(PySparkException, match="without a quote character cannot write"):
            unquoted.collect()


@pytest.mark.parametrize(("quote", "empty"), [('"', ""), ("", None)])
def test_a_row_of_csv_may_be_one_empty_field(spark, quote, empty):
    """Only compiled expressions fail without a text."""
    rows = [(None,), ("",), ("a",)]
    with temporary_settings(spark, {"spark.sql.codegen.factoryMode": "CODEGEN_ONLY"}):
        written = to_rocketmq(spark.createDataFrame(rows, "v STRING"), "csv", quote=quote)
        found = from_rocketmq(written, "csv", schema="v STRING", quote=quote)
        assert found.collect() == [(None,), (empty,), ("a",)]


def test_quotes_in_csv_are_doubled_as_in_flink(spark, messages):
    rows = spark.sql("SELECT 'a\"b' v, 'c\\\\' w, 1 id")
    for options, body in (
        ({}, '"a""b",c\\,1'),
        ({"escape": "\\"}, '"a\\"b",c\\,1'),
        ({"quote": "'"}, 'a"b,c\\,1'),
    ):
        written = to_rocketmq(rows, "csv", **options)
        assert written.collect() == [(body,)], options
        found = from_rocketmq(written, "csv", schema="v STRING, w STRING, id INT", **options)
        assert found.collect() == rows.collect()
    found = from_rocketmq(messages(b'"it""s, ""x""","",1'), "csv", schema="v STRING, w STRING, id INT")
    assert found.collect() == [('it"s, "x"', "", 1)]
    apostrophes = from_rocketmq(messages(b"'it''s',1"), "csv", schema="v STRING, id INT", quote="'")
    assert apostrophes.collect() == [("it's", 1)]


def test_the_end_of_a_line_is_no_part_of_a_row_of_csv(spark, messages):
    df = messages(b"1,a\r\n", b"2,b\n", b'3,"c\n"\n', b'4,"d\r\n"', b"5,e")
    found = from_rocketmq(df, "csv", schema="id INT, v STRING").collect()
    assert found == [(1, "a"), (2, "b"), (3, "c\n"), (4, "d\r\n"), (5, "e")]
    assert from_rocketmq(messages(b"a,1\r\n"), "csv", schema="v STRING, id INT").collect() == [("a", 1)]


@pytest.mark.parametrize(
    ("kind", "body"), [("json", b'{"id": 1, "v": "%b"}'), ("csv", b"1,%b"), ("delimited", b"1\x01%b")]
)
def test_what_is_not_utf_8_is_a_bad_record(messages, kind, body):
    df = messages(body % "ö".encode(), body % "ö".encode("latin-1"))
    found = from_rocketmq(df, kind, schema="id INT, v STRING", badRecords="drop").collect()
    assert found == [(1, "ö")]


@pytest.mark.parametrize("kind", ["json", "csv"])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Paris"])  # whose offset was 9 minutes and 21 seconds once
def test_times_come_back_as_they_were(spark, kind, zone):
    ddl = "at TIMESTAMP, local TIMESTAMP_NTZ, old TIMESTAMP, a INT"
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        rows = spark.sql(
            "SELECT TIMESTAMP '2026-01-31 08:00:00.123456' at, "
            "TIMESTAMP_NTZ '1970-01-01 00:00:00.000001' local, TIMESTAMP '1500-02-28 01:02:03.999999' old, "
            "1 a"
        )
        exact = "unix_micros(at)", "CAST(local AS STRING)", "unix_micros(old)"
        expected = rows.selectExpr(*exact).collect()
        found = from_rocketmq(to_rocketmq(rows, kind), kind, schema=ddl)
        assert found.selectExpr(*exact).collect() == expected
        if kind == "json":
            found = from_rocketmq(json_messages(rows), schema=ddl)
            assert found.selectExpr(*exact).collect() == expected
        written = to_rocketmq(rows.select("at", "a"), kind, TIMESTAMPFORMAT="dd.MM.yyyy").collect()
        assert written == [('{"at":"31.01.2026","a":1}' if kind == "json" else "31.01.2026,1",)]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.timeout(120)  # Spark's parser would write the zeros of these numbers for hours
@pytest.mark.parametrize("number", [b"1e2000000000", b"-1.5E+0002000000000", b"1e-2000000000"])
def test_a_number_with_a_large_exponent_is_a_bad_record_at_once(messages, number):
    schema = "a DECIMAL(10, 2), note STRING"
    df = messages(b'{"a": %b}' % number, b'{"a": "%b"}' % number, b'{"a": 1.5, "note": "%b"}' % number)
    assert from_rocketmq(df, schema=schema, badRecords="drop").collect() == [
        (Decimal("1.50"), number.decode())
    ]
    other = messages(b'{"b": {"a": %b}, "a": 1e3}' % number, b"{'a': %b}" % number)
    assert from_rocketmq(other, schema=schema, badRecords="drop").collect() == [(Decimal("1000.00"), None)]
    found = from_rocketmq(
        messages(b"%b,x" % number, b"1.5,%b" % number), "csv", schema=schema, badRecords="null"
    )
    expected = (Decimal("0.00"), "x") if b"-2" in number else (None, None)
    assert found.collect() == [expected, (Decimal("1.50"), number.decode())]


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("body", "settings"),
    [
        (r'{"\u0061": 1e2000000000}', {}),
        (r'{"a": "1\u00652000000000"}', {}),
        (r'{"a": "1e\u0032000000000"}', {}),
        (r'{"a": "1e+2,0,0,0,000,000"}', {}),
        ('{"a": "1e\u0662\u0660\u0660\u0660\u0660\u0660\u0660\u0660\u0660\u0660"}', {}),
        ("{a: 1e2000000000}", {"allowUnquotedFieldNames": "true"}),
        ('{"a": /* x */ 1e2000000000}', {"allowComments": "true"}),
    ],
)
def test_no_spelling_of_a_large_exponent_keeps_a_task_busy(messages, body, settings):
    fine = body.replace("2000000000", "2").replace("\\u0032000000000", "2")
    df = messages(body.encode(), rb'{"a": "1e\u0031", "b": "\u00e9 be12345"}', fine.encode())
    found = from_rocketmq(df, schema="a DECIMAL(10, 2)", badRecords="drop", **settings).collect()
    assert found == [(Decimal("10.00"),)] + [(Decimal("100.00"),)] * (fine != body)


def test_decimals_of_csv(messages):
    df = messages(b'"1,234.5",a', b" 7 ,b", b"1.005,c", b"99999999999,d", b"x,e", b",f", b'"",g')
    found = from_rocketmq(df, "csv", schema="a DECIMAL(10, 2), b STRING", badRecords="drop").collect()
    texts = [(row.a and str(row.a), row.b) for row in found]
    assert texts == [("1234.50", "a"), ("7.00", "b"), ("1.01", "c"), (None, "f")]
    german = from_rocketmq(
        messages(b'"1.234,5",a'), "csv", schema="a DECIMAL(10, 2), b STRING", locale="de-DE"
    )
    assert german.collect() == [(Decimal("1234.50"), "a")]


def test_a_number_beyond_the_last_time_is_a_bad_record(messages):
    """Spark's parser makes a time of it, such as the year 8319 of 99999999999999999 seconds."""
    late, soon = b"1764355200000000", b"1764355200"
    df = messages(
        b'{"at": %b, "a": 1}' % late,
        b'{"at": %b, "a": 2}' % soon,
        b'{"at": %b, "a": 3, "in": {"at": %b}}' % (soon, late),
        b'{"at": -%b, "a": 4}' % late,
        b'{"at": 1764355200000, "a": 5}',
        b'{"at": "2025-11-28T18:40:00Z", "a": 6, "note": "\\"at\\": %b"}' % late,
    )
    found = from_rocketmq(df, schema="at TIMESTAMP, a INT", badRecords="drop")
    assert found.selectExpr("unix_seconds(at)", "a").collect() == [
        *((int(soon), 2), (int(soon), 3), (1_764_355_200_000, 5)),
        (1_764_355_200, 6),
    ]


def test_a_number_beyond_the_last_time_is_found_under_an_escaped_name(messages):
    df = messages(
        b'{"\\u0061t": 1764355200000000, "n": 1}',
        b'{"\\u0061t": 1764355200, "n": 2}',
        b'{"gr\\u00f6\\u00dfe": 1764355200000000, "n": 3}',
        b'{"gr\\u00f6\\u00dfe": 1764355200, "n": 4}',
    )
    found = from_rocketmq(df, schema="at TIMESTAMP, `größe` TIMESTAMP, n INT", badRecords="drop")
    times = found.selectExpr("n", "unix_seconds(coalesce(at, `größe`))").collect()
    assert times == [(2, 1764355200), (4, 1764355200)]


def test_a_date_of_digits_is_no_number_of_days(messages):
    """Spark's parser reads those of its first releases: 20260101 was in the year 57440."""
    schema = "day DATE, s STRUCT<days: ARRAY<DATE>>, at TIMESTAMP"
    df = messages(
        b'{"day": "20260101"}',
        b'{"s": {"days": ["2026-01-01", "20260101"]}}',
        b'{"day": "2026-01-31", "at": "2026-01-31T08:00:00.5+01:00"}',
        b'{"day": "2026-01-31", "at": "2026-01-31 07:00:00.5Z"}',
    )
    found = from_rocketmq(df, schema=schema, badRecords="drop")
    assert (
        found.selectExpr("CAST(day AS STRING)", "unix_millis(at)").collect()
        == [("2026-01-31", 1_769_842_800_500)] * 2
    )
    kept = from_rocketmq(df.limit(1), schema=schema, enableDateTimeParsingFallback="true")
    assert kept.selectExpr("year(day)").collect() == [(57440,)]


@pytest.mark.timeout(120)
def test_numbers_within_rows_arrays_and_maps_are_checked_as_those_of_columns(messages):
    kinds = {
        "s": "STRUCT<at: TIMESTAMP, `x y`: DECIMAL(10, 2)>",
        "l": "ARRAY<TIMESTAMP>",
        "m": "MAP<STRING, TIMESTAMP>",
        "n": "ARRAY<STRUCT<d: ARRAY<DECIMAL(10, 2)>>>",
    }
    late, large = b"1764355200000000", b"1e2000000000"
    df = messages(
        b'{"s": {"at": %b}}' % late,
        b'{"l": [1, %b]}' % late,
        b'{"m": {"k": %b}}' % late,
        b'{"s": {"x y": %b}}' % large,
        b'{"n": [{"d": [1, %b]}]}' % large,
        b'{"n": [{}, {"d": ["%b"]}]}' % large,
        b'{"s": {"at": 1, "x y": 1e3}, "l": [2, null], "m": {"k": 3}, "n": [{"d": [4]}], "o": [%b]}' % late,
    )
    schema = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
    found = from_rocketmq(df, schema=schema, badRecords="drop")
    times = "unix_seconds(s.at)", "unix_seconds(l[0])", "unix_seconds(m['k'])", "s.`x y`", "n[0].d[0]"
    assert found.selectExpr(*times).collect() == [(1, 2, 3, Decimal("1000.00"), Decimal("4.00"))]


def test_names_of_nested_fields_may_be_any_text(spark):
    inner = StructType().add("order id", "integer").add("a:b", "string").add("`", ArrayType(BinaryType()))
    schema = StructType().add("s.t", inner).add("m", MapType(StringType(), inner))
    row = ((1, "x", [b"y"]), {"k": (2, None, None)})
    written = to_rocketmq(spark.createDataFrame([row], schema), "json")
    assert from_rocketmq(written, "json", schema=schema).collect() == [row]


def test_names_of_columns_may_be_any_text(spark):
    kinds = {"a.b": "integer", "`": "string", "m.n": MapType(StringType(), StringType()), "c d": "string"}
    schema = StructType()
    for name, kind in kinds.items():
        schema.add(name, kind)
    schema.add("a", StructType().add("b", "integer").add("c", "integer"))
    rows = spark.createDataFrame([(1, "x", {}, "y", (2, 3))], schema)
    body = '{"a.b":1,"`":"x","m.n":{},"c d":"y","a":{"b":2,"c":3}}'
    assert json_messages(rows, key="a.b", tags="`").collect() == [(body, "1", "x")]
    assert json_messages(rows, key="a.c", columns=["`"]).collect() == [('{"`":"x"}', "3")]
    assert key_value_messages(rows, key="a.b", value="`").collect() == [("1", "x")]
    assert ordered_by(rows, "a.b").first().shardingKey == "1"
    assert identical_rows_together(rows).collect() == rows.collect()


def test_values_of_records_fit_their_columns_or_are_bad(spark):
    """As `from_avro` and `from_protobuf` return them; the types are those of the body's schema."""
    record = (
        "STRUCT<id: BIGINT, who: STRUCT<last: STRING, first: STRING>, marks: ARRAY<BIGINT>, "
        "m: MAP<STRING, STRING>>"
    )
    good = (1, ("Lovelace", "Ada"), [1, None], {"a": "1", "b": None})
    rows = [
        good,
        (2**40, None, None, None),
        (3, None, [2**40], None),
        (4, None, None, {"a": "x"}),
        (None,) * 4,
    ]
    df = spark.createDataFrame([(row,) for row in rows], f"record {record}")
    kinds = {
        "id": "INT",
        "who": "STRUCT<first: STRING, Last: STRING>",
        "marks": "ARRAY<INT>",
        "m": "MAP<STRING, INT>",
    }
    columns, lost = convert_fields(df, F.col("record"), kinds)
    found = df.select(*columns, lost).collect()
    assert [row[-1] for row in found] == [False, True, True, True, False]
    assert tuple(found[0])[:-1] == (1, ("Ada", "Lovelace"), [1, None], {"a": 1, "b": None})
    assert tuple(found[4])[:-1] == (None,) * 4
    with pytest.raises(OptionError, match="has no field age: it has last, first"):
        convert_fields(df, F.col("record"), {"who": "STRUCT<age: INT>"})


def test_bytes_in_csv_are_base64(spark, messages):
    written = to_rocketmq(spark.sql("SELECT X'00ff' v, 1 id"), "csv")
    assert written.collect() == [("AP8=,1",)]
    found = from_rocketmq(
        messages(b"AP8=,1", b"[00 FF],2", b",3"), "csv", schema="v BINARY, id INT", badRecords="drop"
    )
    assert found.collect() == [(b"\x00\xff", 1), (None, 3)]


def test_a_row_that_its_delimiters_would_divide_is_refused(spark):
    def written(query: str, **delimiters: str):
        return to_rocketmq(spark.sql(query), "delimited", **delimiters).collect()

    assert written("SELECT 'a' a, '|b|' b", fieldDelimiter="||") == [("a|||b|",)]
    for query, delimiter in (
        ("SELECT 'a|' a, 'b' b", "||"),
        ("SELECT 'a||' a, 'b' b", "||"),
        ("SELECT TIMESTAMP '2026-01-31 08:00:00' a, 1 b", ":"),
        ("SELECT CAST('x,y' AS BINARY) a, 1 b", ","),
        ("SELECT -1 a, 1 b", "-"),
    ):
        with pytest.raises(PySparkException, match="column a holds a delimiter"):
            written(query, fieldDelimiter=delimiter)


def test_bytes_that_readers_of_delimited_refuse_are_not_written(spark):
    rows = spark.sql("SELECT X'c3b6' a, 1 b")
    assert from_rocketmq(to_rocketmq(rows, "delimited"), "delimited", schema="a BINARY, b INT").collect() == [
        ("ö".encode(), 1)
    ]
    with pytest.raises(PySparkException, match="column a holds bytes that are not UTF-8"):
        to_rocketmq(spark.sql("SELECT X'ff' a, 1 b"), "delimited").collect()


def test_columns_of_bytes_are_bytes_in_every_format(messages):
    for kind in ("delimited", "key-value"):
        found = from_rocketmq(messages(b"x\x01y"), kind, schema="a BINARY, b BINARY")
        assert [field.dataType.simpleString() for field in found.schema] == ["binary"] * 2


def test_parts_of_messages_are_named(spark):
    rows = spark.createDataFrame([(1, "a", "big")], "id BIGINT, name STRING, topic STRING")
    written = to_rocketmq(rows, keys="id", tags="name", keep=["topic"])
    assert written.collect() == [('{"id":1,"name":"a"}', "1", "a", "big")]
    assert written.columns == ["body", "keys", "tags", "topic"]


def test_bad_records_fail_and_say_where(messages):
    df = messages(b'{"id": 1}', b"no")
    with pytest.raises(PySparkException, match="topic=orders brokerName=broker-a queueId=0 queueOffset=1"):
        from_rocketmq(df, schema=SCHEMA).collect()
    serialized = messages(b"\xac\xed\x00\x05sr")
    with pytest.raises(PySparkException, match=r"ObjectOutputStream: javaobj\.loads"):
        from_rocketmq(serialized, schema=SCHEMA).collect()


def test_bad_records_are_null_or_dropped_and_columns_are_kept(messages):
    df = messages(b'{"id": 1, "name": "a"}', b"no", b'{"name": "b"}')
    nulls = from_rocketmq(df, schema=SCHEMA, badRecords="null", keep=["queueOffset", "keys"], name="t")
    assert nulls.collect() == [(0, "k0", 1, "a"), (1, "k1", None, None), (2, "k2", None, None)]
    assert from_rocketmq(df, schema=SCHEMA, badRecords="drop").collect() == [(1, "a")]


def test_settings_go_to_spark_s_function(messages):
    df = messages(b'{"day": "24.12.2026"}')
    found = from_rocketmq(df, schema="day DATE", dateFormat="dd.MM.yyyy").collect()
    assert str(found[0].day) == "2026-12-24"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"format": "jsn"}, "json"),
        ({"badRecords": "dead-letter"}, "second write"),
        ({"keep": ["tag"]}, "lack the columns tag"),
        ({"keep": ["keys"], "schema": "keys STRING"}, "both name keys"),
        ({"schema": "INT"}, "must name columns"),
        ({"format": "avro"}, "avroSchema"),
    ],
)
def test_what_is_wrong_is_said(messages, arguments, message):
    with pytest.raises(OptionError, match=message):
        from_rocketmq(messages(b"{}"), **{"schema": SCHEMA, **arguments})
