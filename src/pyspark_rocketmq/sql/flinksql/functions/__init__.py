"""Flink's functions as Spark's expressions: a table for the translator, the docs and the tests.

Functions that are not in the table mean the same in both dialects, or exist in Spark only.

# Facts (Flink 1.20 and 2.0, SqlFunctionUtils, BinaryStringDataUtil, docs of the built-in functions;
# Spark 4.3): each entry's `differs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark_rocketmq.sql.flinksql.functions.aggregates import AGGREGATE_FORMS, AGGREGATES
from pyspark_rocketmq.sql.flinksql.functions.declared import Example, Function
from pyspark_rocketmq.sql.flinksql.functions.texts import TEXTS
from pyspark_rocketmq.sql.flinksql.functions.times import TIMES
from pyspark_rocketmq.sql.flinksql.functions.values import VALUES

__all__ = ["AGGREGATES", "FUNCTIONS", "UNKNOWN", "Example", "Function"]

FUNCTIONS: Final[Mapping[str, Function]] = {**TEXTS, **TIMES, **VALUES, **AGGREGATE_FORMS}
"""By upper-case name. Examples of aggregates are over ``(1, NULL), (2, 'y'), (3, 'z')`` of ``a, b``."""

UNKNOWN: Final[Mapping[str, str]] = {
    "COLLECT": "use collect_list",
    "CURRENT_WATERMARK": "Spark drops late rows itself",
    "GROUP_ID": "use grouping_id()",
    "JSON_ARRAYAGG": "use to_json(collect_list(…))",
    "JSON_OBJECTAGG": "use to_json(map_from_entries(collect_list(struct(…))))",
    "JSON_QUOTE": "use JSON_STRING",
    "JSON_UNQUOTE": "use JSON_VALUE(text, '$')",
    "KEYVALUE": "use str_to_map(text, ',', '=')['key']",
    "TUMBLE_PROCTIME": "use PROCTIME()",
    "HOP_PROCTIME": "use PROCTIME()",
    "SESSION_PROCTIME": "use PROCTIME()",
}
"""Flink's functions that are refused, and what to use instead."""
