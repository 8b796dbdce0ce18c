"""Flink's functions give in Spark what they give in Flink: every example of the table, in one query."""

from __future__ import annotations

import base64
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.support.flink_examples import of_rows, of_values

from pyspark_rocketmq.errors import SqlError
from pyspark_rocketmq.sql import execute
from pyspark_rocketmq.sql.flinksql import Relation, translate
from pyspark_rocketmq.sql.flinksql.functions import Example
from pyspark_rocketmq.sql.flinksql.relations import Versions
from pyspark_rocketmq.sql.statements import Position, Query

ROWS = "(VALUES (1, NULL), (2, 'y'), (3, 'z')) AS t (a, b)"


def evaluate(spark: SparkSession, examples: list[Example], source: str) -> list[Any]:
    text = f"SELECT {', '.join(f'{each.call} AS e{number}' for number, each in enumerate(examples))}{source}"
    names = frozenset(text.lower().replace("(", " ").split())
    found = translate(Query(text, names, Position(1, 1)), {"t": Relation()})
    (row,) = spark.sql(found.text).collect()
    return list(row)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float) and one != one:
        return other != other
    return one == other or (type(one) is not type(other) and one is not None and str(one) == str(other))


def test_every_example_of_the_table_gives_flinks_result(spark: SparkSession) -> None:
    for examples, source in ((of_values(), ""), (of_rows(), f" FROM {ROWS}")):
        found = evaluate(spark, examples, source)
        wrong = [
            f"{each.call}: {value!r}, not {each.result!r}"
            for each, value in zip(examples, found, strict=True)
            if not same(value, each.result)
        ]
        assert not wrong, "\n".join(wrong)


DOUBLED = (
    "yv66vgAAAD0AIwoAAgADBwAEDAAFAAYBABBqYXZhL2xhbmcvT2JqZWN0AQAGPGluaXQ+AQADKClWBQAAAAAAAAACCgAKAAsH"
    "AAwMAA0ADgEADmphdmEvbGFuZy9Mb25nAQAJbG9uZ1ZhbHVlAQADKClKCgAKABAMABEAEgEAB3ZhbHVlT2YBABMoSilMamF2"
    "YS9sYW5nL0xvbmc7CgAUABUHABYMABcAGAEADHNob3AvRG91YmxlZAEABGNhbGwBACIoTGphdmEvbGFuZy9Mb25nOylMamF2"
    "YS9sYW5nL0xvbmc7BwAaAQAib3JnL2FwYWNoZS9zcGFyay9zcWwvYXBpL2phdmEvVURGMQEABENvZGUBAA1TdGFja01hcFRh"
    "YmxlAQAmKExqYXZhL2xhbmcvT2JqZWN0OylMamF2YS9sYW5nL09iamVjdDsBAApFeGNlcHRpb25zBwAgAQATamF2YS9sYW5n"
    "L0V4Y2VwdGlvbgEACVNpZ25hdHVyZQEAWExqYXZhL2xhbmcvT2JqZWN0O0xvcmcvYXBhY2hlL3NwYXJrL3NxbC9hcGkvamF2"
    "YS9VREYxPExqYXZhL2xhbmcvTG9uZztMamF2YS9sYW5nL0xvbmc7PjsAIQAUAAIAAQAZAAAAAwABAAUABgABABsAAAARAAEA"
    "AQAAAAUqtwABsQAAAAAAAQAXABgAAQAbAAAALQAEAAIAAAAUK8cABwGnAA4UAAcrtgAJabgAD7AAAAABABwAAAAHAAIISgcA"
    "ChBBABcAHQACABsAAAAVAAIAAgAAAAkqK8AACrYAE7AAAAAAAB4AAAAEAAEAHwABACEAAAACACI="
)
"""The class ``shop.Doubled implements UDF1<Long, Long>``, which doubles a number."""


def test_functions_in_jars(spark: SparkSession, tmp_path: Path) -> None:
    jar = tmp_path / "shop.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("shop/Doubled.class", base64.b64decode(DOUBLED))
    text = f"CREATE TEMPORARY FUNCTION doubled AS 'shop.Doubled' LANGUAGE JAVA USING JAR '{jar}';"
    job = execute(spark, f"{text} SELECT doubled(id) AS d FROM range(3)")
    assert [row.d for row in job.results[0].collect()] == [0, 2, 4]
    with pytest.raises(SqlError, match=r"line 1, column 1: Spark cannot load shop.None .*LANGUAGE PYTHON"):
        execute(spark, "CREATE FUNCTION f AS 'shop.None' LANGUAGE JAVA")
    with pytest.raises(SqlError, match="UDF0 to UDF22"):
        execute(spark, "CREATE FUNCTION f AS 'java.lang.String' LANGUAGE SCALA")


