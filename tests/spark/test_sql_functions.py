"""Flink's functions give in Spark what they give in Flink: every example of the table, in one query."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from pyspark_rocketmq.sql.flinksql import FUNCTIONS, Relation, translate
from pyspark_rocketmq.sql.flinksql.functions import AGGREGATES, Example
from pyspark_rocketmq.sql.statements import Position, Query

ROWS = "(VALUES (1, NULL), (2, 'y'), (3, 'z')) AS t (a, b)"
OPERATORS = (
    Example("7 / 2", 3),
    Example("-7 / 2", -3),
    Example("7 / 2.0", 3.5),
    Example("ARRAY[5, 6][1]", 5),
    Example("ARRAY[5, 6][3]", None),
    Example("MAP['k', 1]['k']", 1),
    Example("MAP['k', 1]['m']", None),
    Example("CAST('abcdef' AS VARCHAR(3))", "abc"),
    Example("CAST(1 = 1 AS STRING)", "TRUE"),
    Example(r"'a\nb'", r"a\nb"),
    Example("'it''s'", "it's"),
    Example("DATE_FORMAT(FLOOR(TIMESTAMP '2026-01-31 08:09:10' TO HOUR), 'HH:mm:ss')", "08:00:00"),
    Example("DATE_FORMAT(CEIL(TIMESTAMP '2026-01-31 08:09:10' TO HOUR), 'HH:mm:ss')", "09:00:00"),
    Example("EXTRACT(SECOND FROM TIMESTAMP '2026-01-31 08:09:10.5')", 10),
    Example("TIMESTAMPDIFF(HOUR, TIMESTAMP '2026-01-31 08:00:00', TIMESTAMP '2026-01-31 10:59:00')", 2),
    Example("POSITION('b' IN 'abc')", 2),
    Example("TRIM(LEADING 'x' FROM 'xxa')", "a"),
    Example("""JSON_VALUE('{"a": 1}', '$.b' DEFAULT 'none' ON EMPTY)""", "none"),
)
"""What is no function, and what both dialects share."""


def evaluate(spark: SparkSession, examples: list[Example], source: str) -> list[Any]:
    text = f"SELECT {', '.join(f'{each.call} AS e{number}' for number, each in enumerate(examples))}{source}"
    names = frozenset(text.lower().replace("(", " ").split())
    found = translate(Query(text, names, Position(1, 1)), {"t": Relation()})
    (row,) = spark.sql(found.text).collect()
    return list(row)


def same(one: Any, other: Any) -> bool:
    return one == other or (type(one) is not type(other) and one is not None and str(one) == str(other))


def test_every_example_of_the_table_gives_flinks_result(spark: SparkSession) -> None:
    listed = [(name, each) for name, function in FUNCTIONS.items() for each in function.examples]
    of_rows = [each for name, each in listed if name in AGGREGATES]
    of_values = [*(each for name, each in listed if name not in AGGREGATES), *OPERATORS]
    for examples, source in ((of_values, ""), (of_rows, f" FROM {ROWS}")):
        found = evaluate(spark, examples, source)
        wrong = [
            f"{each.call}: {value!r}, not {each.result!r}"
            for each, value in zip(examples, found, strict=True)
            if not same(value, each.result)
        ]
        assert not wrong, "\n".join(wrong)
