from __future__ import annotations

import re

import pytest

from pyspark_rocketmq.errors import SqlError
from pyspark_rocketmq.sql.parse import parse_statements
from pyspark_rocketmq.sql.statements import (
    ComputedColumn,
    CreateFunction,
    CreateTable,
    CreateView,
    DropTable,
    Insert,
    MetadataColumn,
    PhysicalColumn,
    Position,
    Reset,
    Set,
    SparkStatement,
)


def one(text):
    (statement,) = parse_statements(text)
    return statement


def table(columns, options="'topic' = 't'"):
    return one(f"CREATE TABLE t ({columns}) WITH ('connector' = 'rocketmq', {options})")


def test_columns_of_every_kind():
    made = table(
        "a BIGINT NOT NULL COMMENT 'the id', `b c` STRING, m STRING METADATA FROM 'keys', "
        "topic STRING METADATA VIRTUAL, d AS upper(concat(`b c`, ', )')) COMMENT 'x', ts TIMESTAMP(3), "
        "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND, PRIMARY KEY (a) NOT ENFORCED"
    )
    a, b, m, topic, d, ts = made.columns
    assert (a.type, a.nullable, b.name.text, b.nullable) == ("BIGINT", False, "b c", True)
    assert isinstance(m, MetadataColumn)
    assert (m.key, m.virtual, topic.key, topic.virtual) == ("keys", False, "topic", True)
    assert isinstance(d, ComputedColumn)
    assert d.expression.text == "upper(concat(`b c`, ', )'))"
    assert isinstance(ts, PhysicalColumn)
    assert (made.watermark.column.text, made.watermark.delay) == ("ts", "5 SECOND")


@pytest.mark.parametrize(
    ("written", "spark"),
    [
        ("BIGINT", "BIGINT"),
        ("INTEGER", "INT"),
        ("TIMESTAMP(3)", "TIMESTAMP"),
        ("TIMESTAMP_LTZ(3)", "TIMESTAMP"),
        ("BYTES", "BINARY"),
        ("VARBINARY(10)", "BINARY"),
        ("VARCHAR(20)", "STRING"),
        ("CHAR(2)", "STRING"),
        ("DECIMAL(10, 2)", "DECIMAL(10, 2)"),
        ("ROW<a INT, b ARRAY<VARCHAR(3)>>", "STRUCT<a: INT, b: ARRAY<STRING>>"),
        ("STRUCT<a: INT>", "STRUCT<a: INT>"),
        ("MAP<STRING, DOUBLE>", "MAP<STRING, DOUBLE>"),
    ],
)
def test_types_of_flink_and_spark(written, spark):
    assert table(f"a {written}").columns[0].type == spark


def test_options_in_both_spellings():
    flink = table("a INT", "'consumerGroup'='g', 'a.b' = 'it''s'")
    spark = one(
        "CREATE TABLE t (a INT) USING rocketmq OPTIONS (topic 'x', scan.mode = 'y', retries 3, tls true)"
    )
    assert [(o.name, o.value) for o in flink.options[1:]] == [("consumerGroup", "g"), ("a.b", "it's")]
    assert [(o.name, o.value) for o in spark.options] == [
        ("topic", "x"), ("scan.mode", "y"), ("retries", "3"), ("tls", "true"),
    ]  # fmt: skip
    assert "it's" not in repr(flink)


@pytest.mark.parametrize(
    ("written", "value"),
    [("'n' = -5", "-5"), ("n = - 5", "-5"), ("n -1.5", "-1.5"), ("n = 5", "5"), ("n = '-5'", "-5")],
)
def test_a_number_in_an_option_keeps_its_sign(written, value):
    (option,) = one(f"CREATE TABLE t (a INT) USING rocketmq OPTIONS ({written})").options
    assert (option.name, option.value) == ("n", value)


@pytest.mark.parametrize(
    ("written", "delay"),
    [
        ("ts", "0 seconds"),
        ("ts - INTERVAL '5' SECOND", "5 SECOND"),
        ("TS - INTERVAL 3 MINUTES", "3 MINUTES"),
        ("`ts` - INTERVAL '0.5' HOUR", "0.5 HOUR"),
    ],
)
def test_a_watermark_with_and_without_a_delay_is_no_column(written, delay):
    made = table(f"ts TIMESTAMP(3), WATERMARK FOR ts AS {written}, a INT")
    assert (made.watermark.column.text, made.watermark.delay) == ("ts", delay)
    assert [column.name.text for column in made.columns] == ["ts", "a"]
    assert table("a INT").watermark is None


