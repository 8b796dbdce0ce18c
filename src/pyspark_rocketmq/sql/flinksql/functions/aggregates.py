"""Aggregate functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark_rocketmq.sql.flinksql.functions.declared import Function, function

__all__ = ["AGGREGATES", "AGGREGATE_FORMS"]

_OF_VALUES: Final = "typeof(any_value(_1))"
_AS_AVG: Final = (
    f"variant_get(CAST({{}} AS VARIANT), '$', CASE WHEN {_OF_VALUES} LIKE 'decimal%' THEN "
    f"concat('decimal(38,', greatest(6, CAST(regexp_extract({_OF_VALUES}, ',([0-9]+)', 1) AS INT)), ')') "
    "ELSE 'double' END)"
)
"""A number with the type of an AVG: of DECIMALs that of Flink's findAvgAggType, of others DOUBLE."""

_AVG: Final = (
    f"CASE WHEN {_OF_VALUES} IN ('tinyint', 'smallint', 'int', 'bigint') "
    f"THEN {_AS_AVG.format('CAST(avg({0}_1) AS BIGINT)')} WHEN {_OF_VALUES} LIKE 'decimal%' "
    f"THEN {_AS_AVG.format('sum({0}_1) / count({0}_1)')} ELSE {_AS_AVG.format('avg({0}_1)')} END"
)
"""Spark's average of DECIMALs has 4 digits more than they have; a sum divided by a number has enough."""

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
        "of whole numbers a whole number, in Spark DOUBLE; of a DECIMAL(p, s) a DECIMAL(38, max(6, s))",
        ("CAST(AVG(a + 2) AS DOUBLE)", 4.0),
        ("CAST(AVG(a + a) / 3 AS DOUBLE)", 1.0),
        ("CAST(AVG(CASE a WHEN 1 THEN 1 ELSE 2 END) AS DOUBLE)", 1.0),
        ("CAST(AVG(DISTINCT CASE a WHEN 1 THEN 1 ELSE 4 END) AS DOUBLE)", 2.0),
        ("CAST(AVG(CAST(CASE a WHEN 1 THEN 1 ELSE 2 END AS DECIMAL(10, 0))) AS STRING)", "1.666667"),
        ("CAST(AVG(CAST(a AS DECIMAL(20, 8))) AS STRING)", "2.00000000"),
        ("CAST(AVG(DISTINCT CAST(a AS DECIMAL(10, 2))) AS STRING)", "2.000000"),
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
