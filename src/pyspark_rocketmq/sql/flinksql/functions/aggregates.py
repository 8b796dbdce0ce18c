"""Aggregate functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark_rocketmq.sql.flinksql.functions.declared import Function, function

__all__ = ["AGGREGATES", "AGGREGATE_FORMS"]

_AVG: Final = (
    "CASE WHEN typeof(any_value(_1)) IN ('tinyint', 'smallint', 'int', 'bigint') "
    "THEN CAST(avg({0}_1) AS BIGINT) ELSE avg({0}_1) END"
)

AGGREGATE_FORMS: Final[Mapping[str, Function]] = {
    "LISTAGG": function(
        "the delimiter is , by default, in Spark ''; NULL without values; DISTINCT is a set, in no order",
        ("LISTAGG(CAST(a AS STRING))", "1,2,3"),
        ("LISTAGG(CAST(a AS STRING), '-')", "1-2-3"),
        ("LISTAGG(DISTINCT left(CAST(a AS STRING), 0), '-')", ""),
        of1="CASE WHEN count(_1) > 0 THEN array_join(collect_list(_1), ',') END",
        of2="CASE WHEN count(_1) > 0 THEN array_join(collect_list(_1), _2) END",
        distinct1="CASE WHEN count(_1) > 0 THEN array_join(collect_set(_1), ',') END",
        distinct2="CASE WHEN count(_1) > 0 THEN array_join(collect_set(_1), _2) END",
    ),
    "ARRAY_AGG": function(
        "keeps NULL, and is NULL without rows; in Spark NULL is left out",
        ("ARRAY_AGG(b)", [None, "y", "z"]),
        of1="CASE WHEN count(1) > 0 THEN transform(collect_list(named_struct('v', _1)), s -> s.v) END",
        distinct1="CASE WHEN count(1) > 0 THEN transform(collect_set(named_struct('v', _1)), s -> s.v) END",
    ),
    "FIRST_VALUE": function(
        "leaves NULL out",
        ("FIRST_VALUE(b)", "y"),
        ("FIRST_VALUE(DISTINCT b)", "y"),
        of1="first(_1, true)",
        distinct1="first(_1, true)",
    ),
    "LAST_VALUE": function("leaves NULL out", ("LAST_VALUE(b)", "z"), of1="last(_1, true)"),
    "AVG": function(
        "of whole numbers a whole number, in Spark DOUBLE",
        ("CAST(AVG(a + 2) AS DOUBLE)", 4.0),
        ("CAST(AVG(a + a) / 3 AS DOUBLE)", 1.0),
        ("CAST(AVG(CASE a WHEN 1 THEN 1 ELSE 2 END) AS DOUBLE)", 1.0),
        ("CAST(AVG(DISTINCT CASE a WHEN 1 THEN 1 ELSE 4 END) AS DOUBLE)", 2.0),
        of1=_AVG.format(""),
        distinct1=_AVG.format("DISTINCT "),
    ),
}

AGGREGATES: Final = frozenset(
    {
        "ANY_VALUE",
        "APPROX_COUNT_DISTINCT",
        "ARRAY_AGG",
        "AVG",
        "BOOL_AND",
        "BOOL_OR",
        "COLLECT_LIST",
        "COLLECT_SET",
        "COUNT",
    }
    | {
        "EVERY",
        "FIRST",
        "FIRST_VALUE",
        "JSON_ARRAYAGG",
        "JSON_OBJECTAGG",
        "LAST",
        "LAST_VALUE",
        "LISTAGG",
        "MAX",
        "MAX_BY",
    }
    | {"MIN", "MIN_BY", "STDDEV", "STDDEV_POP", "STDDEV_SAMP", "SUM", "VAR_POP", "VAR_SAMP", "VARIANCE"}
)
"""Functions that make a query without GROUP BY an aggregation."""