def test_a_version_is_the_one_that_was_valid(spark: SparkSession) -> None:
    for name, rows in {
        "dated_orders": "(1, 'a', 5), (2, 'a', 10), (3, 'a', 25), (4, 'b', 1), (5, 'c', 9) AS t(id, cur, at)",
        "dated_rates": "('a', 100, 5), ('a', 200, 20), ('b', 300, 2), ('c', 7, 1) AS t (cur, rate, since)",
    }.items():
        spark.sql(f"SELECT * FROM VALUES {rows}").createOrReplaceTempView(name)
    known = {"dated_rates": Relation(messages=True, versions=Versions(("cur",), "since"))}

    def joined(kind: str) -> list[tuple[Any, ...]]:
        text = (
            f"SELECT o.id, r.* FROM dated_orders AS o {kind} dated_rates FOR SYSTEM_TIME AS OF o.at AS r "
            "ON o.cur = r.cur"
        )
        query = Query(text, frozenset(re.findall(r"\w+", text)), Position(1, 1))
        rows = spark.sql(translate(query, known).text).collect()
        return sorted((tuple(row) for row in rows), key=repr)

    found = [(1, "a", 100, 5), (2, "a", 100, 5), (3, "a", 200, 20), (5, "c", 7, 1)]
    assert joined("JOIN") == found
    assert joined("LEFT JOIN") == sorted([*found, (4, None, None, None)], key=repr)


@pytest.mark.since_spark("4.2")
def test_a_top_n_may_mix_orders_of_texts_and_numbers(spark: SparkSession) -> None:
    rows = "('a', 1), ('ab', 1), (NULL, 1), ('', 1), ('b', 2), ('\u4f60', 2), ('\U0001f600', 2), ('z', NULL)"
    spark.sql(f"SELECT * FROM VALUES {rows} AS t (name, n)").createOrReplaceTempView("mixed_orders")

    def found(order: str) -> list[tuple[Any, ...]]:
        ranked = f"SELECT *, ROW_NUMBER() OVER (ORDER BY {order}) AS place FROM mixed_orders"
        query = f"SELECT name, n, place FROM ({ranked}) WHERE place <= 20"
        names = frozenset(re.findall(r"\w+", query.lower()))
        text = translate(Query(query, names, Position(1, 1)), {"mixed_orders": Relation(stream=True)}).text
        return [tuple(row[:2]) for row in spark.sql(text).collect()]

    ascending = [
        (None, 1),
        ("", 1),
        ("a", 1),
        ("ab", 1),
        ("b", 2),
        ("\u4f60", 2),
        ("\U0001f600", 2),
        ("z", None),
    ]
    by_number = sorted(ascending, key=lambda row: -1 if row[1] is None else row[1], reverse=True)
    assert found("n DESC, name") == by_number
    wanted = sorted(ascending, key=lambda row: row[1] or 0)
    assert found("n, name DESC") == [
        *wanted[:1], *reversed(wanted[1:5]), *reversed(wanted[5:])
    ]  # fmt: skip


@pytest.mark.since_spark("4.2")
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("DOUBLE", "1e-12D; 5e-13D; -5e-13D; 1e300D; -1e300D; 0D; NULL"),
        ("DOUBLE", "'NaN'; 'Infinity'; '-Infinity'; 7D; NULL"),
        ("FLOAT", "1e-12F; 1e38F; 'NaN'; -3F; NULL"),
        ("BIGINT", "9223372036854775807; -9223372036854775807; 0; NULL"),
        ("DECIMAL(20, 8)", "0.00000001; 0.00000002; -1; NULL"),
        ("DECIMAL(38, 0)", f"{'9' * 33}8; {'9' * 34}; -{'9' * 34}; 0; NULL"),
        ("DECIMAL(38, 18)", "0.000000000000000001; 0.000000000000000002; -1; -1.000000000000000001; NULL"),
        ("DATE", "date'2026-01-31'; date'1969-12-31'; NULL"),
        ("TIMESTAMP", "'2026-01-31 08:00:00.000001'; '2026-01-31 08:00:00'; NULL"),
        ("BOOLEAN", "TRUE; FALSE; NULL"),
    ],
)
def test_a_top_n_of_mixed_orders_has_the_order_of_each_type(
    spark: SparkSession, kind: str, values: str
) -> None:
    rows = ", ".join(f"(1, CAST({value} AS {kind}), {at})" for at, value in enumerate(values.split("; ")))
    spark.sql(f"SELECT * FROM VALUES {rows} AS t (one, v, id)").createOrReplaceTempView("typed_orders")
    for nulls in ("", " NULLS LAST"):
        ranked = (
            f"SELECT id, ROW_NUMBER() OVER (ORDER BY one DESC, v ASC{nulls}, id) AS place FROM typed_orders"
        )
        query = f"SELECT id, place FROM ({ranked}) WHERE place <= 20"
        names = frozenset(re.findall(r"\w+", query.lower()))
        text = translate(Query(query, names, Position(1, 1)), {"typed_orders": Relation(stream=True)}).text
        assert "ROW_NUMBER" not in text
        assert sorted(spark.sql(text).collect()) == sorted(spark.sql(query).collect())