@pytest.mark.parametrize(
    "key",
    [
        "CONSTRAINT pk PRIMARY KEY (a, b) NOT ENFORCED, c INT",
        "PRIMARY KEY (a) NOT ENFORCED, c INT",
        "c INT PRIMARY KEY NOT ENFORCED",
        "c INT PRIMARY KEY NOT ENFORCED NOT NULL",
    ],
)
def test_a_primary_key_has_no_effect(key):
    assert [column.name.text for column in table(f"a INT, b INT, {key}").columns] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("CONSTRAINT pk UNIQUE (a) NOT ENFORCED", "expected PRIMARY KEY, found 'UNIQUE'"),
        ("CONSTRAINT pk PRIMARY KEY (a)", "enforces no key: expected NOT ENFORCED, found"),
        ("PRIMARY KEY (a) ENFORCED", "enforces no key: expected NOT ENFORCED, found 'ENFORCED'"),
        ("PRIMARY KEY () NOT ENFORCED", "expected a column"),
        ("b INT PRIMARY KEY", "expected NOT ENFORCED"),
        ("PRIMARY KEY (a) NOT ENFORCED, PRIMARY KEY (a) NOT ENFORCED", "67: a table has one PRIMARY KEY"),
        ("b INT PRIMARY KEY NOT ENFORCED, c INT PRIMARY KEY NOT ENFORCED", "a table has one PRIMARY KEY"),
        ("WATERMARK FOR a AS a, WATERMARK FOR a AS a", "a table has one watermark"),
        ("WATERMARK FOR a AS a + INTERVAL 1 SECOND", "expected"),
        ("WATERMARK FOR a AS a -", "expected INTERVAL"),
    ],
)
def test_what_a_key_or_a_watermark_cannot_be(key, message):
    with pytest.raises(SqlError, match=message):
        table(f"a INT, {key}")


def test_clauses_come_in_any_order_and_more_than_once():
    text = (
        "CREATE TABLE t (watermark INT NOT NULL NULL, m BIGINT METADATA COMMENT 'x', n INT NULL) "
        "COMMENT 'a table' OPTIONS (topic 'x', a.b TRUE) USING rocketmq OPTIONS (c = FALSE, d 1)"
    )
    made = one(text)
    assert [(option.name, option.value) for option in made.options] == [
        ("topic", "x"), ("a.b", "true"), ("c", "false"), ("d", "1"),
    ]  # fmt: skip
    places = [text.index(start) + 1 for start in ("topic", "a.b", "c = ", "d 1")]
    assert [option.position.column for option in made.options] == places
    first, metadata, last = made.columns
    assert (first.name.text, first.type, first.nullable, last.nullable) == ("watermark", "INT", True, True)
    assert (metadata.type, metadata.key, metadata.virtual) == ("BIGINT", "m", False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE TABLE (a INT) USING rocketmq", "expected the table's name, found '('"),
        ("CREATE TABLE t (a INT) USING rocketmq USING 'x'", "expected a format"),
        ("CREATE TABLE t (a INT) USING rocketmq COMMENT x", "expected a comment between quotes"),
        ("CREATE TABLE t (a INT COMMENT x) USING rocketmq", "expected a comment between quotes"),
        ("CREATE TABLE t (a INT) USING rocketmq WHERE", "expected WITH (…) or OPTIONS (…)"),
        ("CREATE TABLE t (a INT) USING rocketmq PARTITIONED\n  BY (a)", "cannot be partitioned by columns"),
        ("CREATE TABLE t (a INT) USING rocketmq PARTITIONED BY (1)", "expected a column, found '1'"),
        ("CREATE TABLE t (a INT) USING rocketmq PARTITIONED BY (a) PARTITIONED BY (a)", "BY once, found"),
        ("CREATE TABLE t USING rocketmq LIKE 5", "expected a table's name, found '5'"),
        ("CREATE TABLE t USING rocketmq LIKE b.'c'", "expected the rest of the table's name, found"),
        ("CREATE TABLE t (a INT) USING rocketmq OPTIONS (( 1)", "expected an option's name"),
        ("CREATE TABLE t (a INT) USING rocketmq OPTIONS (a.'b' 1)", "the rest of the option's name"),
        ("CREATE TABLE t (a INT) USING rocketmq OPTIONS (a b)", "the option's value between quotes"),
        *(
            (text.replace("9", "9" * 5000), "a number has at most 1,000 digits")
            for text in (
                "CREATE TABLE t (a DECIMAL(9, 2)) USING rocketmq",
                "SELECT CAST(a AS VARCHAR(9)) FROM t",
                "SELECT a FROM t LIMIT 9",
            )
        ),
        ("CREATE TABLE t (1 INT) USING rocketmq", "expected a column, found '1'"),
        ("CREATE TABLE t (a INT, b AS , c INT) USING rocketmq", "expected an expression, found ','"),
        ("CREATE TABLE t (a INT, b AS ) USING rocketmq", "expected an expression, found ')'"),
        ("CREATE TABLE t (a INT METADATA FROM b) USING rocketmq", "the metadata's name between quotes"),
        ("CREATE TABLE t (a INT, CONSTRAINT 'x' PRIMARY KEY (a) NOT ENFORCED) USING rocketmq",
         "expected the constraint's name"),
        ("CREATE TABLE t (a INT, WATERMARK FOR 'a' AS a) USING rocketmq", "expected the column of time"),
        ("CREATE TABLE t (a INT, WATERMARK FOR a AS 'a') USING rocketmq", "expected the column of time"),
        ("CREATE TABLE t (a INT, WATERMARK FOR a AS a - INTERVAL x S) USING rocketmq", "expected a number"),
        ("CREATE TABLE t (a INT, WATERMARK FOR a AS a - INTERVAL 5 '') USING rocketmq", "such as SECOND"),
    ],
)  # fmt: skip
def test_errors_name_what_is_expected(text, message):
    with pytest.raises(SqlError, match=re.escape(message)):
        parse_statements(text)


