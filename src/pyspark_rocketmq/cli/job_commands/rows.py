"""Rows of a DataFrame as commands print them: times with the offset of the session's time zone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from pyspark_rocketmq.errors import RocketMQError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["cells", "first_rows", "plain_rows"]


def first_rows(df: DataFrame, count: int) -> list[tuple[Any, ...]]:
    """Return the first rows, with Python's values.

    Raises
    ------
    RocketMQError
        Python has no such value, such as a time after year 9999.
    """
    try:
        return [tuple(row) for row in df.limit(count).collect()]
    except PySparkException:
        raise
    except (ValueError, OverflowError) as error:  # of PySpark's conversion of times
        raise RocketMQError(
            f"the rows cannot be shown: {error}: Python's times are of years 1 to 9999; CAST(… AS STRING) "
            "shows others"
        ) from error


def plain_rows(df: DataFrame) -> list[dict[str, Any]]:
    """Return the rows as Spark writes them in JSON."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    lines = df.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"})).collect()
    return [json.loads(line) for (line,) in lines]


def cells(row: dict[str, Any]) -> list[object]:
    """Return a row's values for a table: what is nested as JSON."""
    return [
        json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
        for value in row.values()
    ]