def test_unnest_has_flinks_rows(spark: SparkSession) -> None:
    rows = "(1, array('a', 'b'), array(named_struct('sku', 'x', 'n', 5))), (2, array(), array())"
    spark.sql(f"SELECT * FROM VALUES {rows} AS t (id, tags, items)").createOrReplaceTempView("nested_orders")
    known = {"nested_orders": Relation(nested={"items": "rows"})}

    def found(query: str) -> list[tuple[Any, ...]]:
        names = frozenset(re.findall(r"\w+", query.lower()))
        text = translate(Query(query, names, Position(1, 1)), known).text
        return sorted((tuple(row) for row in spark.sql(text).collect()), key=repr)

    of_tags = "SELECT id, t FROM nested_orders {} JOIN UNNEST(tags) AS x (t)"
    assert found(of_tags.format("CROSS")) == [(1, "a"), (1, "b")]
    assert found(f"{of_tags.format('LEFT')} ON TRUE") == [(1, "a"), (1, "b"), (2, None)]
    numbered = "SELECT t, n FROM nested_orders CROSS JOIN UNNEST(tags) WITH ORDINALITY AS x (t, n)"
    assert found(numbered) == [("a", 1), ("b", 2)]
    assert found("SELECT id, s FROM nested_orders, UNNEST(items) AS x (s, n)") == [(1, "x")]
    assert found("SELECT x.sku, x.n FROM nested_orders CROSS JOIN UNNEST(items) AS x") == [("x", 5)]


def test_types_of_flinks_names_alone_are_translated(spark: SparkSession) -> None:
    for each in (
        Example("CAST('a' AS BYTES) = X'61'", True),
        Example("TRY_CAST('a' AS VARBINARY) = X'61'", True),
        Example("DATE_FORMAT(CAST('2026-01-31 08:00:00' AS TIMESTAMP(3)), 'HH')", "08"),
        Example("CAST('2026-01-31 08:00:00' AS TIMESTAMP_LTZ(3)) IS NULL", False),
        Example("CAST('2026-01-31 08:00:00' AS TIMESTAMP(3) WITH LOCAL TIME ZONE) IS NULL", False),
        Example("CAST(NULL AS ROW<a INT, b ARRAY<BYTES>>)", None),
    ):
        assert evaluate(spark, [each], "") == [each.result], each.call


def test_quotients_of_quotients_are_whole(spark: SparkSession) -> None:
    calls = [
        Example("CAST(a / 3 / 2 AS DOUBLE)", 16.0),
        Example("CAST(a / (b / 2) AS DOUBLE)", 33.0),
        Example("CAST(a / 3 / (b / 2) / (a / b / 2) AS DOUBLE)", 1.0),
        Example("CAST((a / 3 + 1) / 4 AS DOUBLE)", 8.0),
        Example("CAST(a / 3 / 2.0 AS DOUBLE)", 16.5),
        Example("CAST(a / 3 / CAST(2 AS DOUBLE) AS DOUBLE)", 16.5),
        Example(f"CAST(a{' / 1' * 11} / 3 AS DOUBLE)", 33.0),
        Example("CAST(a / CAST(NULL AS INT) / 2 AS DOUBLE)", None),
    ]
    assert evaluate(spark, calls, " FROM (VALUES (100, 7)) AS t (a, b)") == [each.result for each in calls]
    calls = [
        Example("CAST(SUM(a / 3) / (SUM(b) / 2) / 2 AS DOUBLE)", 5.0),
        Example("CAST(AVG(a) / 3 / 2 AS DOUBLE)", 16.0),
        Example("CAST(SUM(CAST(b AS DECIMAL(9, 2)) / 2) / 2 AS DOUBLE)", 1.75),
    ]
    assert evaluate(spark, calls, " FROM (VALUES (100, 7)) AS t (a, b)") == [each.result for each in calls]


def test_a_quotient_of_an_aggregate_over_rows_is_whole(spark: SparkSession) -> None:
    calls = [
        Example("CAST(AVG(a) OVER (PARTITION BY b) AS STRING)", "3"),
        Example("CAST(AVG(a) OVER (PARTITION BY b) / 2 AS DOUBLE)", 1.0),
        Example("CAST(SUM(a / 2) OVER (PARTITION BY b) / 2 AS DOUBLE)", 0.0),
    ]
    found = evaluate(spark, calls, " FROM (VALUES (3, 1)) AS t (a, b)")
    assert found == [each.result for each in calls]
