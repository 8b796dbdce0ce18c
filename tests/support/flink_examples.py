"""Expressions of Flink and their results there: Spark evaluates them; a golden file has their translations.

The examples of functions are in the table of functions. ``python -m tests.support.flink_examples`` writes the
golden file again: then run ``tests/spark/test_sql_functions.py``, which evaluates them.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

from pyspark_rocketmq.sql.flinksql import FUNCTIONS, Relation, translate
from pyspark_rocketmq.sql.flinksql.functions import AGGREGATES, Example
from pyspark_rocketmq.sql.statements import Position, Query

__all__ = ["calls", "of_rows", "of_values", "read_golden", "translated"]

_GOLDEN: Final = Path(__file__).parents[1] / "golden" / "flink_translations.txt"

_OPERATORS = (
    Example("7 / 2", 3),
    Example("-7 / 2", -3),
    Example("7 / 2.0", 3.5),
    Example("7 / (-2.0)", -3.5),
    Example("7.0 / 2", 3.5),
    Example("LOCALTIMESTAMP IS NULL", False),
    Example("CAST(NULL AS TIMESTAMP(3))", None),
    Example("CAST(CAST('1.10' AS DECIMAL(5, 3)) AS STRING)", "1.100"),
    Example("CAST(7 / 2 AS STRING)", "3"),
    Example("CAST(7 / 2.0 AS VARCHAR(2))", "3."),
    Example("CAST((5 / 2 + 1) / 2 AS DOUBLE)", 1.0),
    Example("CAST((7 / 2) * 3 / 2 AS DOUBLE)", 4.0),
    Example("CAST(7 / 2 % 2 AS STRING)", "1"),
    Example("CAST(-(7 / 2) / 2 AS DOUBLE)", -1.0),
    Example("CAST(COALESCE(7 / 2, 0) / 2 AS DOUBLE)", 1.0),
    Example("CAST(CASE WHEN 1 = 1 THEN 7 / 2 ELSE NULL END / 2 AS DOUBLE)", 1.0),
    Example("CAST(IF(1 = 2, 0, 7 / 2) / 2 AS DOUBLE)", 1.0),
    Example("CAST(CASE WHEN 1 = 1 THEN 7 / 2 ELSE 0.5 END / 2 AS DOUBLE)", 1.5),
    Example("CAST(SQRT(9 / 2) AS STRING)", "2.0"),
    Example("CAST(NULLIF(7 / 2, 0.5) AS STRING)", "3"),
    Example("CAST(TRUNCATE(7 / 2, 1) AS STRING)", "3"),
    Example("CAST((7 / 2 + 0.5) / 2 AS DOUBLE)", 1.75),
    Example(
        "CAST(CAST(1 AS DECIMAL(10, 2)) / CAST(3 AS DECIMAL(10, 2)) * CAST(1 AS DECIMAL(10, 2)) AS STRING)",
        "0.333333333333300",
    ),
    Example("CAST(CAST(1 AS DECIMAL(10, 2)) / 3 AS STRING)", "0.3333333333333"),
    Example("CAST(CAST(1 AS DECIMAL(10, 2)) / (-3) AS STRING)", "-0.3333333333333"),
    Example("CAST(1.0 / 3 AS STRING)", "0.333333333333"),
    Example("CAST(9007199254740993 / 3 AS STRING)", "3002399751580331"),
    Example("CEIL(CAST(4.5 AS DOUBLE)) / 2", 2.5),
    Example("(FLOOR(CAST(5.5 AS DOUBLE)) + 0) / 2", 2.5),
    Example("CAST(CEIL(7 / 2) / 2 AS DOUBLE)", 1.0),
    Example("CAST(FLOOR(7 / 2) AS STRING)", "3"),
    Example("CAST(TRUNCATE(-7 / 2) AS STRING)", "-3"),
    Example("10 - FLOOR(CAST('2.5E0' AS DOUBLE))", 8.0),
    Example("FLOOR(RAND() * 6) BETWEEN 0 AND 5", True),
    Example("CAST(SIGN(-3) / 2 AS DOUBLE)", 0.0),
    Example("CAST('ab' AS CHAR(4)) || '|'", "ab  |"),
    Example(r"'C:\dir' LIKE 'C:\d%'", True),
    Example(r"'C:\dir' NOT LIKE 'C:\d%'", False),
    Example(r"'a_b' LIKE 'a\_b'", False),
    Example(r"'C:\dir' LIKE concat('C:\', 'd%')", True),
    Example("'50%' LIKE '50!%' ESCAPE '!'", True),
    Example("DATE_FORMAT(FLOOR(TIMESTAMP '2026-01-31 08:09:10' TO WEEK), 'MM-dd HH')", "01-25 00"),
    Example("DATE_FORMAT(CEIL(TIMESTAMP '2026-01-31 08:09:10' TO WEEK), 'MM-dd HH')", "02-01 00"),
    Example("DATE_FORMAT(FLOOR(TIMESTAMP '2026-02-01 08:09:10' TO WEEK), 'MM-dd HH')", "02-01 00"),
    Example("DATE_FORMAT(CEIL(TIMESTAMP '2026-01-31 08:09:10' TO QUARTER), 'MM-dd HH')", "04-01 00"),
    Example("EXTRACT(ISODOW FROM DATE '2026-02-01')", 7),
    Example("3 BETWEEN SYMMETRIC 5 AND 1", True),
    Example("""'{"a": 1}' IS JSON""", True),
    Example("""'{"a": 1}' IS JSON ARRAY""", False),
    Example("""'{"a": 1' IS NOT JSON OBJECT""", True),
    Example("'7' IS JSON SCALAR", True),
    Example("ARRAY[5, 6][1]", 5),
    Example("ARRAY[5, 6][3]", None),
    Example("MAP['k', 1]['k']", 1),
    Example("MAP['k', 1]['m']", None),
    Example("CAST('abcdef' AS VARCHAR(3))", "abc"),
    Example("CAST(1 = 1 AS STRING)", "TRUE"),
    Example("CAST('1.9' AS INT)", 1),
    Example("CAST('-1.9' AS BIGINT)", -1),
    Example("CAST('+.9' AS SMALLINT)", 0),
    Example("CAST('7.' AS TINYINT)", 7),
    Example("CAST(CONCAT('12', '.5') AS INT)", 12),
    Example("TRY_CAST('1.x' AS INT)", None),
    Example("TRY_CAST('1.2.3' AS INT)", None),
    Example("TRY_CAST('2147483648.5' AS INT)", None),
    Example("TRY_CAST('-2147483648.5' AS INT)", -2147483648),
    Example(r"'a\nb'", r"a\nb"),
    Example("'it''s'", "it's"),
    Example("DATE_FORMAT(FLOOR(TIMESTAMP '2026-01-31 08:09:10' TO HOUR), 'HH:mm:ss')", "08:00:00"),
    Example("DATE_FORMAT(CEIL(TIMESTAMP '2026-01-31 08:09:10' TO HOUR), 'HH:mm:ss')", "09:00:00"),
    Example("CAST(FLOOR(DATE '2026-01-31' TO MONTH) AS STRING)", "2026-01-01"),
    Example("CAST(FLOOR(DATE '2026-01-31' TO WEEK) AS STRING)", "2026-01-25"),
    Example("CAST(CEIL(DATE '2026-01-31' TO YEAR) AS STRING)", "2027-01-01"),
    Example("CAST(CEIL(DATE '2026-01-01' TO YEAR) AS STRING)", "2026-01-01"),
    Example("CAST(TIMESTAMPADD(DAY, 1, DATE '2026-01-31') AS STRING)", "2026-02-01"),
    Example("CAST(TIMESTAMPADD(MONTH, 7 / 2, DATE '2026-01-31') AS STRING)", "2026-04-30"),
    Example("CAST(TIMESTAMPADD(DAY, 1, TIMESTAMP '2026-01-31 08:09:10') AS STRING)", "2026-02-01 08:09:10"),
    Example("CAST(TIMESTAMPADD(HOUR, 1, DATE '2026-01-31') AS STRING)", "2026-01-31 01:00:00"),
    Example(r"U&'\00e9\d83d\de00\\ it''s'", "é😀\\ it's"),
    Example("U&'#263A##' UESCAPE '#'", "☺#"),
    Example(r"U&'\d83d!'", "\ufffd!"),
    Example("CAST(DECIMAL '1.10' AS STRING)", "1.10"),
    Example("CAST(CAST(CAST('ab' AS BINARY(3)) || X'63' AS STRING) AS VARCHAR(9))", "ab\0c"),
    Example("CAST(CAST('abcdef' AS VARBINARY(2)) AS STRING)", "ab"),
    Example("EXTRACT(SECOND FROM TIMESTAMP '2026-01-31 08:09:10.5')", 10),
    Example("TIMESTAMPDIFF(HOUR, TIMESTAMP '2026-01-31 08:00:00', TIMESTAMP '2026-01-31 10:59:00')", 2),
    Example("POSITION('b' IN 'abc')", 2),
    Example("TRIM(LEADING 'x' FROM 'xxa')", "a"),
    Example("""JSON_VALUE('{"a": 1}', '$.b' DEFAULT 'none' ON EMPTY)""", "none"),
)
"""What is no function, and what both dialects share."""

_OF_ROWS = (
    Example("CAST(SUM(a / 2) / 2 AS DOUBLE)", 1.0),
    Example("CAST(MAX(a / 2) FILTER (WHERE a > 1) / 2 AS DOUBLE)", 0.0),
)


def of_values() -> list[Example]:
    """Return the examples that need no rows."""
    of_functions = [
        each for name, function in FUNCTIONS.items() if name not in AGGREGATES for each in function.examples
    ]
    return [*of_functions, *_OPERATORS]


def of_rows() -> list[Example]:
    """Return the examples of aggregates."""
    of_functions = [
        each for name, function in FUNCTIONS.items() if name in AGGREGATES for each in function.examples
    ]
    return [*of_functions, *_OF_ROWS]


def calls() -> list[str]:
    """Return the expressions of all examples."""
    return list(dict.fromkeys(example.call for example in (*of_values(), *of_rows())))


def translated(call: str) -> str:
    """Return an expression in Spark's SQL."""
    text = f"SELECT {call} FROM t"
    query = Query(text, frozenset(re.findall(r"\w+", text.lower())), Position(1, 1))
    return translate(query, {"t": Relation()}).text.removeprefix("SELECT ").removesuffix(" FROM t")


@cache
def read_golden() -> dict[str, str]:
    """Return the translations by the expressions: each has a line, and its translation the next one."""
    return dict(pair.split("\n    ", 1) for pair in _GOLDEN.read_text(encoding="utf-8").strip().split("\n\n"))


if __name__ == "__main__":
    _GOLDEN.write_text("\n".join(f"{call}\n    {translated(call)}\n" for call in calls()), encoding="utf-8")