def test_a_job_of_everything_keeps_its_places():
    job = """-- a comment; with a semicolon
SET 'checkpointLocation' = '/tmp/a b';
SET spark.sql.shuffle.partitions=2;
CREATE TABLE t (a INT) WITH ('connector' = 'rocketmq');
CREATE VIEW v AS
  SELECT * FROM t WHERE a = ';' /* ; */;
EXECUTE STATEMENT SET BEGIN
INSERT INTO t (a) SELECT 1;
INSERT INTO db.other (SELECT a FROM v);
END;
RESET 'checkpointLocation';
DROP TABLE IF EXISTS t;
CREATE TABLE p USING parquet AS SELECT 1;
CREATE TEMPORARY VIEW w USING rocketmq OPTIONS (topic 'x');
SHOW TABLES;
"""
    statements = parse_statements(job)
    assert [type(s) for s in statements] == [
        Set, Set, CreateTable, CreateView, Insert, Insert, Reset, DropTable,
        SparkStatement, SparkStatement, SparkStatement,
    ]  # fmt: skip
    assert [s.position.line for s in statements] == [2, 3, 4, 5, 8, 9, 11, 12, 13, 14, 15]
    assert (statements[0].name, statements[0].value) == ("checkpointLocation", "/tmp/a b")
    assert (statements[1].name, statements[1].value) == ("spark.sql.shuffle.partitions", "2")
    assert [name.text for name in statements[4].columns] == ["a"]
    assert (statements[5].target.text, statements[5].query.text) == ("db.other", "(SELECT a FROM v)")
    assert [s.is_query for s in statements[-3:]] == [False, False, True]


def test_queries_are_left_to_spark_at_their_places():
    job = "SET a = b;\n/* x */ INSERT INTO t\n\tSELECT nonsense |> of ::: spark FROM Orders"
    query = parse_statements(job)[1].query
    assert {"orders", "nonsense"} <= query.names
    start = query.padded.index("SELECT")
    assert Position.of(query.padded, start) == Position.of(job, job.index("SELECT")) == Position(3, 2)


def test_the_name_of_a_result_is_no_table_that_is_read():
    """A target is often called as what it has: a table of a database would need a driver to be read."""
    (statement,) = parse_statements(
        "INSERT INTO best SELECT k, MAX(v) AS best FROM scores AS s JOIN s ON TRUE"
    )
    assert {"scores", "s"} <= statement.query.names
    assert "best" not in statement.query.names


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("CREATE TABLE t (\n a BIGINTT) USING rocketmq", (2, 4), "expected the type of a, found 'BIGINTT'"),
        ("CREATE TABLE t (a TIME(3)) USING rocketmq", (1, 19), "unsupported type TIME"),
        ("CREATE TABLE t (a INT, A INT) USING rocketmq", (1, 24), "column 'A' is given twice"),
        ("CREATE TABLE t (a INT) WITH ('connector'='kafka')", (1, 42), "connector 'kafka'"),
        (
            "CREATE TABLE t (a INT) WITH ('connector'='rocketmq' 'x'='y')",
            (1, 53),
            "expected ), found a text between quotes",
        ),
        ("CREATE TABLE t (a INT) WITH ('connector'='rocketmq', 'x')", (1, 57), "the option's value"),
        ("CREATE TABLE t (a INT) USING rocketmq OPTIONS (x 1, X 2)", (1, 53), "'X' of t is given twice"),
        (
            "CREATE TABLE t (a INT) USING rocketmq PARTITIONED BY (a)",
            (1, 39),
            "cannot be partitioned by columns",
        ),
        ("CREATE TABLE db.t (a INT) USING rocketmq", (1, 14), "a name without a dot"),
        ("CREATE TABLE t USING rocketmq LIKE default_catalog.default_database.b", (1, 36), "LIKE b: the job"),
        ("CREATE TABLE t (a INT, WATERMARK FOR b AS b) USING rocketmq", (1, 38), "no column 'b'"),
        ("CREATE TABLE t (a INT, WATERMARK FOR a AS b) USING rocketmq", (1, 43), "a - INTERVAL"),
        ("CREATE TABLE t (a INT, PRIMARY KEY (a)) USING rocketmq", (1, 39), "NOT ENFORCED"),
        ("CREATE TABLE t (a INT METADATE) USING rocketmq", (1, 23), "expected NOT NULL, METADATA"),
        ("SELECT 1;\n\n INSERT INTO t", (3, 15), "expected a query, found the end"),
        ("INSERT t SELECT 1", (1, 8), "expected INTO"),
        ("SET x", (1, 6), "expected ="),
        ("SET = 3", (1, 5), "a setting's name"),
    ],
)
def test_errors_say_line_and_column(text, place, message):
    with pytest.raises(SqlError, match=re.escape(message)) as failure:
        parse_statements(text)
    assert (failure.value.line, failure.value.column) == place
    assert str(failure.value).startswith(f"line {place[0]}, column {place[1]}: ")


def test_a_table_is_replaced_and_of_rocketmq_unless_it_says_otherwise():
    replaced = one("CREATE OR REPLACE TABLE t (a INT) USING rocketmq")
    plain = one("CREATE TABLE IF NOT EXISTS t (a INT) USING rocketmq")
    assert (replaced.replace, replaced.if_not_exists, replaced.connector) == (True, False, "rocketmq")
    assert (plain.replace, plain.if_not_exists, plain.connector) == (False, True, "rocketmq")


def test_an_open_quote_is_an_error():
    with pytest.raises(SqlError, match="quote or a comment not closed"):
        parse_statements("SELECT 'abc")


def test_a_text_that_ends_with_a_backslash_is_written_by_its_code():
    with pytest.raises(SqlError, match=re.escape("write U&'\\005C' for a text that ends with a backslash")):
        parse_statements(r"SELECT '\'; SELECT 1")
    with pytest.raises(SqlError, match=r"not closed\?$"):
        parse_statements("SELECT 'a")
    first, second = parse_statements(r"SELECT U&'\005C' AS a; SELECT 1")
    assert (first.whole.text, second.whole.text) == (r"SELECT U&'\005C' AS a", "SELECT 1")


def test_nothing_is_no_statement():
    assert parse_statements(" ;; -- nothing\n;") == ()
    assert parse_statements("") == ()


def test_times_of_sparks_tables_lose_a_precision_that_spark_has_not():
    text = "CREATE TABLE s (a TIMESTAMP(3), b STRUCT<c: TIMESTAMP_LTZ(6)>, d TIMESTAMP(9)) USING csv"
    (statement,) = parse_statements(f"SELECT 1;\n{text} AS SELECT timestamp(3)"[10:])
    expected = text.replace("(3)", "   ").replace("(6)", "   ")
    assert statement.whole.text == f"{expected} AS SELECT timestamp(3)"
    (query,) = parse_statements("SELECT timestamp(3)")
    assert query.whole.text == "SELECT timestamp(3)"


def test_functions_have_a_language():
    python = one("CREATE TEMPORARY FUNCTION f AS 'm.f' LANGUAGE PYTHON")
    assert isinstance(python, CreateFunction)
    assert (python.path, python.is_python, python.jars) == ("m.f", True, ())
    java = one("CREATE FUNCTION f AS 'm.F' LANGUAGE JAVA USING JAR '/a.jar', JAR '/b.jar'")
    assert isinstance(java, CreateFunction)
    assert (java.path, java.is_python, java.jars) == ("m.F", False, ("/a.jar", "/b.jar"))
    flinks = one("CREATE FUNCTION f AS 'm.F' USING JAR '/a.jar'")  # JAVA, and one of Spark's
    assert isinstance(flinks, CreateFunction)
    assert (flinks.is_python, flinks.jars) == (False, ("/a.jar",))
    assert flinks.of_spark.text == "CREATE FUNCTION f AS 'm.F' USING JAR '/a.jar'"
    assert python.of_spark is java.of_spark is None
    assert isinstance(one("CREATE FUNCTION f(x INT) RETURNS INT RETURN x + 1"), SparkStatement)
    for text, message in (
        ("CREATE FUNCTION f AS 'm.F' LANGUAGE RUST", "'RUST' is not one of PYTHON, JAVA, SCALA"),
        ("CREATE FUNCTION f AS 'm.f' LANGUAGE PYTHON USING JAR 'a'", "a Python function is in no jar"),
        ("CREATE FUNCTION f AS 'm.F' LANGUAGE JAVA WITH 1", "expected LANGUAGE, USING JAR, or the end"),
    ):
        with pytest.raises(SqlError, match=message):
            one(text)


def test_a_function_of_the_job_is_dropped_as_the_temporary_one_that_it_is():
    *_, dropped = parse_statements("CREATE FUNCTION f AS 'm.F'; DROP FUNCTION IF EXISTS f")
    assert dropped.whole.text == "DROP TEMPORARY FUNCTION IF EXISTS f"
    assert one("DROP FUNCTION f").whole.text == "DROP FUNCTION f"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "EXECUTE STATEMENT SET\nBEGIN INSERT INTO a SELECT 1;",
            "line 1, column 1: this statement set has no",
        ),
        ("INSERT INTO a SELECT 1;\n END;", "line 2, column 2: END belongs to EXECUTE STATEMENT SET BEGIN"),
        ("SELECT 1; BEGIN STATEMENT SET;\nBEGIN STATEMENT SET; END", "line 1, column 11: this statement set"),
    ],
)
def test_a_statement_set_has_a_begin_and_an_end(text, error):
    with pytest.raises(SqlError, match=error):
        parse_statements(text)
    assert len(parse_statements("BEGIN STATEMENT SET; INSERT INTO a SELECT 1; END; SELECT 1")) == 2


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE t (a INT) USING rocketmq OPTIONS (topic 'x', secretKey 'planted' 'planted')",
        "CREATE TABLE t (a INT) WITH ('connector'='rocketmq', 'secretKey'='x' 'planted')",
        "CREATE TABLE t (a INT) WITH ('connector'='rocketmq', 'secretKey'=planted)",
        "CREATE TABLE t (a INT) WITH ('connector'='rocketmq', 'secretKey'=planted_4711)",
        "CREATE TABLE t (a INT) WITH ('connector'='rocketmq') 'planted'",
        "CREATE TABLE t WITH ('connector'='rocketmq') LIKE u (INCLUDING 'planted')",
        "SET 'spark.password' 'planted'",
        "RESET 'spark.password' 'planted'",
    ],
)
def test_errors_show_no_text_that_may_be_a_secret(text):
    with pytest.raises(SqlError, match="line 1, column") as caught:
        parse_statements(text)
    assert "planted" not in str(caught.value)
